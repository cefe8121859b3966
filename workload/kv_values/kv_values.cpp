#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace troupe::workload {

namespace {

constexpr std::size_t channels = 128;
constexpr std::size_t head_elements = channels * 16;

/// The nearest BF16, ties to even; for finite numbers.
std::uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

class value_source {
public:
  value_source(value_kind kind, std::mt19937_64& random) : kind_(kind), random_(random) {}

  /// The values of the next 16 tokens of one head.
  std::array<std::uint16_t, head_elements> next_head() {
    std::array<std::uint16_t, head_elements> out{};
    new_scales();
    std::array<float, head_elements> values{};
    for (std::size_t i = 0; i < head_elements; ++i)
      values[i] = normal_(random_) * scales_[i % channels];
    if (kind_ == value_kind::rotated_keys && head_++ % 2 == 0)
      rotate(values);
    for (std::size_t i = 0; i < head_elements; ++i)
      out[i] = element(values[i], i);
    return out;
  }

private:
  void new_scales() {
    scales_.fill(1.0F);
    const auto deviation = kind_ == value_kind::spread_2                                        ? 2.0F
                           : kind_ == value_kind::spread_1 || kind_ == value_kind::rotated_keys ? 1.0F
                                                                                                : 0.0F;
    if (deviation > 0)
      for (auto& scale : scales_)
        scale = std::exp(deviation * normal_(random_));
    if (kind_ == value_kind::outlier_channels) {
      scales_[5] = 64;
      scales_[77] = 30;
    }
  }

  void rotate(std::array<float, head_elements>& values) {
    for (std::size_t i = 0; i < head_elements; ++i) {
      const auto channel = i % channels;
      constexpr auto half = channels / 2;
      if (channel >= half)
        continue;
      if (channel == 3)
        values[i] += 20;
      const auto token = i / channels + 16 * head_;
      const auto angle =
          static_cast<float>(token) * std::pow(10'000.0F, -static_cast<float>(channel) / static_cast<float>(half));
      auto& a = values[i];
      auto& b = values[i + half];
      const auto turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }

  std::uint16_t element(float value, std::size_t i) {
    const auto bits = static_cast<std::uint16_t>(random_());
    switch (kind_) {
    case value_kind::half_zeroes:
      return i < head_elements / 2 + channels ? bf16_of(value) : std::uint16_t{0};
    case value_kind::zeroes:
      return 0;
    case value_kind::negative_zeroes:
      return 0x8000;
    case value_kind::constant:
      return 0xbe2f;
    case value_kind::denormals:
      return bits & 0x807fU;
    case value_kind::infinities:
      return i % 301 == 7 ? std::uint16_t((bits & 0x8000U) | 0x7f80U) : bf16_of(value);
    case value_kind::nans:
      return i % 301 == 7 ? std::uint16_t(bits | 0x7f81U) : bf16_of(value);
    case value_kind::extremes:
      return i % 101 == 7 ? bits : bf16_of(value);
    case value_kind::random_bits:
      return bits;
    default:
      return bf16_of(value);
    }
  }

  value_kind kind_;
  std::mt19937_64& random_;
  std::normal_distribution<float> normal_;
  std::array<float, channels> scales_{};
  std::size_t head_ = 0;
};

} // namespace

std::vector<value_kind> all_value_kinds() {
  std::vector<value_kind> out;
  for (auto i = 0; i <= static_cast<int>(value_kind::random_bits); ++i)
    out.push_back(static_cast<value_kind>(i));
  return out;
}

std::string_view to_string(value_kind kind) noexcept {
  constexpr std::array<std::string_view, 14> names{"normal",           "spread 1",    "spread 2",   "rotated keys",
                                                   "outlier channels", "half zeroes", "zeroes",     "negative zeroes",
                                                   "constant",         "denormals",   "infinities", "NaN",
                                                   "extremes",         "random bits"};
  return names.at(static_cast<std::size_t>(kind));
}

std::vector<std::byte> make_values(value_kind kind, std::size_t elements, std::mt19937_64& random) {
  std::vector<std::byte> out(elements * 2);
  value_source source(kind, random);
  for (std::size_t at = 0; at < out.size(); at += head_elements * 2) {
    const auto head = source.next_head();
    std::memcpy(out.data() + at, head.data(), std::min(out.size() - at, sizeof head));
  }
  return out;
}

} // namespace troupe::workload
