#pragma once

#include "tests/usrbio/stand_in/control.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <semaphore.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

/// The common part of library and daemon of the stand-in: the layout of a ring in memory, and the construction of
/// names. The real ones have a layout of their own, which is not visible outside.

namespace troupe::test::stand_in {

struct ring_header {
  std::uint32_t entries;
  std::uint32_t for_read;
  std::int32_t io_depth;
  std::int32_t priority;
  std::int32_t timeout;
  std::uint64_t flags;
  std::int32_t process;
  /// Set by the daemon, which then needs the name no more.
  std::atomic<std::uint32_t> attached;
  /// The positions at which the client puts the next entry, and at which the daemon takes it.
  std::atomic<std::uint64_t> submission_head;
  std::atomic<std::uint64_t> submission_tail;
  std::atomic<std::uint64_t> completion_head;
  std::atomic<std::uint64_t> completion_tail;
  sem_t completed;
};

struct ring_args {
  std::array<std::uint8_t, 16> memory;
  std::uint64_t memory_offset;
  std::uint64_t file;
  std::uint64_t file_offset;
  std::uint64_t length;
};

struct ring_submission {
  std::int32_t index;
  const void* userdata;
};

struct ring_completion {
  std::int32_t index;
  std::int64_t result;
  const void* userdata;
};

/// The parts behind the header.
struct ring_view {
  ring_header* header = nullptr;

  std::uint64_t places() const { return header->entries + 1; }
  /// There is room for every transfer's result, and for as many that belong to none.
  std::uint64_t completion_places() const { return 2 * places(); }
  ring_args* args() const { return reinterpret_cast<ring_args*>(header + 1); }
  ring_submission* submissions() const { return reinterpret_cast<ring_submission*>(args() + places()); }
  ring_completion* completions() const { return reinterpret_cast<ring_completion*>(submissions() + places()); }

  static std::size_t bytes(std::uint64_t entries) {
    return sizeof(ring_header) +
           (entries + 1) * (sizeof(ring_args) + sizeof(ring_submission) + 2 * sizeof(ring_completion)) + 4096;
  }
};

inline std::string to_text(const std::uint8_t* id) {
  std::string out;
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(id[i]));
    out += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9)
      out += '-';
  }
  return out;
}

/// Without its dashes.
inline std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != '-')
      out += c;
  return out;
}

inline std::string in_binary(std::uint64_t flags) {
  std::string out;
  for (; flags != 0; flags >>= 1U)
    out.insert(out.begin(), (flags & 1U) != 0 ? '1' : '0');
  return out;
}

inline const char* suffix_of(int priority) {
  return priority == 0 ? "" : priority < 0 ? ".ph" : ".pl";
}

/// Maps the control file of a mount point; null where there is none.
inline control* map_control(const std::filesystem::path& mount_point) {
  const int opened = ::open((mount_point / control_name).c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0)
    return nullptr;
  void* const at = ::mmap(nullptr, sizeof(control), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  ::close(opened);
  return at == MAP_FAILED ? nullptr : static_cast<control*>(at);
}

} // namespace troupe::test::stand_in
