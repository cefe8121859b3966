#include "io/engine/engine_resources.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

namespace troupe::io {

namespace {

constexpr auto largest_offset = static_cast<std::uint64_t>(INT64_MAX);

// A transfer that stops inside a sector has reached the end of the file; nothing else stops there.
constexpr std::uint64_t sector_bytes = 512;

} // namespace

engine_resources::engine_resources(std::uint32_t max_files, std::uint32_t max_buffers)
    : files_(max_files, -1), buffers_(max_buffers) {}

result<std::uint32_t> engine_resources::add_file(int descriptor) {
  if (descriptor < 0)
    return fail(errc::invalid_argument, "an io engine was given a file that is not open");
  const auto at = std::find(files_.begin(), files_.end(), -1);
  if (at == files_.end())
    return fail(errc::limit_exceeded, "an io engine has all of its " + std::to_string(files_.size()) + " files in use");
  *at = descriptor;
  return static_cast<std::uint32_t>(at - files_.begin());
}

void engine_resources::remove_file(std::uint32_t file) {
  if (file < files_.size())
    files_[file] = -1;
}

result<std::uint32_t> engine_resources::add_buffer(std::span<std::byte> bytes) {
  if (bytes.empty())
    return fail(errc::invalid_argument, "an io engine was given an empty buffer");
  const auto at = std::find_if(buffers_.begin(), buffers_.end(), [](const auto& b) { return b.empty(); });
  if (at == buffers_.end())
    return fail(errc::limit_exceeded,
                "an io engine has all of its " + std::to_string(buffers_.size()) + " buffers in use");
  *at = bytes;
  return static_cast<std::uint32_t>(at - buffers_.begin());
}

void engine_resources::remove_buffer(std::uint32_t buffer) {
  if (buffer < buffers_.size())
    buffers_[buffer] = {};
}

errc engine_resources::check(const request& what) const noexcept {
  if (descriptor(what.file) < 0 || what.length == 0)
    return errc::invalid_argument;
  if (what.file_offset > largest_offset || what.length > largest_offset - what.file_offset)
    return errc::out_of_range;
  if (what.op == operation::trim)
    return errc::ok;
  if (what.data == nullptr)
    return errc::invalid_argument;
  const auto memory = buffer(what.buffer);
  if (memory.empty())
    return errc::invalid_argument;
  // Compared as numbers: the pointers may belong to different objects.
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto data = reinterpret_cast<std::uintptr_t>(what.data);
  if (data < begin || data - begin > memory.size() || what.length > memory.size() - (data - begin))
    return errc::out_of_range;
  return errc::ok;
}

errc status_of(int system_errno) noexcept {
  switch (system_errno) {
  case ENOSPC:
  case EDQUOT:
    return errc::no_space;
  case ECANCELED:
    return errc::cancelled;
  default:
    return errc::io_error;
  }
}

progress judge_transfer(const request& what, std::int64_t outcome, std::uint64_t& done, std::uint32_t& fruitless) {
  if (outcome > 0) {
    done += static_cast<std::uint64_t>(outcome);
    fruitless = 0;
    return {.again = done < what.length};
  }
  // A trim is done at once or not at all, and moves no bytes.
  if (outcome == 0 && what.op == operation::trim)
    return {};
  if (outcome == 0)
    return {.status = what.op == operation::read ? errc::slab_damaged : errc::io_error,
            .system_errno = what.op == operation::read ? 0 : EIO};
  const auto code = static_cast<int>(-outcome);
  if ((code == EINTR || code == EAGAIN) && ++fruitless < max_fruitless_tries)
    return {.again = true};
  if (code == EINVAL && what.op == operation::read && done % sector_bytes != 0)
    return {.status = errc::slab_damaged}; // direct I/O cannot request the rest of an unaligned end
  return {.status = status_of(code), .system_errno = code};
}

errc final_status(errc status, errc abandoned) noexcept {
  if (abandoned == errc::timeout && (status == errc::ok || status == errc::cancelled))
    return errc::timeout;
  if (abandoned != errc::ok && status == errc::cancelled)
    return abandoned;
  return status;
}

} // namespace troupe::io
