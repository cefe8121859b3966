#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

/// Names of memory in /dev/shm, by which programs find the arena of a node that are told nothing but a name: workers of
/// LMCache, and the daemon of 3FS. Several nodes may see one /dev/shm, and containers give their nodes the same data
/// directory: so a name says nothing about which node it is of, and none is removed that another node holds.

namespace troupe::io {

/// Removes the memory that a node of this data directory has left, as one does that is killed, unless somebody holds
/// its name. The caller has the directory's lock. May wait for the file system.
void remove_left_memory(const std::filesystem::path& directory);

/// Draws a name at random, and keeps it in the file `memory-name` of the data directory, for `remove_left_memory` of
/// the next start. The caller has the directory's lock. May wait for the file system.
///
/// Errors: `io_error`.
result<std::string> draw_memory_name(const std::filesystem::path& directory);

/// Holds the name of memory that this process has made, as long as it lives, and then removes it.
class held_memory_name {
public:
  held_memory_name() = default;
  held_memory_name(held_memory_name&&) noexcept = default;
  held_memory_name& operator=(held_memory_name&& other) noexcept;
  ~held_memory_name();

  /// `memory`: a descriptor of what lies under this name. Errors: `busy` (another process holds it, or something else
  /// lies there), `io_error`.
  static result<held_memory_name> hold(const std::string& name, int memory);

  /// Without a slash; empty if there is none.
  const std::string& text() const noexcept { return name_; }

  /// Whether the name still leads to that memory. True where there is none.
  bool is_there() const noexcept;

private:
  std::string name_;
  /// Opened for this alone: descriptors of the memory itself are handed to other processes, which would keep the lock.
  unique_descriptor lock_;
};

} // namespace troupe::io
