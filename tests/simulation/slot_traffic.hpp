#pragma once

#include "tests/simulation/slot_node.hpp"

#include <cstdint>
#include <functional>
#include <map>

namespace troupe::simulation {

/// Reads and writes of engines in their own slab files. They continue when the engine dies, since the kernel has them,
/// and the node sees nothing of them. Every read must find the bytes of its key, from its beginning to its end.
///
/// As docs/decisions/0006 says, transfers in progress while the node restarts have ended by then, except where a page
/// was restored.
class slot_traffic {
public:
  slot_traffic(environment& world, slot_node& serving) : world_(world), node_(serving) {}

  /// `done` says whether the bytes are there.
  void write(const slot_page& what, timestamp begin, timestamp end, bool well, std::function<void(bool)> done);
  void read(const slot_page& what, timestamp begin, timestamp end);

  /// Called after the node has started again.
  void node_restarted();

private:
  struct transfer {
    slot_page what;
    bool writes = false;
    bool begun = false;
    bool well = true;
    std::uint64_t changes = 0;
    std::function<void(bool)> done;
  };

  void plan(transfer x, timestamp begin, timestamp end);
  void begin(std::uint64_t number);
  void end(std::uint64_t number);

  environment& world_;
  slot_node& node_;
  std::map<std::uint64_t, transfer> under_way_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::simulation
