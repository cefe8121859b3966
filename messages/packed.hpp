#pragma once

#include "base/error.hpp"

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

static_assert(std::endian::native == std::endian::little, "packed batches are little-endian in messages");

/// A batch of plain records. Between actors of one process it is a vector; between nodes it is sent as one string of
/// bytes, because serializing element by element is ten to a hundred times slower.
///
/// `T` must have no padding, so that no uninitialized byte leaves the process. A receiver has to check the values in a
/// batch from another node: any bit pattern can arrive.
template <class T>
struct packed {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);

  /// CAF requires it where a batch is a message by itself.
  using value_type = T;

  std::vector<T> items;

  packed() = default;
  packed(std::vector<T> xs) : items(std::move(xs)) {} // NOLINT(google-explicit-constructor): a vector is a batch

  auto begin() const noexcept { return items.begin(); }
  auto end() const noexcept { return items.end(); }
  auto begin() noexcept { return items.begin(); }
  auto end() noexcept { return items.end(); }
  std::size_t size() const noexcept { return items.size(); }
  bool empty() const noexcept { return items.empty(); }
  const T& operator[](std::size_t i) const noexcept { return items[i]; }
  T& operator[](std::size_t i) noexcept { return items[i]; }

  friend bool operator==(const packed&, const packed&) = default;

  std::string to_bytes() const {
    return items.empty() ? std::string{}
                         : std::string(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
  }

  /// False if the bytes are not a whole number of records.
  bool from_bytes(const std::string& bytes) {
    if (bytes.size() % sizeof(T) != 0)
      return false;
    items.resize(bytes.size() / sizeof(T));
    if (!bytes.empty())
      std::memcpy(static_cast<void*>(items.data()), bytes.data(), bytes.size());
    return true;
  }
};

} // namespace troupe
