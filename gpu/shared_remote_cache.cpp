#include "base/unique_descriptor.hpp"
#include "gpu/host_copies.hpp"
#include "gpu/remote_cache.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Shared memory of another process.
struct shared_file {
  unique_descriptor descriptor;
  std::uint64_t bytes = 0;
};

result<void> check_size(const shared_file& file) {
  struct stat status {};
  if (::fstat(file.descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail(errc::invalid_argument, "shared memory of a KV cache is not a regular file");
  if (static_cast<std::uint64_t>(status.st_size) < file.bytes)
    return fail(errc::out_of_range,
                fmt::format("shared memory of a KV cache has {} bytes, not {}", status.st_size, file.bytes));
  return {};
}

/// A lack of descriptors or memory may pass. Memory that does not exist, or that this user may not open, is a false
/// statement of the client: another code, since callers try `io_error` again.
errc code_of_open(int number) {
  const bool may_pass = number == EMFILE || number == ENFILE || number == ENOMEM || number == EINTR;
  return may_pass ? errc::io_error : errc::invalid_argument;
}

result<shared_file> open_shared_file(const shared_memory_handle& handle) {
  shared_file out;
  out.descriptor = unique_descriptor(::shm_open(handle.name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (out.descriptor.get() < 0) {
    const auto number = errno;
    return fail(code_of_open(number), fmt::format("shared memory '{}' of a KV cache cannot be opened: {}", handle.name,
                                                  std::strerror(number)));
  }
  out.bytes = handle.bytes;
  if (auto ok = check_size(out); !ok)
    return tl::unexpected(std::move(ok.error()));
  return out;
}

/// Transfers all bytes; missing ones are an error.
result<void> transfer(move_direction direction, int file, std::byte* page, std::uint64_t bytes, std::uint64_t at) {
  while (bytes > 0) {
    const auto done = direction == move_direction::gather ? ::pread(file, page, bytes, static_cast<off_t>(at))
                                                          : ::pwrite(file, page, bytes, static_cast<off_t>(at));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return fail(errc::io_error, fmt::format("shared memory of a KV cache ends at {}, or cannot be used: {}", at,
                                              done < 0 ? std::strerror(errno) : "its end"));
    page += done;
    at += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::uint64_t>(done);
  }
  return {};
}

class shared_remote_cache final : public remote_cache {
public:
  shared_remote_cache(remote_layout layout, std::vector<shared_file> files)
      : layout_(std::move(layout)), files_(std::move(files)), page_bytes_(layout_.page_bytes()) {
    // nop
  }

  ~shared_remote_cache() override { count_down(layout_.counters); }

  result<void> prepare(std::span<std::byte>) override { return {}; }

  result<void> gather(std::span<block_move> moves, std::string_view) override {
    if (auto ok = check(moves); !ok)
      return ok;
    const auto page = private_page();
    for (auto& move : moves) {
      if (auto ok = copy_page(move_direction::gather, move, page.get()); !ok)
        return ok;
      store_page(move, page.get());
    }
    return {};
  }

  result<void> scatter(std::span<block_move> moves, std::string_view) override {
    if (auto ok = check(moves); !ok)
      return ok;
    const auto page = private_page();
    for (auto& move : moves) {
      const bool sound = fetch_page(move, page.get());
      move.verdict = sound ? errc::ok : errc::corrupt;
      if (!sound)
        continue;
      if (auto ok = copy_page(move_direction::scatter, move, page.get()); !ok)
        return ok;
    }
    return {};
  }

private:
  std::unique_ptr<std::byte[]> private_page() const {
    return std::unique_ptr<std::byte[]>(new std::byte[page_bytes_]); // not zeroed
  }

  result<void> check(std::span<const block_move> moves) const {
    if (auto ok = validate(layout_, moves); !ok)
      return ok;
    for (const auto& file : files_)
      if (auto ok = check_size(file); !ok)
        return ok;
    return {};
  }

  result<void> copy_page(move_direction direction, const block_move& move, std::byte* page) const {
    for (const auto& run : layout_.runs) {
      const auto file = files_[run.memory].descriptor.get();
      for (std::size_t i = 0; i < layout_.blocks_per_page;) {
        // Blocks that are adjacent on both sides are one piece.
        std::size_t count = 1;
        const auto block = move.block_at(i);
        if (block != null_block && run.block_stride == run.bytes)
          while (i + count < layout_.blocks_per_page && move.block_at(i + count) == block + count)
            ++count;
        const auto bytes = count * run.bytes;
        if (block == null_block) {
          if (direction == move_direction::gather)
            std::memset(page, 0, bytes);
        } else if (auto ok = transfer(direction, file, page, bytes, run.offset + block * run.block_stride); !ok) {
          return ok;
        }
        page += bytes;
        i += count;
      }
    }
    return {};
  }

  remote_layout layout_;
  std::vector<shared_file> files_;
  std::uint64_t page_bytes_;
};

} // namespace

result<std::unique_ptr<remote_cache>> open_remote_shared_cache(const remote_layout& layout) {
  if (auto ok = validate(layout); !ok)
    return tl::unexpected(std::move(ok.error()));
  std::vector<shared_file> files;
  for (const auto& memory : layout.memories) {
    const auto* handle = std::get_if<shared_memory_handle>(&memory);
    if (handle == nullptr)
      return fail(errc::invalid_argument, "a KV cache that is not in shared memory");
    auto file = open_shared_file(*handle);
    if (!file)
      return tl::unexpected(std::move(file.error()));
    files.push_back(std::move(*file));
  }
  return std::make_unique<shared_remote_cache>(layout, std::move(files));
}

} // namespace troupe
