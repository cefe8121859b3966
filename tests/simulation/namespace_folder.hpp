#pragma once

#include "actors/node/namespaces/namespace_files.hpp"
#include "tests/simulation/environment.hpp"
#include "tests/simulation/namespace_memory.hpp"
#include "tests/simulation/namespace_parameters.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// The folder with the slab files of clients' namespaces, and the disk below it. Outlives the node's process. A file
/// that is removed while it is open still exists for its user.
class namespace_folder {
public:
  namespace_folder(environment& world, const namespace_parameters& p);

  /// The store for a run of the node, over its memory.
  std::shared_ptr<namespace_files> open(std::shared_ptr<namespace_memory> memory);
  /// The node's process is killed: writes in progress are completed, or not, or partly.
  void crash();

  std::size_t files() const noexcept { return slabs_.size(); }
  /// The incarnation of the rank's file or memory; 0 if none was opened.
  incarnation_number incarnation(const namespace_id& ns, rank_number rank) const;
  /// Files of that namespace.
  std::size_t files_of(const namespace_id& ns) const;

private:
  struct slab {
    incarnation_number incarnation = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t slots_max = 0;
    std::uint64_t slots = 0;
    /// A sparse one: for how many whole pages it has disk space, and what each slot occupies of it.
    bool sparse = false;
    std::uint64_t granted = 0;
    std::vector<std::uint64_t> occupied;
    std::uint64_t occupied_bytes = 0;
    bool open = false;
    /// By slot.
    std::map<std::uint64_t, std::vector<std::byte>> pages;
  };
  /// It occupies this much of the disk from now on.
  static void occupy(slab& file, std::uint64_t slot, std::uint64_t bytes);
  /// More whole slots, with disk space.
  static void grow(slab& file, std::uint64_t slots);

  class run;
  class store;
  class growth;

  environment& world_;
  const namespace_parameters& p_;
  random_source random_;
  std::map<std::string, std::shared_ptr<slab>> slabs_;
  std::map<std::string, incarnation_number> opened_;
  /// Counts crashes: earlier plans are dropped.
  std::uint64_t life_ = 0;
};

} // namespace troupe::simulation
