#include "io/usrbio/transfer_ring.hpp"

#include <cerrno>
#include <string>
#include <unistd.h>

namespace troupe::io::usrbio {

static_assert(sizeof(void*) == sizeof(std::uint64_t), "handles travel as pointers");

result<std::unique_ptr<transfer_ring>> transfer_ring::open(const std::shared_ptr<mount>& at, operation direction,
                                                           std::uint32_t entries) {
  const auto what = std::string(direction == operation::read ? "a ring for reads" : "a ring for writes");
  // The library looks for the daemon's semaphore when the ring is made already, and does not notice all that can go
  // wrong there.
  const auto semaphore = at->place() + "/3fs-virt/iovs/submit-ios";
  if (::access(semaphore.c_str(), R_OK | W_OK) != 0)
    return fail(errc::unsupported,
                system_error(errno, "3FS's daemon has no semaphore for transfers (" + semaphore + ")").text +
                    "; a container needs the host's /dev/shm");
  std::unique_ptr<transfer_ring> made(new transfer_ring(at));
  made->reads_ = direction == operation::read;
  constexpr int depth = 0;
  constexpr int timeout = 0;
  constexpr int no_numa_node = -1;
  const auto code = at->client().iorcreate4(&made->ring_, at->place().c_str(), static_cast<int>(entries), made->reads_,
                                            depth, timeout, no_numa_node, made->reads_ ? forbid_read_holes : 0);
  if (code < 0)
    return tl::unexpected(system_error(-code, "3FS's daemon of " + at->place() + " gives no " + what.substr(2)));
  made->open_ = true;
  // The daemon trusts what stands in a ring, down to which file is meant.
  if (!make_private(made->ring_.memory.base))
    return fail(errc::io_error, what + " could be written by other users");
  return made;
}

transfer_ring::~transfer_ring() {
  if (!open_)
    return;
  // The library takes away another name than it has made, where there are flags: the daemon would keep the ring.
  const auto memory = ring_.memory;
  mount_->client().iordestroy(&ring_);
  mount_->unlink_names(memory);
}

int transfer_ring::prepare(const iov& memory, std::byte* data, std::uint64_t length, int descriptor,
                           std::uint64_t offset, std::uint64_t handle) {
  if (descriptor < 0) // of a file that could not be registered anew; the library's own names of files are negative, too
    return -EBADF;
  const auto index = mount_->client().prep_io(&ring_, &memory, reads_, data, descriptor, offset, length,
                                              reinterpret_cast<const void*>(static_cast<std::uintptr_t>(handle)));
  return index < 0 ? index : 0;
}

void transfer_ring::submit() {
  mount_->client().submit_ios(&ring_);
}

std::span<const cqe> transfer_ring::reap(std::span<cqe> room) {
  // None has to be there, so it returns at once; the time, which is over, says so again.
  const timespec over{};
  const auto count = mount_->client().wait_for_ios(&ring_, room.data(), static_cast<int>(room.size()), 0, &over);
  return room.first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

} // namespace troupe::io::usrbio
