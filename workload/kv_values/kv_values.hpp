#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

/// Payloads of BF16 elements with distributions as KV caches of models have them, and with values that are rare there.
/// They are for tests and measurements of compression; nothing here is drawn from a real model.

namespace troupe::workload {

enum class value_kind : std::uint8_t {
  /// All elements are normal with one scale.
  normal,
  /// Normal, with a scale for each channel: log-normal with a deviation of 1, and of 2.
  spread_1,
  spread_2,
  /// K with rotary position embedding, one channel of which has a large mean, beside V.
  rotated_keys,
  /// Normal, with two channels of 128 that are 64 and 30 times as large.
  outlier_channels,
  /// A part of the tokens does not exist.
  half_zeroes,
  zeroes,
  negative_zeroes,
  constant,
  denormals,
  /// Normal, with some infinities, or NaN of different bits, and with a few very large and very small values.
  infinities,
  nans,
  extremes,
  random_bits,
};

/// All kinds, in their order.
std::vector<value_kind> all_value_kinds();

std::string_view to_string(value_kind kind) noexcept;

/// A payload of `elements` of the kind, in two bytes each. Heads have 128 channels and blocks 16 tokens.
std::vector<std::byte> make_values(value_kind kind, std::size_t elements, std::mt19937_64& random);

} // namespace troupe::workload
