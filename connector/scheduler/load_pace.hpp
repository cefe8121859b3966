#pragma once

#include "base/clock.hpp"
#include "connector/types.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe::connector {

/// Tokens in a time, of which what was seen long ago counts less. Nothing makes it unknown again.
class fading_pace {
public:
  explicit fading_pace(duration half_life) : half_life_(half_life) {}

  void add(double tokens, double seconds, timestamp now) noexcept;
  /// Of one token, in seconds; nothing if none was seen.
  std::optional<double> seconds_per_token() const noexcept;

private:
  duration half_life_;
  double tokens_ = 0;
  double seconds_ = 0;
  timestamp seen_{};
};

struct load_pace_options {
  disk_hits rule = disk_hits::always;
  /// Tokens of a step that tells how quickly prompts are computed: one that decodes computes few, and takes as long.
  std::uint32_t step_tokens_min = 256;
  /// After which something that was seen counts half.
  duration half_life = std::chrono::seconds(60);
  /// Of so many hits of which something would be computed, one is loaded further, to see whether it still takes longer:
  /// so many tokens from the disk, and as many as make the request wait twice as long, but one page at least.
  std::uint32_t explore_every = 16;
  std::uint32_t explore_tokens = 4096;
  /// The same for hits that arrive before disk and computing have been measured, the first of them included: a load
  /// that is long enough to measure the disk, and short enough to be borne where it is slow.
  std::uint32_t first_look_tokens = 2048;
  /// How long computing is expected to take before it has been measured.
  duration computing_guess = std::chrono::seconds(1);
};

/// How much of a hit is loaded. With `disk_hits::when_faster` no more than is expected to be there sooner than if it
/// were computed, by what was measured: loads from the disk, loads from memory, and steps that computed prompts. Until
/// disk and computing have been measured, hits are cut at the first page on disk, but for one in `explore_every`, the
/// first included, of which `first_look_tokens` are loaded from the disk. Pages in memory are never the reason to
/// compute.
///
/// It is about how long the request takes, and about nothing else: loads beside forward passes leave the GPU to others.
///
/// Plain rules, with the time as an argument.
class load_pace {
public:
  explicit load_pace(const load_pace_options& options)
      : options_(options), memory_(options.half_life), disk_(options.half_life), compute_(options.half_life) {}

  /// A step begins that computes so many tokens. `goes_on`: with requests that ran in the one before, so that the
  /// engine has not been idle in between. `waits`: for loads.
  void step(timestamp now, std::uint32_t tokens, bool goes_on, bool waits = false) noexcept;

  /// A load of so many tokens has ended on all workers. `whole`: nothing of it failed. `beside`: tokens that were
  /// computed in the same time by a step that waited for it.
  void loaded(const hit_sources& tokens, duration took, bool whole, std::uint32_t beside, timestamp now) noexcept;

  /// Of a hit, of which page `first` is the first that the engine does not have: up to before which page it is to be
  /// loaded. `on_disk` has one mark per page; without any all of `pages` are loaded. Counts as a decision.
  std::uint32_t worth_loading(std::uint32_t first, std::uint32_t pages, std::span<const std::uint8_t> on_disk,
                              std::uint32_t page_tokens) noexcept;

  /// How long computing so many tokens is expected to take.
  duration computing(std::uint32_t tokens) const noexcept;
  /// Whether the node is to read into memory what is computed because the disk is slow.
  bool reads_ahead() const noexcept { return options_.rule == disk_hits::when_faster; }

  // In seconds; for tests and logs.
  std::optional<double> memory_token() const noexcept { return memory_.seconds_per_token(); }
  std::optional<double> disk_token() const noexcept { return disk_.seconds_per_token(); }
  std::optional<double> computed_token() const noexcept { return compute_.seconds_per_token(); }

private:
  struct past_step {
    timestamp at;
    std::uint32_t tokens = 0;
    bool goes_on = false;
    bool waits = false;
  };

  std::uint32_t quickest_end(std::uint32_t first, std::span<const std::uint8_t> on_disk) const noexcept;
  /// Whether disk and computing are known.
  bool measured() const noexcept { return disk_.seconds_per_token() && compute_.seconds_per_token(); }
  /// Of a hit of which so many tokens would be computed, and which is loaded further: how many of the disk.
  double tokens_to_explore(std::uint32_t cut_tokens) const noexcept;

  load_pace_options options_;
  fading_pace memory_;
  fading_pace disk_;
  fading_pace compute_;
  /// The last steps, the newest at the end.
  std::array<past_step, 4> steps_{};
  /// Since one was loaded further.
  std::uint32_t cuts_ = 0;
  /// Whether a hit was loaded to measure the disk for the first time.
  bool looked_ = false;
};

} // namespace troupe::connector
