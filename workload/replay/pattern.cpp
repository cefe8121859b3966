#include "workload/replay/pattern.hpp"

#include <bit>
#include <cstring>

namespace troupe::replay {

static_assert(std::endian::native == std::endian::little, "the pattern is little-endian");

namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);

/// Two words, the size of a vector register on every machine.
using pair [[gnu::vector_size(2 * word_bytes)]] = std::uint64_t;

} // namespace

/// A cache line of consecutive words. It has four named pairs: the optimiser leaves an array of them in memory, and is
/// then slower than the memory that it fills or compares.
struct page_pattern::line {
  static constexpr std::size_t bytes = 8 * word_bytes;

  pair a, b, c, d;

  /// The words first, first + step, …
  line(std::uint64_t first, std::uint64_t step) noexcept
      : a{first, first + step}, b(a + 2 * step), c(b + 2 * step), d(c + 2 * step) {
    // nop
  }

  void store(std::byte* p) const noexcept {
    put(p, a);
    put(p + sizeof(pair), b);
    put(p + 2 * sizeof(pair), c);
    put(p + 3 * sizeof(pair), d);
  }

  /// The bits in which the line at `p` differs, combined over all words.
  pair difference(const std::byte* p) const noexcept {
    return (load(p) ^ as_elements(a)) | (load(p + sizeof(pair)) ^ as_elements(b)) |
           (load(p + 2 * sizeof(pair)) ^ as_elements(c)) | (load(p + 3 * sizeof(pair)) ^ as_elements(d));
  }

  /// Adds to every word.
  void advance(std::uint64_t by) noexcept {
    a += by;
    b += by;
    c += by;
    d += by;
  }

private:
  static void put(std::byte* p, const pair& x) noexcept {
    const auto elements = as_elements(x);
    std::memcpy(p, &elements, sizeof(pair));
  }
  static pair load(const std::byte* p) noexcept {
    pair out;
    std::memcpy(&out, p, sizeof(pair));
    return out;
  }
};

page_pattern::page_pattern(const key_digest& key, rank_number rank) noexcept
    : first_(mix(key.hi + rank * 0x9e3779b97f4a7c15ULL, key.lo)),
      step_(mix(key.lo ^ 0xa0761d6478bd642fULL, key.hi + rank) | 1U) {
  // nop
}

std::byte page_pattern::at(std::uint64_t offset) const noexcept {
  return static_cast<std::byte>(word(offset / word_bytes) >> (offset % word_bytes * 8));
}

void page_pattern::fill(std::span<std::byte> out, std::uint64_t offset) const noexcept {
  auto* p = out.data();
  auto left = out.size();
  for (; left > 0 && offset % word_bytes != 0; --left)
    *p++ = at(offset++);
  line values(first_ + offset / word_bytes * step_, step_);
  for (; left >= line::bytes; left -= line::bytes, p += line::bytes, offset += line::bytes) {
    values.store(p);
    values.advance(step_ * (line::bytes / word_bytes));
  }
  for (; left > 0; --left)
    *p++ = at(offset++);
}

std::optional<std::uint64_t> page_pattern::compare(std::span<const std::byte> bytes,
                                                   std::uint64_t offset) const noexcept {
  const auto* p = bytes.data();
  auto left = bytes.size();
  for (; left > 0 && offset % word_bytes != 0; --left, ++p, ++offset)
    if (*p != at(offset))
      return offset;
  line expected(first_ + offset / word_bytes * step_, step_);
  for (; left >= line::bytes; left -= line::bytes, p += line::bytes, offset += line::bytes) {
    const auto difference = expected.difference(p);
    if ((difference[0] | difference[1]) != 0)
      break; // the loop over bytes below finds the position
    expected.advance(step_ * (line::bytes / word_bytes));
  }
  for (; left > 0; --left, ++p, ++offset)
    if (*p != at(offset))
      return offset;
  return std::nullopt;
}

} // namespace troupe::replay
