#pragma once

#include "base/unique_descriptor.hpp"
#include "io/engine/engine.hpp"
#include "io/page.hpp"
#include "tests/cannot.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

namespace troupe::test {

/// A temporary directory that is removed with the object.
class scratch_directory {
public:
  explicit scratch_directory(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    auto name = (parent / "troupe-io-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      cannot("make a directory");
    path_ = name;
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

/// Memory aligned for direct I/O.
class aligned_buffer {
public:
  explicit aligned_buffer(std::size_t size)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(io::page_alignment, size))), size_(size) {
    std::fill_n(memory_.get(), size, std::byte{0});
  }

  std::span<std::byte> bytes() { return {memory_.get(), size_}; }
  std::byte* data() { return memory_.get(); }
  std::size_t size() const { return size_; }

private:
  struct releaser {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };

  std::unique_ptr<std::byte, releaser> memory_;
  std::size_t size_;
};

inline void fill_random(std::span<std::byte> bytes, std::mt19937_64& random) {
  for (auto& b : bytes)
    b = static_cast<std::byte>(random());
}

/// Takes completions and lets a test wait for them.
class completion_log {
public:
  io::completion_sink sink() {
    return [this](std::span<const io::completion> batch) {
      std::lock_guard guard(mutex_);
      all_.insert(all_.end(), batch.begin(), batch.end());
      ++batches_;
      arrived_.notify_all();
    };
  }

  /// Waits until `count` completions have arrived in all and returns them.
  std::vector<io::completion> wait_for(std::size_t count) {
    std::unique_lock guard(mutex_);
    await(arrived_, guard, [&] { return all_.size() >= count; });
    return all_;
  }

  /// Waits for the completion of this tag.
  io::completion wait_for_tag(std::uint64_t tag) {
    std::unique_lock guard(mutex_);
    std::optional<io::completion> found;
    await(arrived_, guard, [&] {
      const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& c) { return c.tag == tag; });
      if (at != all_.end())
        found = *at;
      return found.has_value();
    });
    return *found;
  }

  std::vector<io::completion> all() {
    std::lock_guard guard(mutex_);
    return all_;
  }

  /// How often each tag was completed.
  std::map<std::uint64_t, int> counts() {
    std::lock_guard guard(mutex_);
    std::map<std::uint64_t, int> out;
    for (const auto& c : all_)
      ++out[c.tag];
    return out;
  }

private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<io::completion> all_;
  std::size_t batches_ = 0;
};

/// Empty if `text` contains all parts, otherwise the missing parts and the text; for comparison with "".
inline std::string missing(const std::string& text, std::initializer_list<std::string> parts) {
  for (const auto& part : parts)
    if (text.find(part) == std::string::npos)
      return "'" + part + "' is not in '" + text + "'";
  return {};
}

struct pipe_ends {
  unique_descriptor read_end;
  unique_descriptor write_end;
};

inline pipe_ends make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    cannot("make a pipe");
  return {unique_descriptor(ends[0]), unique_descriptor(ends[1])};
}

/// A new file of this size.
inline unique_descriptor make_file(const std::filesystem::path& path, std::uint64_t size, int flags = 0) {
  unique_descriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600));
  if (!made || ::ftruncate(made.get(), static_cast<off_t>(size)) != 0)
    cannot("make a file");
  return made;
}

/// A file of written zeroes; `make_file` leaves a hole, which USRBIO does not read.
inline unique_descriptor make_written_file(const std::filesystem::path& path, std::uint64_t size) {
  auto made = make_file(path, size);
  const std::vector<std::byte> zeroes(size);
  if (::pwrite(made.get(), zeroes.data(), size, 0) != static_cast<ssize_t>(size))
    cannot("write a file");
  return made;
}

} // namespace troupe::test
