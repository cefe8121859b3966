#include "io/usrbio/transfer_ring.hpp"

#include <cerrno>
#include <string>
#include <unistd.h>

namespace troupe::io::usrbio {

static_assert(sizeof(void*) == sizeof(std::uint64_t), "handles are passed as pointers");

result<std::unique_ptr<transfer_ring>> transfer_ring::open(const std::shared_ptr<mount>& at, operation direction,
                                                           std::uint32_t entries) {
  const auto what = std::string(direction == operation::read ? "a ring for reads" : "a ring for writes");
  // The library opens the daemon's semaphore when it makes a ring, and does not report every failure of that.
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
    return tl::unexpected(system_error(-code, "3FS's daemon of " + at->place() + " refuses " + what.substr(2)));
  made->open_ = true;
  // The daemon trusts the content of a ring, including the number of the file.
  if (!make_private(made->ring_.memory.base))
    return fail(errc::io_error, what + " is writable by other users");
  return made;
}

transfer_ring::~transfer_ring() {
  if (!open_)
    return;
  // For rings with flags the library removes another name than it has made: the daemon would keep the ring.
  const auto memory = ring_.memory;
  mount_->client().iordestroy(&ring_);
  mount_->unlink_names(memory);
}

int transfer_ring::prepare(const iov& memory, std::byte* data, std::uint64_t length, int descriptor,
                           std::uint64_t offset, std::uint64_t handle) {
  if (descriptor < 0) // the file could not be registered again; the library's own file numbers are negative, too
    return -EBADF;
  const auto index = mount_->client().prep_io(&ring_, &memory, reads_, data, descriptor, offset, length,
                                              reinterpret_cast<const void*>(static_cast<std::uintptr_t>(handle)));
  return index < 0 ? index : 0;
}

void transfer_ring::submit() {
  mount_->client().submit_ios(&ring_);
}

std::span<const cqe> transfer_ring::reap(std::span<cqe> room) {
  // No minimum, so the call returns at once; the deadline in the past makes sure of it.
  const timespec over{};
  const auto count = mount_->client().wait_for_ios(&ring_, room.data(), static_cast<int>(room.size()), 0, &over);
  return room.first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

} // namespace troupe::io::usrbio
