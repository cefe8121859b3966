#pragma once

#include "tests/integration/network.hpp"
#include "tests/integration/support.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::test {

inline arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Nodes that are peers of each other, in processes of their own: over the loopback interface, or each on its own host.
struct test_cluster {
  explicit test_cluster(std::size_t nodes, node_shape of = {}, std::string called = "here",
                        const network* over = nullptr);

  nlohmann::json config(std::size_t i);
  void start(std::size_t i, const arguments& more = {});
  /// All of them, until each can ask all others.
  void start_all();
  /// Until so many others can be asked, of which the log speaks from that line on.
  void wait_for_peers(std::size_t i, std::size_t count, std::size_t from = 0);

  serving_node& node(std::size_t i) { return *all[i]; }
  /// An engine on the host of that node.
  launch engine(std::size_t i, const std::string& trace, const arguments& more = {});
  replay_outcome replay(std::size_t i, const std::string& trace, const arguments& more = {});
  /// As the command line prints it.
  std::string status(std::size_t i);
  /// The same as one line, since sentences are wrapped for a terminal.
  std::string status_in_one_line(std::size_t i);
  void stop_all();

  scratch_directory scratch;
  const network* hosts;
  std::vector<std::uint16_t> ports;
  node_shape shape;
  std::string name;
  /// A silent peer counts as unreachable after a second or two, and no lookup waits for it longer. Otherwise lookups
  /// wait for as long as a busy machine may need, so that all existing pages are found.
  bool fails_soon = false;
  bool insecure = true;
  /// Their slab files lie in one directory, and they read each other's.
  bool shared = false;
  /// Then: of their claims; empty for the default.
  std::string claim_lease{};
  /// Added to `cluster` of each config; with `etcd` among it, there are no seeds.
  nlohmann::json options = nlohmann::json::object();
  /// Has the last word on the config of a node.
  std::function<void(std::size_t, nlohmann::json&)> change = [](std::size_t, nlohmann::json&) {};
  std::vector<std::optional<serving_node>> all;
};

} // namespace troupe::test
