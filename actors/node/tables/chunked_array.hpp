#pragma once

#include "base/prefetch.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace troupe {

/// Bytes of one chunk of a `chunked_array`: one huge page on x86-64.
inline constexpr std::size_t chunk_bytes = std::size_t{2} << 20;

/// Maps one zero-filled chunk, aligned to its size. With `huge`, asks the kernel for a huge page, so that ten million
/// entries need hundreds instead of hundreds of thousands of translations. Throws std::bad_alloc.
void* map_chunk(bool huge);

/// Unmaps what `map_chunk` returned.
void unmap_chunk(void* chunk) noexcept;

/// An array that grows in chunks and never moves an element: growing costs the same at any size, and there is no pause
/// for copying. New elements are all zero bytes. The first chunk stays on small pages, so that an array with few
/// elements costs little memory.
template <class T>
class chunked_array {
public:
  static_assert(std::is_trivially_copyable_v<T> && std::has_single_bit(sizeof(T)) && sizeof(T) <= chunk_bytes);

  static constexpr std::size_t per_chunk = chunk_bytes / sizeof(T);

  chunked_array() = default;
  chunked_array(const chunked_array&) = delete;
  chunked_array& operator=(const chunked_array&) = delete;

  ~chunked_array() {
    for (auto* chunk : chunks_)
      unmap_chunk(chunk);
  }

  T& operator[](std::uint64_t i) noexcept { return chunks_[i / per_chunk][i % per_chunk]; }
  const T& operator[](std::uint64_t i) const noexcept { return chunks_[i / per_chunk][i % per_chunk]; }

  std::uint64_t size() const noexcept { return size_; }

  /// Makes the indexes below `n` usable; never shrinks.
  void grow_to(std::uint64_t n) {
    while (chunks_.size() * per_chunk < n) {
      chunks_.reserve(chunks_.size() + 1); // before the mapping exists, so that a failure leaks nothing
      chunks_.push_back(static_cast<T*>(map_chunk(!chunks_.empty())));
    }
    if (n > size_)
      size_ = n;
  }

  void prefetch(std::uint64_t i) const noexcept { prefetch_to_write(&(*this)[i]); }

  /// Memory in use: the first chunk as far as it was used, the others whole.
  std::uint64_t resident_bytes() const noexcept {
    const auto first = (size_ < per_chunk ? size_ : per_chunk) * sizeof(T);
    return first + (chunks_.size() > 1 ? (chunks_.size() - 1) * chunk_bytes : 0);
  }

private:
  std::vector<T*> chunks_;
  std::uint64_t size_ = 0;
};

} // namespace troupe
