#pragma once

#include <cstddef>
#include <memory>
#include <openssl/bio.h>
#include <vector>

namespace troupe::io::tcp {

/// The socket below an encrypted stream, as OpenSSL uses it. OpenSSL reads a header of five bytes and then a record of
/// 16 KiB, and writes one record at a time, with a system call for each; and every record that is sent alone wakes the
/// other end. So what has arrived is taken in one call and kept until OpenSSL asks for it, and a record of which the
/// caller says that others follow waits in the kernel for these.
///
/// Belongs to the thread of its stream.
class record_socket {
public:
  /// The socket stays the caller's, and is open for as long as this object is used.
  explicit record_socket(int descriptor) : descriptor_(descriptor) {}
  record_socket(const record_socket&) = delete;
  record_socket& operator=(const record_socket&) = delete;

  /// A new handle to this object, which must outlive it. Null without memory.
  BIO* open();

  /// Whether bytes were taken from the socket that OpenSSL has not asked for.
  bool has_bytes() const noexcept { return begin_ < end_; }
  /// Whether more is written right after the next record. Every write of several records ends with one that nothing
  /// follows.
  void expect_more(bool follows) noexcept { more_follows_ = follows; }

private:
  struct free_method {
    void operator()(BIO_METHOD* x) const noexcept { BIO_meth_free(x); }
  };
  static const BIO_METHOD* method();

  int read(BIO* from, char* into, std::size_t bytes);
  int write(BIO* to, const char* from, std::size_t bytes) const;
  std::ptrdiff_t receive(void* into, std::size_t bytes) const;

  int descriptor_;
  bool more_follows_ = false;
  /// Bytes that have arrived; allocated at the first read.
  std::unique_ptr<char[]> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

} // namespace troupe::io::tcp
