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
  out.memory_keys += grown_by(then.memory_keys, now.memory_keys);
  out.disk_keys += grown_by(then.disk_keys, now.disk_keys);
  out.peer_keys += grown_by(then.peer_keys, now.peer_keys);
  out.evicted_keys += grown_by(then.evicted_keys, now.evicted_keys);
}

void add_rank(activity& out, const activity_totals& before, const activity_totals::rank& now) {
  const auto found = std::ranges::lower_bound(before.ranks, place_of(now), {}, place_of);
  const bool is_known = found != before.ranks.end() && place_of(*found) == place_of(now);
  const auto then = is_known ? *found : activity_totals::rank{};
  out.loaded_bytes += grown_by(then.loaded_bytes, now.loaded_bytes);
  out.saved_bytes += grown_by(then.saved_bytes, now.saved_bytes);
  out.loaded_pages += grown_by(then.loaded_pages, now.loaded_pages);
  out.memory_pages += grown_by(then.memory_pages, now.memory_pages);
}

struct two_quantiles {
  duration p50{};
  duration p99{};
};

two_quantiles quantiles_between(const request_histogram::counts& before, const request_histogram::counts& after) {
  request_histogram::counts times{};
  for (std::size_t i = 0; i < times.size(); ++i)
    times[i] = grown_by(before[i], after[i]);
  return {request_histogram::quantile(times, 0.5), request_histogram::quantile(times, 0.99)};
}

} // namespace

void activity_totals::sort() {
  std::ranges::sort(namespaces, {}, &namespace_totals::id);
  std::ranges::sort(ranks, {}, place_of);
  std::ranges::sort(clients, {}, &client::number);
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
  out.peer_pages = grown_by(before.peer_pages, after.peer_pages);
  out.in_flight = after.in_flight;
  const auto add = [&](request_histogram::counts activity_totals::*of, duration& p50, duration& p99) {
    const auto both = quantiles_between(before.*of, after.*of);
    p50 = both.p50;
    p99 = both.p99;
  };
  add(&activity_totals::lookup_times, out.lookup_p50, out.lookup_p99);
  add(&activity_totals::memory_load_times, out.memory_load_p50, out.memory_load_p99);
  add(&activity_totals::disk_load_times, out.disk_load_p50, out.disk_load_p99);
  add(&activity_totals::save_times, out.save_p50, out.save_p99);
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

activity activity_of_client(const activity_totals& before, const activity_totals& after, duration over,
                            std::uint64_t number) {
  const auto in = [number](const activity_totals& x) {
    const auto found = std::ranges::lower_bound(x.clients, number, {}, &activity_totals::client::number);
    return found != x.clients.end() && found->number == number ? *found : activity_totals::client{};
  };
  const auto then = in(before);
  const auto now = in(after);
  activity out;
  out.over = over;
  out.loaded_bytes = grown_by(then.loaded_bytes, now.loaded_bytes);
  out.saved_bytes = grown_by(then.saved_bytes, now.saved_bytes);
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
  if (++since_long_ < marks_most || marks_.size() < marks_most)
    return;
  // The first mark of these is the last one of the sample before.
  since_long_ = 1;
  const auto& first = marks_.front();
  long_samples_.push_back(
      {unix_seconds, activity_between(first.totals, marks_.back().totals, duration(marks_.back().at - first.at))});
  if (long_samples_.size() > samples_most)
    long_samples_.pop_front();
}

} // namespace troupe
