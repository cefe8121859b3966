#pragma once

#include "lmcache/incoming.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Messages of LMCache's clients, by another writer's hand than the product's.

namespace troupe::test {

inline std::string packed_json(const nlohmann::json& x) {
  const auto bytes = nlohmann::json::to_msgpack(x);
  return {bytes.begin(), bytes.end()};
}

/// Decodes a message like a node with this many tokens per chunk.
inline std::optional<lmcache::incoming> read_packed(const nlohmann::json& what,
                                                    const std::vector<nlohmann::json>& payloads,
                                                    std::uint32_t chunk_tokens, bool keeps_tokens = false) {
  std::vector<std::string> frames{packed_json(7), packed_json(what)};
  for (const auto& x : payloads)
    frames.push_back(packed_json(x));
  std::vector<lmcache::protocol::byte_view> views;
  for (const auto& x : frames)
    views.push_back(std::as_bytes(std::span(x)));
  return lmcache::read_message(views, chunk_tokens, keeps_tokens);
}

} // namespace troupe::test
