#pragma once

#include "actors/node/namespaces/rank_parts.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The slab files of namespaces that clients create, in a directory of their own. Blocks for as long as the disk takes;
/// for one thread at a time.
class namespace_files {
public:
  virtual ~namespace_files() = default;

  /// The names of all files, sound or not, including unfinished ones.
  virtual std::vector<std::string> list() const = 0;

  /// The disk space that a file uses, or that it was granted if that is more. Reads the file.
  virtual std::uint64_t bytes_of(const std::string& name) const = 0;

  /// Whether a file of this name exists.
  virtual bool has(const std::string& name) const = 0;

  /// Opens the file of that rank, or creates it with `first_slots` slots; 0: no file, in memory only. Errors: those of
  /// `io::open_slab_store`.
  virtual result<rank_parts> open(const namespace_spec& ns, rank_number rank, std::uint64_t first_slots) = 0;

  /// Removes a file. It may be open; then its disk space is free when it is closed.
  virtual void remove(const std::string& name) = 0;
};

/// The files in the data directory of this config. `extents`: the source of memory for pages. `gate`: whether the
/// directory may be written.
std::shared_ptr<namespace_files>
open_namespace_files(std::shared_ptr<const config::node_config> options, std::shared_ptr<io::extent_source> extents,
                     std::shared_ptr<const write_gate> gate = write_gate::always_open());

} // namespace troupe
