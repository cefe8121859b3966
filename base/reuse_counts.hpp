#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// How often keys were used again, by class and age: the counts of a sample, to be added to those of other nodes. Ages
/// are numbers of new keys, in steps that double every two: 64, 96, 128, 192, …
///
/// A class is what was known of a key at its last use; the user of the counts defines the classes.
struct reuse_counts {
  static constexpr std::uint32_t classes = 12;
  static constexpr std::size_t ages = 44;
  using by_age = std::array<float, ages>;

  /// Keys that were used again at that age.
  std::array<by_age, classes> used{};
  /// Keys whose observation ended at that age, by a use or for any other reason: at least `used`.
  std::array<by_age, classes> ended{};

  static std::size_t step_of(std::uint64_t age) noexcept;
  /// The least age of a step.
  static std::uint64_t begin_of(std::size_t step) noexcept;

  /// The approximate number of keys in the sample.
  float seen() const noexcept;
  reuse_counts& operator+=(const reuse_counts& other) noexcept;
  reuse_counts& operator*=(float factor) noexcept;

  /// The same for a rate of new keys that is `pace` times as high: each age is multiplied by `pace`. A step is spread
  /// evenly over those that it falls into. `pace` is above 0.
  reuse_counts at_pace(double pace) const noexcept;

  /// All numbers for a message, in units of 1/1024; `used`, then `ended`.
  std::vector<std::uint32_t> numbers() const;
  /// Parses untrusted numbers: nothing where there are too few or too many, or more used than ended.
  static std::optional<reuse_counts> of_numbers(std::span<const std::uint32_t> numbers);

  friend bool operator==(const reuse_counts&, const reuse_counts&) = default;
};

} // namespace troupe
