#pragma once

#include "actors/node/supervisor/rank_parts.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The slab files of namespaces that clients make, in a folder where nobody else has any. Blocks for as long as the
/// disk takes; for one thread at a time.
class space_files {
public:
  virtual ~space_files() = default;

  struct file {
    std::string name;
    /// Disk space that it takes.
    std::uint64_t bytes = 0;
  };

  /// All there are, sound or not, and what is left of some that were never finished.
  virtual std::vector<file> list() const = 0;

  /// Whether there is one of this name.
  virtual bool has(const std::string& name) const = 0;

  /// Opens the file of that rank, or makes it, with so many slots at first; 0 for none: in memory only. Errors: those
  /// of `io::open_slab_store`.
  virtual result<rank_parts> open(const namespace_spec& space, rank_number rank, std::uint64_t first_slots) = 0;

  /// Also while it is open: then its space is the disk's when it is closed.
  virtual void remove(const std::string& name) = 0;
};

/// Those in the data directory of this config. `extents`: where pages get their memory from. `gate`: whether that may
/// be written; null where nobody else could take it over.
std::shared_ptr<space_files> open_space_files(std::shared_ptr<const config::node_config> options,
                                              std::shared_ptr<io::extent_source> extents,
                                              std::shared_ptr<const write_gate> gate = nullptr);

} // namespace troupe
