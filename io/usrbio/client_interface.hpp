#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

/// The part of the C interface of 3FS's client library (libhf3fs_api_shared.so) that is used. The library is loaded at
/// run time without its headers: this file restates its binary interface.

namespace troupe::io::usrbio {

/// Memory that the daemon can access.
struct iov {
  std::uint8_t* base = nullptr;
  /// The library's handle; null where the memory is not the library's.
  void* handle = nullptr;
  char id[16] = {};
  char mount_point[256] = {};
  std::size_t size = 0;
  /// 0: all of it is one block. No transfer may cross a block boundary.
  std::size_t block_size = 0;
  int numa = -1;
};

/// A ring in memory of its own, for one direction.
struct ior {
  iov memory;
  void* handle = nullptr;
  char mount_point[256] = {};
  bool for_read = false;
  int io_depth = 0;
  int priority = 0;
  int timeout = 0;
  std::uint64_t flags = 0;
};

/// The outcome of one transfer.
struct cqe {
  std::int32_t index = 0;
  std::int32_t reserved = 0;
  /// Bytes, or -errno.
  std::int64_t result = 0;
  const void* userdata = nullptr;
};

static_assert(sizeof(iov) == 312 && offsetof(iov, size) == 288 && offsetof(iov, numa) == 304);
static_assert(sizeof(ior) == 600 && offsetof(ior, for_read) == 576 && offsetof(ior, flags) == 592);
static_assert(sizeof(cqe) == 24 && offsetof(cqe, userdata) == 16);

/// A flag of a ring: reading a hole is an error instead of zeroes.
inline constexpr std::uint64_t forbid_read_holes = 2;

/// The functions of the library, by the names in `client_library.cpp`. Functions that can fail return 0 or more, or
/// -errno, unless stated otherwise.
struct client_functions {
  bool (*is_hf3fs)(int descriptor) = nullptr;
  /// Returns the length of the path plus one, or -1 where the path is not on 3FS.
  int (*extract_mount_point)(char* out, int size, const char* path) = nullptr;
  int (*iovcreate)(iov* out, const char* mount_point, std::size_t size, std::size_t block_size, int numa) = nullptr;
  void (*iovdestroy)(iov* what) = nullptr;
  /// Only fills `out`: the caller maps the memory and links its name below the mount point.
  int (*iovwrap)(iov* out, void* base, const std::uint8_t* id, const char* mount_point, std::size_t size,
                 std::size_t block_size, int numa) = nullptr;
  int (*iorcreate4)(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int timeout, int numa,
                    std::uint64_t flags) = nullptr;
  void (*iordestroy)(ior* what) = nullptr;
  int (*io_entries)(const ior* ring) = nullptr;
  /// Returns 0 or less, or an errno.
  int (*reg_fd)(int descriptor, std::uint64_t flags) = nullptr;
  void (*dereg_fd)(int descriptor) = nullptr;
  /// One thread at a time. -EAGAIN: the ring is full.
  int (*prep_io)(const ior* ring, const iov* memory, bool read, void* data, int descriptor, std::size_t offset,
                 std::uint64_t length, const void* userdata) = nullptr;
  int (*submit_ios)(const ior* ring) = nullptr;
  /// Returns the number of results. `until` is of CLOCK_REALTIME; null waits without limit.
  int (*wait_for_ios)(const ior* ring, cqe* out, int most, int least, const timespec* until) = nullptr;
};

} // namespace troupe::io::usrbio
