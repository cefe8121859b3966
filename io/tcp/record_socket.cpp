#include "io/tcp/record_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace troupe::io::tcp {

namespace {

/// Fits into a second-level cache beside the record that is decrypted from it.
constexpr std::size_t kept_bytes = std::size_t{256} << 10U;

bool is_retried(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

} // namespace

const BIO_METHOD* record_socket::method() {
  static const std::unique_ptr<BIO_METHOD, free_method> made = [] {
    auto* const out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "records over a socket");
    if (out == nullptr)
      return std::unique_ptr<BIO_METHOD, free_method>();
    BIO_meth_set_read(out, [](BIO* x, char* into, int bytes) {
      return static_cast<record_socket*>(BIO_get_data(x))->read(x, into, static_cast<std::size_t>(std::max(bytes, 0)));
    });
    BIO_meth_set_write(out, [](BIO* x, const char* from, int bytes) {
      return static_cast<const record_socket*>(BIO_get_data(x))
          ->write(x, from, static_cast<std::size_t>(std::max(bytes, 0)));
    });
    // There is nothing to flush: what is kept in the kernel is sent by the next write.
    BIO_meth_set_ctrl(out, [](BIO*, int what, long, void*) -> long { return what == BIO_CTRL_FLUSH ? 1 : 0; });
    return std::unique_ptr<BIO_METHOD, free_method>(out);
  }();
  return made.get();
}

BIO* record_socket::open() {
  auto* const out = method() != nullptr ? BIO_new(method()) : nullptr;
  if (out != nullptr) {
    BIO_set_data(out, this);
    BIO_set_init(out, 1);
  }
  return out;
}

std::ptrdiff_t record_socket::receive(void* into, std::size_t bytes) const {
  std::ptrdiff_t out = 0;
  do
    out = ::recv(descriptor_, into, bytes, 0);
  while (out < 0 && errno == EINTR);
  return out;
}

int record_socket::read(BIO* from, char* into, std::size_t bytes) {
  BIO_clear_retry_flags(from);
  if (begin_ == end_) {
    if (!bytes_)
      bytes_.reset(new char[kept_bytes]);
    const auto got = receive(bytes_.get(), kept_bytes);
    if (got <= 0) {
      if (got < 0 && is_retried(errno))
        BIO_set_retry_read(from);
      return static_cast<int>(got);
    }
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
  }
  const auto count = std::min(bytes, end_ - begin_);
  std::memcpy(into, bytes_.get() + begin_, count);
  begin_ += count;
  return static_cast<int>(count);
}

int record_socket::write(BIO* to, const char* from, std::size_t bytes) const {
  BIO_clear_retry_flags(to);
  const auto put = ::send(descriptor_, from, bytes, MSG_NOSIGNAL | (more_follows_ ? MSG_MORE : 0));
  if (put < 0 && is_retried(errno))
    BIO_set_retry_write(to);
  return static_cast<int>(put);
}

} // namespace troupe::io::tcp
