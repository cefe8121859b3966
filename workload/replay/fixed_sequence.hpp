#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::replay {

/// SplitMix64 as a fixed generator, so that the same parameters give the same trace everywhere.
class fixed_sequence {
public:
  explicit fixed_sequence(std::uint64_t seed = 0) : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    auto x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  /// 0 … n - 1
  std::size_t below(std::size_t n) noexcept { return static_cast<std::size_t>(((next() >> 32) * n) >> 32); }

private:
  std::uint64_t state_;
};

} // namespace troupe::replay
