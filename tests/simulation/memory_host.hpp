#pragma once

#include "io/shared_memory.hpp"
#include "io/page_store.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace troupe::simulation {

/// The memory that processes of one host share: page buffers that a node has lent, under names that are never used
/// again. They can be found as long as the process that lent them holds them.
class memory_host {
public:
  /// Of one run of a node, over one of its stores.
  std::unique_ptr<io::page_buffer_source> source(io::page_store& store);
  std::shared_ptr<io::shared_memory_finder> finder();

private:
  struct shared_memory;
  class lender;
  class seeker;

  std::map<std::uint64_t, std::weak_ptr<shared_memory>> lent_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::simulation
