#pragma once

#include "lmcache/protocol/msgpack_reader.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::lmcache::protocol {

/// The capability by which a server says that it serves `subscribe_kv_events`.
inline constexpr std::string_view event_capability = "kv_event_stream";

/// The most changes that a client may ask for in one batch.
inline constexpr std::uint32_t batch_events_max = 1024;

/// Messages of a client about its subscription, which follow the request: it has read a batch; it ends the
/// subscription.
enum class stream_control : std::uint8_t { none, confirm, cancel };

/// Reads the third frame of such a message; none for another one.
std::optional<stream_control> read_stream_control(byte_view frame) noexcept;

/// One change in a batch. Tokens and parent are of a stored chunk.
struct cache_event {
  std::uint64_t number = 0;
  bool stored = false;
  std::string_view model;
  std::uint64_t hash = 0;
  std::optional<std::uint64_t> parent{};
  std::span<const std::uint32_t> tokens{};
};

struct event_batch_head {
  /// False: the server has no events. The client then reports its own stores, and needs no further batch.
  bool enabled = true;
  std::uint64_t incarnation = 0;
  std::uint64_t next_cursor = 0;
  bool lost = false;
};

/// The answer to `subscribe_kv_events`, as LMCache 0.5.6 and 0.5.7 decode it. Hashes are 8 bytes, the highest first.
/// The medium is "CPU", the only one that clients pass on, whether the chunk is in memory or on disk.
std::string answer_events(const event_batch_head& head, std::span<const cache_event> events);

} // namespace troupe::lmcache::protocol
