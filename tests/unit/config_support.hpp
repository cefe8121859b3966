#pragma once

#include "config/node_config.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

/// A small config that loads; one line per thing that tests replace.
inline const std::string small_config = R"({
  "data_dir": "data",
  "storage": { "ranks": [ { "slab_bytes": "4 MiB" }, { "slab_bytes": "8 MiB" } ] },
  "namespaces": [
    {
      "name": "chat", "model": "some/model", "dtype": "bfloat16", "world_size": 2,
      "kv_cache": { "layers": 2, "heads": 2, "head_size": 64, "block_tokens": 64 }
    }
  ]
})";

inline std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

/// One problem per line.
inline std::string lines(const std::vector<problem>& problems) {
  std::string result;
  for (const auto& p : problems)
    result += to_string(p) + "\n";
  return result;
}

/// Loads a config, and fails the test with the errors if it does not load.
inline node_config good(std::string_view text, const std::vector<std::string>& overrides = {},
                        purpose what_for = purpose::server) {
  auto config = parse(text, "test.json", overrides, what_for);
  INFO((config ? std::string{} : lines(config.error())));
  REQUIRE(config);
  return *config;
}

/// Does not load; the problems, one per line.
inline std::string bad(std::string_view text, const std::vector<std::string>& overrides = {},
                       purpose what_for = purpose::server) {
  const auto config = parse(text, "test.json", overrides, what_for);
  REQUIRE_FALSE(config);
  REQUIRE_FALSE(config.error().empty());
  return lines(config.error());
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

} // namespace troupe::config
