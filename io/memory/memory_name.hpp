#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

/// Names of memory in /dev/shm. Programs that know only a name find a node's arena by it: workers of LMCache, and the
/// daemon of 3FS. Several nodes may see one /dev/shm, and containers give their nodes the same data directory. So a
/// name does not identify a node, and a name that another node holds is never removed.

namespace troupe::io {

/// Removes the memory that an earlier node of this data directory has left, such as a killed one, unless a process
/// holds its name. The caller has the directory's lock. May wait for the file system.
void remove_left_memory(const std::filesystem::path& directory);

/// Generates a random name and writes it to the file `memory-name` of the data directory, for `remove_left_memory` at
/// the next start. The caller has the directory's lock. May wait for the file system.
///
/// Error: `io_error`.
result<std::string> draw_memory_name(const std::filesystem::path& directory);

/// Holds the name of memory of this process while it lives, and then removes it.
class held_memory_name {
public:
  held_memory_name() = default;
  held_memory_name(held_memory_name&&) noexcept = default;
  held_memory_name& operator=(held_memory_name&& other) noexcept;
  ~held_memory_name();

  /// Holds `name`. `memory` is a descriptor of the file under it. Errors: `busy` (another process holds it, or it names
  /// another file), `io_error`.
  static result<held_memory_name> hold(const std::string& name, int memory);

  /// The name without a slash; empty if there is none.
  const std::string& text() const noexcept { return name_; }

  /// Whether the name still leads to that memory. True where there is none.
  bool is_there() const noexcept;

private:
  std::string name_;
  /// Opened only for the lock: descriptors of the memory itself are sent to other processes, which would keep the lock.
  unique_descriptor lock_;
};

} // namespace troupe::io
