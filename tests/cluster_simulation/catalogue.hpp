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

/// The list of nodes of a world that has an etcd: how that is, who reads it, and what the checks know.
struct catalogue {
  duration lease{};
  /// Within which all is as it should be, where nothing is in the way.
  duration bound{};
  etcd store;
  /// Until when it does not listen, hears and says nothing, cannot be written, and is slow.
  timestamp away{};
  timestamp still{};
  timestamp full{};
  timestamp slow{};
  /// Since when nothing of that has been.
  timestamp undisturbed{};
  /// What came while it stood still.
  std::vector<std::function<void()>> heard;
  /// Of a watch: whose it is, and when its last line arrives there.
  struct reader {
    std::size_t who = 0;
    std::uint64_t life = 0;
    std::uint64_t watch = 0;
    timestamp last{};
  };
  std::map<std::uint64_t, reader> readers;
  /// By lease: which node has it, in which of its lives. By run: when it has ended.
  std::map<std::int64_t, std::pair<std::size_t, std::uint64_t>> owners;
  std::map<std::uint64_t, timestamp> ended;
  /// By prefix: the addresses that make sense, and since when these; all that ever did. By key: since when it is not
  /// there.
  std::map<std::string, std::pair<std::set<std::string>, timestamp>> lists;
  std::map<std::string, std::set<std::string>> ever;
  std::map<std::string, timestamp> missing;
};

} // namespace troupe::cluster_simulation
