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

/// A rate of tokens per time, in which older measurements have less weight. Once known, it stays known.
class fading_pace {
public:
  explicit fading_pace(duration half_life) : half_life_(half_life) {}

  void add(double tokens, double seconds, timestamp now) noexcept;
  /// The time of one token, in seconds; empty before the first measurement.
  std::optional<double> seconds_per_token() const noexcept;

private:
  duration half_life_;
  double tokens_ = 0;
  double seconds_ = 0;
  timestamp seen_{};
};

struct load_pace_options {
  disk_hits rule = disk_hits::always;
  /// The fewest tokens of a step that measures prompt computation: a decoding step computes few tokens in the same
  /// time.
  std::uint32_t step_tokens_min = 256;
  /// The time after which a measurement has half the weight.
  duration half_life = std::chrono::seconds(60);
  /// One of this number of hits that would be cut is loaded further, to measure again: `explore_tokens` from the disk,
  /// limited to the number that makes the request wait twice as long, but at least one page.
  std::uint32_t explore_every = 16;
  std::uint32_t explore_tokens = 4096;
  /// The same for hits before disk and computing have been measured, including the first: a load that is long enough to
  /// measure the disk, and short enough where the disk is slow.
  std::uint32_t first_look_tokens = 2048;
  /// The expected time of computing before it has been measured.
  duration computing_guess = std::chrono::seconds(1);
};

/// Decides how much of a hit is loaded. With `disk_hits::when_faster` no more is loaded than is expected to be ready
/// sooner than by computing, according to measurements of loads from the disk, loads from memory, and steps that
/// computed prompts. Until disk and computing have been measured, hits are cut at the first page on disk, except for
/// one in `explore_every`, including the first, of which `first_look_tokens` are loaded from the disk. Pages in memory
/// are never the reason to compute.
///
/// The decision is only about the latency of the request: loads beside forward passes leave the GPU to others.
///
/// Plain rules, with the time as an argument.
class load_pace {
public:
  explicit load_pace(const load_pace_options& options)
      : options_(options), memory_(options.half_life), disk_(options.half_life), compute_(options.half_life) {}

  /// A step begins that computes `tokens` tokens. `goes_on`: whether requests of the step before continue, so that the
  /// engine has not been idle in between. `waits`: whether it waits for loads.
  void step(timestamp now, std::uint32_t tokens, bool goes_on, bool waits = false) noexcept;

  /// A load of these tokens has ended on all workers. `whole`: whether all of it succeeded. `beside`: tokens that were
  /// computed in the same time by a step that waited for it.
  void loaded(const hit_sources& tokens, duration took, bool whole, std::uint32_t beside, timestamp now) noexcept;

  /// The page before which the load of a hit ends. `first` is the first page that the engine does not have; `on_disk`
  /// has one mark per page; if it is empty all of `pages` are loaded. Counts as a decision.
  std::uint32_t worth_loading(std::uint32_t first, std::uint32_t pages, std::span<const std::uint8_t> on_disk,
                              std::uint32_t page_tokens) noexcept;

  /// The expected time of computing `tokens` tokens.
  duration computing(std::uint32_t tokens) const noexcept;
  /// Whether the node should read pages into memory that are computed because the disk is slow.
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
  /// Whether disk and computing have been measured.
  bool measured() const noexcept { return disk_.seconds_per_token() && compute_.seconds_per_token(); }
  /// For a hit that is loaded further although `cut_tokens` would be computed: the number of tokens to load from the
  /// disk.
  double tokens_to_explore(std::uint32_t cut_tokens) const noexcept;

  load_pace_options options_;
  fading_pace memory_;
  fading_pace disk_;
  fading_pace compute_;
  /// The last steps, the newest at the end.
  std::array<past_step, 4> steps_{};
  /// Cut hits since one was loaded further.
  std::uint32_t cuts_ = 0;
  /// Whether a hit was loaded to measure the disk for the first time.
  bool looked_ = false;
};

} // namespace troupe::connector
