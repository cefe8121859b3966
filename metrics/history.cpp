#include "metrics/history.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

std::uint64_t grown_by(std::uint64_t before, std::uint64_t after) noexcept {
  return after > before ? after - before : 0;
}

double gigabytes_per_second(std::uint64_t bytes, duration over) noexcept {
  // One byte per nanosecond is 10⁹ bytes per second.
  return over > duration::zero() ? static_cast<double>(bytes) / static_cast<double>(over.count()) : 0;
}

std::pair<namespace_id, rank_number> place_of(const activity_totals::rank& x) noexcept {
  return {x.ns, x.number};
}

void add_namespace(activity& out, const activity_totals& before, const activity_totals::namespace_totals& now) {
  const auto found = std::ranges::lower_bound(before.namespaces, now.id, {}, &activity_totals::namespace_totals::id);
  const bool is_known = found != before.namespaces.end() && found->id == now.id;
  const auto then = is_known ? *found : activity_totals::namespace_totals{};
  out.lookups += grown_by(then.lookups, now.lookups);
  out.asked_keys += grown_by(then.asked_keys, now.asked_keys);
  out.found_keys += grown_by(then.found_keys, now.found_keys);
  out.evicted_keys += grown_by(then.evicted_keys, now.evicted_keys);
}

void add_rank(activity& out, const activity_totals& before, const activity_totals::rank& now) {
  const auto found = std::ranges::lower_bound(before.ranks, place_of(now), {}, place_of);
  const bool is_known = found != before.ranks.end() && place_of(*found) == place_of(now);
  const auto then = is_known ? *found : activity_totals::rank{};
  out.loaded_bytes += grown_by(then.loaded_bytes, now.loaded_bytes);
  out.saved_bytes += grown_by(then.saved_bytes, now.saved_bytes);
}

} // namespace

void activity_totals::sort() {
  std::ranges::sort(namespaces, {}, &namespace_totals::id);
  std::ranges::sort(ranks, {}, place_of);
}

std::optional<double> activity::hit_ratio() const noexcept {
  if (asked_keys == 0)
    return std::nullopt;
  return static_cast<double>(std::min(found_keys, asked_keys)) / static_cast<double>(asked_keys);
}

double activity::load_gbps() const noexcept {
  return gigabytes_per_second(loaded_bytes, over);
}

double activity::save_gbps() const noexcept {
  return gigabytes_per_second(saved_bytes, over);
}

activity activity_between(const activity_totals& before, const activity_totals& after, duration over) {
  activity out;
  out.over = over;
  for (const auto& x : after.namespaces)
    add_namespace(out, before, x);
  for (const auto& x : after.ranks)
    add_rank(out, before, x);
  request_histogram::counts times{};
  for (std::size_t i = 0; i < times.size(); ++i)
    times[i] = grown_by(before.lookup_times[i], after.lookup_times[i]);
  out.lookup_p50 = request_histogram::quantile(times, 0.5);
  out.lookup_p99 = request_histogram::quantile(times, 0.99);
  return out;
}

activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns) {
  activity out;
  out.over = over;
  for (const auto& x : after.namespaces)
    if (x.id == ns)
      add_namespace(out, before, x);
  for (const auto& x : after.ranks)
    if (x.ns == ns)
      add_rank(out, before, x);
  return out;
}

activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns, rank_number rank) {
  activity out;
  out.over = over;
  for (const auto& x : after.ranks)
    if (x.ns == ns && x.number == rank)
      add_rank(out, before, x);
  return out;
}

void history::observe(timestamp now, std::int64_t unix_seconds, activity_totals totals) {
  if (!marks_.empty()) {
    samples_.push_back(
        {unix_seconds, activity_between(marks_.back().totals, totals, duration(now - marks_.back().at))});
    if (samples_.size() > samples_most)
      samples_.pop_front();
  }
  marks_.push_back({now, std::move(totals)});
  if (marks_.size() > marks_most)
    marks_.pop_front();
}

} // namespace troupe
