#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

namespace troupe {

/// A cryptographic digest algorithm with its context. Keep one per thread: looking up the algorithm and making a
/// context takes longer than hashing a short text. All calls fail where the system lacks the algorithm, such as MD5
/// under some policies. Users link troupe_message_digest.
class message_digest {
public:
  using byte_view = std::span<const std::byte>;

  /// `algorithm` is OpenSSL's name: "SHA256", "MD5", …
  explicit message_digest(const char* algorithm);
  message_digest(message_digest&&) noexcept;
  message_digest& operator=(message_digest&&) noexcept;
  ~message_digest();

  bool available() const noexcept;

  bool begin() noexcept;

  bool add(byte_view bytes) noexcept;

  /// `out` has room for the algorithm's digest.
  bool end(std::span<std::byte> out) noexcept;

  bool digest(std::initializer_list<byte_view> parts, std::span<std::byte> out) noexcept;

private:
  struct implementation;
  std::unique_ptr<implementation> x_;
};

} // namespace troupe
