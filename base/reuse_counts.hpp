#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// How often keys were used again, by class and age: what was seen of a sample of them, to be added to what others have
/// seen. Ages are numbers of keys that came in, by steps that double twice: 64, 96, 128, 192, …
///
/// A class is what is known of a key at its last use; which there are is the business of who counts.
struct reuse_counts {
  static constexpr std::uint32_t classes = 12;
  static constexpr std::size_t ages = 44;
  using by_age = std::array<float, ages>;

  /// Keys that were used at that age.
  std::array<by_age, classes> used{};
  /// Keys that got no older, for that or for any reason: not fewer than were used.
  std::array<by_age, classes> ended{};

  static std::size_t step_of(std::uint64_t age) noexcept;
  /// The least age of a step.
  static std::uint64_t begin_of(std::size_t step) noexcept;

  /// How many keys were seen, more or less.
  float seen() const noexcept;
  reuse_counts& operator+=(const reuse_counts& other) noexcept;
  reuse_counts& operator*=(float factor) noexcept;

  /// The same where keys come in `pace` times as fast: what was of an age is of `pace` times the age. A step is spread
  /// evenly over those that it falls into. `pace` is above 0.
  reuse_counts at_pace(double pace) const noexcept;

  /// For a message: all numbers, one after the other, in units of 1/1024; what was used, then what ended.
  std::vector<std::uint32_t> numbers() const;
  /// Of numbers that anybody may have sent: nothing where they are too few or too many, and no more used than ended.
  static std::optional<reuse_counts> of_numbers(std::span<const std::uint32_t> numbers);

  friend bool operator==(const reuse_counts&, const reuse_counts&) = default;
};

} // namespace troupe
