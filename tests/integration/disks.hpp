#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

/// File systems that a test may fill up or break. They are mounted where only this process and those it starts see
/// them, and go with it. That takes root.

namespace troupe::test {

/// A file system in memory.
class small_disk {
public:
  /// Throws `disk_unavailable` where this process may not mount.
  small_disk(std::filesystem::path where, std::uint64_t bytes);
  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;
  ~small_disk();

  /// Writes a file until no byte is left.
  void fill_up() const;
  /// Removes that file.
  void make_room() const;

private:
  std::filesystem::path where_;
};

/// A file system on a disk of which a part can be taken away: transfers there end with EIO.
class breakable_disk {
public:
  /// `image` is the file that it lives in. Throws `disk_unavailable` where there are no loop devices or no mkfs.ext4.
  breakable_disk(std::filesystem::path image, std::filesystem::path where, std::uint64_t bytes);
  breakable_disk(const breakable_disk&) = delete;
  breakable_disk& operator=(const breakable_disk&) = delete;
  ~breakable_disk();

  /// Only the first `bytes` can be read and written from now on.
  void keep_only(std::uint64_t bytes) const;
  /// The whole disk works again; the part that had failed is zero.
  void repair() const { keep_only(bytes_); }

private:
  std::filesystem::path image_;
  std::filesystem::path where_;
  std::uint64_t bytes_;
  int device_ = -1;
};

/// Why a test that needs such a disk is skipped.
struct disk_unavailable {
  std::string why;
};

} // namespace troupe::test
