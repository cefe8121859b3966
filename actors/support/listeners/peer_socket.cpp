#include "actors/support/listeners/framed_connection.hpp"
#include "base/log.hpp"

#include <caf/policy/tcp.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

using caf::io::network::rw_state;

/// The number of descriptors that are passed: the memory of a node, and its proof (`io::arena`).
constexpr std::size_t handed_over = 2;

rw_state state_of(tls_channel::outcome x) {
  return x == tls_channel::outcome::failed ? rw_state::failure : rw_state::success;
}

} // namespace

std::optional<peer_socket> peer_socket::make(unique_descriptor& socket, const tls_context* tls,
                                             tls_channel::side which) {
  const auto descriptor = socket.release();
  std::unique_ptr<tls_channel> channel;
  if (tls != nullptr) {
    channel = tls_channel::start(*tls, descriptor, which);
    if (!channel) {
      ::close(descriptor);
      return std::nullopt;
    }
  }
  return peer_socket(descriptor, std::move(channel));
}

std::optional<peer_socket> peer_socket::to_node(unique_descriptor& socket, const tls_context* tls) {
  return make(socket, tls, tls_channel::side::client);
}

std::optional<peer_socket> peer_socket::to_local_node(unique_descriptor& socket,
                                                      std::unique_ptr<io::handed_memory::connection> handed) {
  auto out = make(socket, nullptr, tls_channel::side::client);
  out->handed_ = std::move(handed);
  return out;
}

std::optional<peer_socket> peer_socket::to_client(unique_descriptor& socket, const tls_context* tls,
                                                  std::shared_ptr<descriptor_handover> handover) {
  auto out = make(socket, tls, tls_channel::side::server);
  if (out)
    out->handover_ = std::move(handover);
  return out;
}

rw_state peer_socket::read_some(std::size_t& got, int descriptor, void* into, std::size_t size) {
  if (tls_)
    return state_of(tls_->read(got, into, size));
  return handed_ ? receive(got, descriptor, into, size) : caf::policy::tcp::read_some(got, descriptor, into, size);
}

rw_state peer_socket::write_some(std::size_t& put, int descriptor, const void* from, std::size_t size) {
  if (tls_)
    return state_of(tls_->write(put, from, size));
  return handover_ ? send(put, descriptor, from, size) : caf::policy::tcp::write_some(put, descriptor, from, size);
}

rw_state peer_socket::receive(std::size_t& got, int descriptor, void* into, std::size_t size) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(handed_over * sizeof(int))> beside{};
  iovec bytes{into, size};
  msghdr what{};
  what.msg_iov = &bytes;
  what.msg_iovlen = 1;
  what.msg_control = beside.data();
  what.msg_controllen = beside.size();
  const auto count = ::recvmsg(descriptor, &what, MSG_CMSG_CLOEXEC | MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    got = 0;
    return rw_state::success;
  }
  // 0 means that the peer has closed the connection.
  if (count <= 0)
    return rw_state::failure;
  got = static_cast<std::size_t>(count);
  std::vector<unique_descriptor> came;
  for (auto* x = CMSG_FIRSTHDR(&what); x != nullptr; x = CMSG_NXTHDR(&what, x))
    if (x->cmsg_level == SOL_SOCKET && x->cmsg_type == SCM_RIGHTS)
      for (std::size_t at = 0; at + sizeof(int) <= x->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(x) + at, sizeof number);
        came.emplace_back(number);
      }
  const bool cut_off = (what.msg_flags & MSG_CTRUNC) != 0;
  if (!came.empty() || cut_off)
    handed_->got(std::move(came), cut_off);
  return rw_state::success;
}

rw_state peer_socket::send(std::size_t& put, int descriptor, const void* from, std::size_t size) {
  auto given = handover_->take();
  if (given.size() != handed_over || size == 0)
    return caf::policy::tcp::write_some(put, descriptor, from, size);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(handed_over * sizeof(int))> beside{};
  iovec bytes{const_cast<void*>(from), size};
  msghdr what{};
  what.msg_iov = &bytes;
  what.msg_iovlen = 1;
  what.msg_control = beside.data();
  what.msg_controllen = beside.size();
  auto* const header = CMSG_FIRSTHDR(&what);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(handed_over * sizeof(int));
  for (std::size_t i = 0; i < handed_over; ++i) {
    const int number = given[i].get();
    std::memcpy(CMSG_DATA(header) + i * sizeof number, &number, sizeof number);
  }
  const auto count = ::sendmsg(descriptor, &what, MSG_NOSIGNAL);
  if (count >= 0) {
    put = static_cast<std::size_t>(count);
    return rw_state::success;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    handover_->put_back(std::move(given));
    put = 0;
    return rw_state::success;
  }
  // ETOOMANYREFS: too many descriptors of this user are in flight to processes that do not read. The bytes are sent
  // without them; the client reports that it has no memory and attaches again.
  if (errno != ETOOMANYREFS)
    return rw_state::failure;
  log::get("node")->warn("memory descriptors not passed to a client ({}); the client attaches again",
                         std::strerror(errno));
  return caf::policy::tcp::write_some(put, descriptor, from, size);
}

} // namespace troupe
