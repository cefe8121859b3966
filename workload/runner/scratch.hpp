#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace troupe::replay {

/// A directory `troupe-replay.XXXXXX` that is locked while this object lives, and removed with its content by the
/// destructor.
class scratch_directory {
public:
  /// The name of the subdirectory for a node, which the node locks itself.
  static constexpr const char* node_name = "data";

  /// Creates it in `parent`, for this user only.
  static result<scratch_directory> make(const std::filesystem::path& parent);

  scratch_directory() = default;
  scratch_directory(scratch_directory&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  scratch_directory& operator=(scratch_directory&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(lock_, other.lock_);
    return *this;
  }
  ~scratch_directory();

  /// Empty where there is no directory.
  const std::filesystem::path& path() const noexcept { return path_; }

private:
  scratch_directory(std::filesystem::path path, unique_descriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  unique_descriptor lock_;
};

/// Removes a directory that other threads may still write to, in several attempts. Does nothing where `path` is empty.
void remove_scratch(const std::filesystem::path& path);

/// What a killed program has left.
struct leftover {
  std::filesystem::path path;
  /// Its size on disk.
  std::uint64_t bytes = 0;
  /// False where the removal failed.
  bool removed = false;
};

/// Removes the scratch directories of this user in `parent` whose programs have ended: their locks are free.
std::vector<leftover> remove_leftovers(const std::filesystem::path& parent);

} // namespace troupe::replay
