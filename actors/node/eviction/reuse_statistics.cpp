#include "actors/node/eviction/reuse_statistics.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t first_records = 64;
/// A key is followed until this many times the number of existing keys have been inserted.
constexpr std::uint64_t followed_for = 10;
/// The prior without observations: at any age, one key in 20 is used before its age has grown by half.
constexpr float usual_chance = 0.05F;
/// Number of keys that must be observed at an age to have the same weight as the prior.
constexpr float doubt = 128;
/// The factor by which earlier observations lose weight at each call of `learn`.
constexpr float fading = 0.98F;
/// The largest weight of other nodes' observations, relative to those made here.
constexpr float others_at_most = 2;

float believed(float used, float waited, float before) noexcept {
  return (used + doubt * before) / (used + waited + doubt);
}

} // namespace

reuse_statistics::reuse_statistics() {
  learn(0);
}

std::uint32_t reuse_statistics::find(std::uint64_t hash) noexcept {
  if (places_.empty())
    return nothing;
  auto number = place_of(hash);
  while (number != nothing && records_[number].hash != hash)
    number = records_[number].next;
  return number;
}

void reuse_statistics::enlarge() {
  const auto before = static_cast<std::uint32_t>(records_.size());
  const auto size = std::max<std::size_t>(first_records, std::size_t{2} * before);
  records_.resize(size);
  places_.assign(size, nothing);
  for (auto number = oldest_; number != nothing; number = records_[number].younger) {
    auto& place = place_of(records_[number].hash);
    records_[number].next = place;
    place = number;
  }
  for (auto number = before; number < size; ++number) {
    records_[number].next = free_;
    free_ = number;
  }
}

void reuse_statistics::add(std::uint64_t hash, std::uint32_t of, std::uint64_t now) {
  if (free_ == nothing)
    enlarge();
  const auto number = free_;
  auto& x = records_[number];
  free_ = x.next;
  auto& place = place_of(hash);
  x = {hash, now, of, place, nothing, nothing};
  place = number;
  link_youngest(number);
  ++count_;
}

void reuse_statistics::remove(std::uint32_t number) noexcept {
  unlink(number);
  auto* at = &place_of(records_[number].hash);
  while (*at != number)
    at = &records_[*at].next;
  *at = records_[number].next;
  records_[number].next = free_;
  free_ = number;
  --count_;
}

void reuse_statistics::link_youngest(std::uint32_t number) noexcept {
  records_[number].older = youngest_;
  records_[number].younger = nothing;
  (youngest_ == nothing ? oldest_ : records_[youngest_].younger) = number;
  youngest_ = number;
}

void reuse_statistics::unlink(std::uint32_t number) noexcept {
  const auto& x = records_[number];
  (x.older == nothing ? oldest_ : records_[x.older].younger) = x.younger;
  (x.younger == nothing ? youngest_ : records_[x.younger].older) = x.older;
}

void reuse_statistics::count_use(const record& x, std::uint64_t now) noexcept {
  const auto age = reuse_counts::step_of(now - x.since);
  ++seen_.used[x.of][age];
  ++seen_.ended[x.of][age];
}

void reuse_statistics::used_elsewhere(std::uint64_t hash, std::uint64_t now) {
  if (!follows(hash))
    return;
  const auto known = find(hash);
  if (known == nothing)
    return;
  count_use(records_[known], now);
  remove(known);
}

void reuse_statistics::note(std::uint64_t hash, std::uint32_t of, std::uint64_t now, std::uint64_t entries) {
  if (const auto known = find(hash); known != nothing) {
    auto& x = records_[known];
    count_use(x, now);
    x.of = of;
    x.since = now;
    unlink(known);
    link_youngest(known);
    return;
  }
  if (count_ == most_records) {
    const auto& oldest = records_[oldest_];
    const auto age = now - oldest.since;
    if (age >= followed_for * entries) {
      ++seen_.ended[oldest.of][reuse_counts::step_of(age)];
      remove(oldest_);
    } else {
      // Half of the records are dropped and not counted; on average they would have behaved like the others.
      thinning_ = 2 * thinning_ + 1;
      for (auto number = oldest_; number != nothing;) {
        const auto next = records_[number].younger;
        if (!follows(records_[number].hash))
          remove(number);
        number = next;
      }
    }
  }
  if (follows(hash) && count_ < most_records)
    add(hash, of, now);
}

void reuse_statistics::value(by_age& out, const by_age& chance) noexcept {
  by_age lengths;
  for (std::size_t b = 0; b + 1 < buckets; ++b)
    lengths[b] = static_cast<float>(reuse_counts::begin_of(b + 1) - reuse_counts::begin_of(b));
  for (std::size_t from = 0; from + 1 < buckets; ++from) {
    float best_used = 0;
    float best_kept = 1;
    float left = 1;
    float used = 0;
    float kept = 0;
    for (auto b = from; b + 1 < buckets; ++b) {
      // Used keys are used in the middle of the period on average.
      kept += left * lengths[b] * (1 - chance[b] / 2);
      used += left * chance[b];
      left *= 1 - chance[b];
      if (used * best_kept > best_used * kept) {
        best_used = used;
        best_kept = kept;
      }
    }
    out[from] = best_used / best_kept;
  }
  out[buckets - 1] = out[buckets - 2] / 2;
}

reuse_counts reuse_statistics::counts(std::uint64_t now) const noexcept {
  auto out = seen_;
  for (auto number = oldest_; number != nothing; number = records_[number].younger)
    ++out.ended[records_[number].of][reuse_counts::step_of(now - records_[number].since)];
  return out;
}

void reuse_statistics::learn(std::uint64_t now) {
  auto all = counts(now);
  if (const auto theirs = others_.seen(); theirs > 0) {
    auto others = others_;
    others *= std::min(1.0F, others_at_most * all.seen() / theirs);
    all += others;
  }
  const auto& used = all.used;
  auto waited = all.ended;
  by_age all_used{};
  by_age all_waited{};
  std::array<by_age, 2> kind_used{};
  std::array<by_age, 2> kind_waited{};
  for (std::uint32_t c = 0; c < classes; ++c) {
    const auto kind = c < unused_classes ? 0U : 1U;
    float later = 0;
    for (auto b = buckets; b-- > 0;) {
      later += std::exchange(waited[c][b], later);
      all_used[b] += used[c][b];
      all_waited[b] += waited[c][b];
      kind_used[kind][b] += used[c][b];
      kind_waited[kind][b] += waited[c][b];
    }
  }
  by_age chance{};
  for (std::uint32_t c = 0; c < classes; ++c) {
    const auto kind = c < unused_classes ? 0U : 1U;
    for (std::size_t b = 0; b < buckets; ++b) {
      const auto of_all = believed(all_used[b], all_waited[b], usual_chance);
      const auto of_kind = believed(kind_used[kind][b], kind_waited[kind][b], of_all);
      chance[b] = believed(used[c][b], waited[c][b], of_kind);
    }
    value(worth_[c], chance);
  }
  seen_ *= fading;
}

std::uint64_t reuse_statistics::resident_bytes() const noexcept {
  return sizeof(*this) + records_.capacity() * sizeof(record) + places_.capacity() * sizeof(std::uint32_t);
}

} // namespace troupe
