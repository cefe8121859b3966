#include "connector/scheduler/load_pace.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::connector {

namespace {

double length_of(duration x) noexcept {
  return std::chrono::duration<double>(x).count();
}

/// The duration of an event that took no measurable time, so that no pace is infinite.
constexpr double shortest = 1e-6;

} // namespace

void fading_pace::add(double tokens, double seconds_taken, timestamp now) noexcept {
  const auto age = std::max(0.0, length_of(now - seen_) / length_of(half_life_));
  const auto rest = tokens_ > 0 ? std::exp2(-age) : 0;
  tokens_ = tokens_ * rest + tokens;
  seconds_ = seconds_ * rest + std::max(seconds_taken, shortest);
  seen_ = now;
}

std::optional<double> fading_pace::seconds_per_token() const noexcept {
  if (tokens_ <= 0)
    return std::nullopt;
  return seconds_ / tokens_;
}

// An engine that schedules ahead runs a step when the next one begins, others run it at once. So the duration of a step
// is the longer of the two intervals after its beginning, if the step is not smaller than its neighbours.
void load_pace::step(timestamp now, std::uint32_t tokens, bool goes_on, bool waits) noexcept {
  std::rotate(steps_.begin(), steps_.begin() + 1, steps_.end());
  steps_.back() = {now, tokens, goes_on, waits};
  const auto& [before, x, after, last] = steps_;
  if (x.tokens < options_.step_tokens_min || !after.goes_on || !last.goes_on || x.waits || after.waits)
    return;
  if (x.tokens < after.tokens || (x.goes_on && x.tokens < before.tokens))
    return;
  compute_.add(x.tokens, length_of(std::max(after.at - x.at, last.at - after.at)), now);
}

void load_pace::loaded(const hit_sources& tokens, duration took, bool whole, std::uint32_t beside,
                       timestamp now) noexcept {
  const double all = static_cast<double>(tokens.memory) + tokens.disk + tokens.unknown;
  if (tokens.unknown > 0 || all <= 0)
    return;
  auto time = std::max(length_of(took), shortest);
  const auto computed = compute_.seconds_per_token();
  if (beside > 0)
    // The step computed after it had the tokens. If computing took most of the time, the rest is not accurate.
    time = std::max(time - computed.value_or(0) * beside, time / 10);
  if (tokens.disk == 0) {
    if (whole)
      memory_.add(all, time, now);
    return;
  }
  // The disk is not faster than both together.
  const auto from_memory = memory_.seconds_per_token().value_or(0) * tokens.memory;
  const auto from_disk = std::max(time - from_memory, time * tokens.disk / all);
  // A failed load may end at once, which says nothing. A load that took longer than computing is a valid measurement.
  if (whole || (computed && from_disk > *computed * tokens.disk))
    disk_.add(tokens.disk, from_disk, now);
}

/// The end for which the whole hit is ready earliest, and the last of such ends: sums up the gain or loss of each page.
std::uint32_t load_pace::quickest_end(std::uint32_t first, std::span<const std::uint8_t> on_disk) const noexcept {
  const auto computed = compute_.seconds_per_token().value_or(0);
  const auto by_disk = disk_.seconds_per_token().value_or(0) - computed;
  const auto by_memory = std::min(memory_.seconds_per_token().value_or(0) - computed, 0.0);
  double sum = 0;
  double least = 0;
  auto end = first;
  for (auto i = first; i < on_disk.size(); ++i) {
    sum += on_disk[i] != 0 ? by_disk : by_memory;
    if (sum <= least) {
      least = sum;
      end = i + 1;
    }
  }
  return end;
}

double load_pace::tokens_to_explore(std::uint32_t cut_tokens) const noexcept {
  if (!measured())
    return options_.first_look_tokens;
  const auto computed = *compute_.seconds_per_token();
  const auto longer = *disk_.seconds_per_token() - computed;
  const double most = options_.explore_tokens;
  return longer > 0 ? std::min(most, computed * cut_tokens / longer) : most;
}

duration load_pace::computing(std::uint32_t tokens) const noexcept {
  const auto token = compute_.seconds_per_token();
  if (!token)
    return options_.computing_guess;
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(*token * tokens));
}

std::uint32_t load_pace::worth_loading(std::uint32_t first, std::uint32_t pages, std::span<const std::uint8_t> on_disk,
                                       std::uint32_t page_tokens) noexcept {
  if (options_.rule == disk_hits::always || on_disk.size() != pages || first >= pages)
    return pages;
  const auto on = [](std::uint8_t mark) { return mark != 0; };
  const auto in_memory =
      static_cast<std::uint32_t>(std::find_if(on_disk.begin() + first, on_disk.end(), on) - on_disk.begin());
  if (options_.rule == disk_hits::never)
    return in_memory;
  const auto end = measured() ? quickest_end(first, on_disk) : in_memory;
  if (end >= pages)
    return end;
  const bool first_look = !measured() && !std::exchange(looked_, true);
  if (!first_look && ++cuts_ < options_.explore_every)
    return end;
  cuts_ = 0;
  const auto most = std::max(1.0, tokens_to_explore((pages - end) * page_tokens) / page_tokens);
  auto further = end;
  for (std::uint32_t from_disk = 0; further < pages; ++further) {
    from_disk += on_disk[further] != 0 ? 1 : 0;
    if (from_disk > most)
      break;
  }
  return further;
}

} // namespace troupe::connector
