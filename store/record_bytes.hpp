#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "store/records.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// The encoding of numbers, texts and errors that all records share; for the sources of records only.

namespace troupe::store {

/// The lowest byte.
inline char to_char(std::uint64_t x) {
  return static_cast<char>(static_cast<unsigned char>(x & 0xffU));
}

inline std::uint8_t to_byte(char c) {
  return static_cast<std::uint8_t>(c);
}

/// Appends a number, its highest byte first: the order of the bytes is that of the numbers.
template <class T>
void append_big(std::string& out, T x) {
  for (unsigned i = sizeof(T); i-- > 0;)
    out.push_back(to_char(std::uint64_t{x} >> (8 * i)));
}

/// Appends a number, its lowest byte first.
template <class T>
void append_little(std::string& out, T x) {
  for (unsigned i = 0; i < sizeof(T); ++i)
    out.push_back(to_char(std::uint64_t{x} >> (8 * i)));
}

/// Appends the size (4 bytes), then the text.
inline void append_text(std::string& out, std::string_view text) {
  append_little(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

template <class Tag>
void append_big_digest(std::string& out, const digest128<Tag>& x) {
  append_big(out, x.hi);
  append_big(out, x.lo);
}

/// Reads values from the front of some bytes. Once too few are left, it returns zeroes and `sound` is false.
class byte_reader {
public:
  explicit byte_reader(std::string_view bytes) noexcept : rest_(bytes) {}

  template <class T>
  T big() noexcept {
    std::uint64_t x = 0;
    for (const char c : take(sizeof(T)))
      x = (x << 8) | to_byte(c);
    return static_cast<T>(x);
  }

  template <class T>
  T little() noexcept {
    const auto bytes = take(sizeof(T));
    std::uint64_t x = 0;
    for (auto at = bytes.rbegin(); at != bytes.rend(); ++at)
      x = (x << 8) | to_byte(*at);
    return static_cast<T>(x);
  }

  template <class Digest>
  Digest big_digest() noexcept {
    Digest x;
    x.hi = big<std::uint64_t>();
    x.lo = big<std::uint64_t>();
    return x;
  }

  std::string text() { return std::string(take(little<std::uint32_t>())); }

  std::string_view take(std::size_t n) noexcept {
    if (n > rest_.size()) {
      sound_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  /// Whether all requested bytes existed.
  bool sound() const noexcept { return sound_; }

  /// The same, and no bytes are left.
  bool ended_well() const noexcept { return sound_ && rest_.empty(); }

private:
  std::string_view rest_;
  bool sound_ = true;
};

inline bool is_key_of(std::string_view key, table which, std::size_t size) {
  return key.size() == size && to_byte(key.front()) == static_cast<std::uint8_t>(which);
}

/// The error of a record that cannot be read: its key in words, then `what`.
inline tl::unexpected<error> corrupt(std::string_view key, std::string_view what) {
  return fail(errc::corrupt, "the record '" + describe_key(key) + "' " + std::string(what));
}

inline tl::unexpected<error> wrong_key(std::string_view key) {
  return corrupt(key, "has a key that does not belong to its table");
}

inline tl::unexpected<error> wrong_value(std::string_view key, std::string_view value) {
  return corrupt(key, "has a value of " + std::to_string(value.size()) + " bytes, which is not valid for its kind");
}

inline tl::unexpected<error> wrong_version(std::string_view key, std::uint8_t found, std::uint8_t known) {
  return corrupt(key,
                 "has version " + std::to_string(found) + ", this build reads versions 1 to " + std::to_string(known));
}

} // namespace troupe::store
