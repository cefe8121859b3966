#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace troupe::replay {

/// A directory `troupe-replay.XXXXXX` that is locked while this object lives, and removed with all that is in it at
/// its end.
class scratch_directory {
public:
  /// Of the directory in it that a node gets, which locks that one itself.
  static constexpr const char* node_name = "data";

  /// In `parent`; for this user alone.
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

  /// Empty where there is none.
  const std::filesystem::path& path() const noexcept { return path_; }

private:
  scratch_directory(std::filesystem::path path, unique_descriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  unique_descriptor lock_;
};

/// Removes a directory that others may still write to, which can take some attempts. Nothing where `path` is empty.
void remove_scratch(const std::filesystem::path& path);

/// What a program that was killed left behind.
struct leftover {
  std::filesystem::path path;
  /// That it took on the disk.
  std::uint64_t bytes = 0;
  /// False where it could not be removed.
  bool removed = false;
};

/// Removes the scratch directories of this user in `parent` whose programs are gone: nobody holds their locks.
std::vector<leftover> remove_leftovers(const std::filesystem::path& parent);

} // namespace troupe::replay
