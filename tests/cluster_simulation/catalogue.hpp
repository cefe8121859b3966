#pragma once

#include "base/clock.hpp"
#include "tests/cluster_simulation/etcd.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster_simulation {

/// The list of nodes of a world that has an etcd: its state, its readers, and the state of the checks.
struct catalogue {
  duration lease{};
  /// Within which all is as it should be, where nothing is in the way.
  duration bound{};
  etcd store;
  /// Times until which it does not accept connections, is frozen, refuses writes, and is slow.
  timestamp away{};
  timestamp still{};
  timestamp full{};
  timestamp slow{};
  /// Since when nothing of that has been.
  timestamp undisturbed{};
  /// The requests that arrived while it was frozen.
  std::vector<std::function<void()>> heard;
  /// The owner of a watch, and when its last line arrives there.
  struct reader {
    std::size_t who = 0;
    std::uint64_t life = 0;
    std::uint64_t watch = 0;
    timestamp last{};
  };
  std::map<std::uint64_t, reader> readers;
  /// By lease: the node that has it and the life in which it does. By run: when it has ended.
  std::map<std::int64_t, std::pair<std::size_t, std::uint64_t>> owners;
  std::map<std::uint64_t, timestamp> ended;
  /// By prefix: the valid addresses and since when; all that were ever valid. By key: since when it is missing.
  std::map<std::string, std::pair<std::set<std::string>, timestamp>> lists;
  std::map<std::string, std::set<std::string>> ever;
  std::map<std::string, timestamp> missing;
};

} // namespace troupe::cluster_simulation
