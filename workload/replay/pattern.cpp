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
  pair kept, set;

  /// The words at first, first + 1, …
  line(const page_pattern& x, std::uint64_t first) noexcept
      : a{x.first_ + first * x.step_, x.first_ + (first + 1) * x.step_}, b(a + 2 * x.step_), c(b + 2 * x.step_),
        d(c + 2 * x.step_), kept{x.kept_bits_, x.kept_bits_}, set{x.set_bits_, x.set_bits_} {
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
    return (load(p) ^ values_of(a)) | (load(p + sizeof(pair)) ^ values_of(b)) |
           (load(p + 2 * sizeof(pair)) ^ values_of(c)) | (load(p + 3 * sizeof(pair)) ^ values_of(d));
  }

  /// Adds to every word.
  void advance(std::uint64_t by) noexcept {
    a += by;
    b += by;
    c += by;
    d += by;
  }

private:
  pair values_of(const pair& x) const noexcept { return (x & kept) | set; }
  void put(std::byte* p, const pair& x) const noexcept {
    const auto values = values_of(x);
    std::memcpy(p, &values, sizeof(pair));
  }
  static pair load(const std::byte* p) noexcept {
    pair out;
    std::memcpy(&out, p, sizeof(pair));
    return out;
  }
};

page_pattern::page_pattern(const key_digest& key, rank_number rank, page_values values) noexcept
    : first_(mix(key.hi + rank * 0x9e3779b97f4a7c15ULL, key.lo)),
      step_(mix(key.lo ^ 0xa0761d6478bd642fULL, key.hi + rank) | 1U) {
  if (values == page_values::random)
    return;
  // Exponents of 120 to 127.
  kept_bits_ = 0x83ff83ff83ff83ffULL;
  set_bits_ = 0x3c003c003c003c00ULL;
}

std::byte page_pattern::at(std::uint64_t offset) const noexcept {
  return static_cast<std::byte>(word(offset / word_bytes) >> (offset % word_bytes * 8));
}

void page_pattern::fill(std::span<std::byte> out, std::uint64_t offset) const noexcept {
  auto* p = out.data();
  auto left = out.size();
  for (; left > 0 && offset % word_bytes != 0; --left)
    *p++ = at(offset++);
  line values(*this, offset / word_bytes);
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
  line expected(*this, offset / word_bytes);
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
