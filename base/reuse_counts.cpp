#include "base/reuse_counts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace troupe {

namespace {

constexpr std::size_t count_of_numbers = std::size_t{2} * reuse_counts::classes * reuse_counts::ages;
/// Samples have thousands of keys, and counts decay: none comes near four million.
constexpr float unit = 1.0F / 1024;
constexpr float largest = 4e6F;

} // namespace

std::size_t reuse_counts::step_of(std::uint64_t age) noexcept {
  if (age < 64)
    return 0;
  const auto doublings = static_cast<std::size_t>(std::bit_width(age)) - 7;
  return std::min(ages - 1, 1 + 2 * doublings + (age >> (5 + doublings) & 1));
}

std::uint64_t reuse_counts::begin_of(std::size_t step) noexcept {
  if (step == 0)
    return 0;
  const auto doublings = (step - 1) / 2;
  return (step - 1) % 2 == 0 ? std::uint64_t{64} << doublings : std::uint64_t{96} << doublings;
}

float reuse_counts::seen() const noexcept {
  float sum = 0;
  for (const auto& of_class : ended)
    for (const auto x : of_class)
      sum += x;
  return sum;
}

reuse_counts& reuse_counts::operator+=(const reuse_counts& other) noexcept {
  for (std::uint32_t c = 0; c < classes; ++c)
    for (std::size_t a = 0; a < ages; ++a) {
      used[c][a] += other.used[c][a];
      ended[c][a] += other.ended[c][a];
    }
  return *this;
}

reuse_counts& reuse_counts::operator*=(float factor) noexcept {
  for (std::uint32_t c = 0; c < classes; ++c)
    for (std::size_t a = 0; a < ages; ++a) {
      used[c][a] *= factor;
      ended[c][a] *= factor;
    }
  return *this;
}

reuse_counts reuse_counts::at_pace(double pace) const noexcept {
  reuse_counts out;
  for (std::size_t from = 0; from < ages; ++from) {
    const auto last = from + 1 == ages;
    const auto low = static_cast<double>(begin_of(from)) * pace;
    const auto high = static_cast<double>(last ? 2 * begin_of(from) : begin_of(from + 1)) * pace;
    for (std::size_t to = 0; to < ages; ++to) {
      const auto begin = static_cast<double>(begin_of(to));
      const auto end = to + 1 == ages ? std::max(high, begin) : static_cast<double>(begin_of(to + 1));
      const auto common = std::min(end, high) - std::max(begin, low);
      if (common <= 0)
        continue;
      const auto share = static_cast<float>(common / (high - low));
      for (std::uint32_t c = 0; c < classes; ++c) {
        out.used[c][to] += share * used[c][from];
        out.ended[c][to] += share * ended[c][from];
      }
    }
  }
  return out;
}

std::vector<std::uint32_t> reuse_counts::numbers() const {
  std::vector<std::uint32_t> out;
  out.reserve(count_of_numbers);
  for (const auto* part : {&used, &ended})
    for (const auto& of_class : *part)
      for (const auto x : of_class)
        out.push_back(static_cast<std::uint32_t>(std::lround(std::min(x, largest) / unit)));
  return out;
}

std::optional<reuse_counts> reuse_counts::of_numbers(std::span<const std::uint32_t> numbers) {
  if (numbers.size() != count_of_numbers)
    return std::nullopt;
  reuse_counts out;
  auto next = numbers.begin();
  for (auto* part : {&out.used, &out.ended})
    for (auto& of_class : *part)
      for (auto& x : of_class)
        x = static_cast<float>(*next++) * unit;
  // Used keys have ended as well. A larger `used` would give a reuse probability above 1.
  for (std::uint32_t c = 0; c < classes; ++c)
    for (std::size_t a = 0; a < ages; ++a)
      out.used[c][a] = std::min(out.used[c][a], out.ended[c][a]);
  return out;
}

} // namespace troupe
