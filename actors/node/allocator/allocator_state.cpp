#include "actors/node/allocator/allocator_state.hpp"

#include "io/slab/beyond_slab.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>
#include <random>
#include <utility>

namespace troupe {

allocator_options options_for_slots(std::uint32_t slots, double low_watermark, double high_watermark) {
  const auto share = [&](double fraction, double most) {
    return static_cast<std::uint32_t>(std::min(std::ceil(fraction * static_cast<double>(slots)), most));
  };
  allocator_options out;
  out.slots = slots;
  out.low_watermark = share(low_watermark, 1024);
  out.high_watermark = share(high_watermark, 2048);
  // Small enough that generations do not wrap around within the life of a disk.
  out.first_generation = std::random_device{}() & 0x3fffffffU;
  return out;
}

template <class T>
allocator_state::zeroed<T> allocator_state::zeroes(std::size_t n) {
  auto* const memory = static_cast<T*>(std::calloc(std::max<std::size_t>(1, n), sizeof(T)));
  if (memory == nullptr)
    throw std::bad_alloc();
  return zeroed<T>(memory);
}

allocator_state::allocator_state(const allocator_options& options)
    : options_(options), successors_(zeroes<std::uint32_t>(std::size_t{options.slots} + options.memory_slots)),
      generations_(zeroes<generation_number>(std::size_t{options.slots} + options.memory_slots)),
      states_(zeroes<slot_state>(std::size_t{options.slots} + options.memory_slots)) {
  static_assert(static_cast<int>(slot_state::free) == 0);
  const auto all = options_.slots + options_.memory_slots;
  options_.low_watermark = std::min(options_.low_watermark, all);
  options_.high_watermark = std::clamp(options_.high_watermark, options_.low_watermark, all);
  memory_.first = options_.slots;
  slab_.there = std::min(options_.there.value_or(options_.slots), options_.slots);
  slab_.count(slot_state::free) = slab_.there;
  slab_.limit = options_.elastic && !options_.there ? 0 : slab_.there;
  file_.room = slab_.there;
  file_.granted = options_.granted > 0 ? std::min(options_.granted, slab_.there) : slab_.there;
  if (slab_.there == 0)
    return;
  slab_.first_free = options_.first_slot < slab_.there ? options_.first_slot : 0;
  slab_.last_free = slab_.first_free == 0 ? slab_.there - 1 : slab_.first_free - 1;
  if (slab_.first_free != 0)
    successors_[slab_.there - 1] = first_successor;
  successors_[slab_.last_free] = no_successor;
}

std::vector<errc> allocator_state::restore(std::span<const slot_ref> slots) {
  if (!restoring_ && !in_service_) {
    restoring_ = true;
    slab_.first_free = slab_.last_free = no_slot;
    slab_.count(slot_state::free) = 0;
  }
  std::vector<errc> results;
  results.reserve(slots.size());
  for (const auto& where : slots)
    results.push_back(restore_one(where));
  return results;
}

errc allocator_state::restore_one(slot_ref where) {
  if (!restoring_ || where.generation == 0)
    return errc::invalid_argument;
  // Pages of memory slots ended with the process that had them.
  if (where.slot >= slab_.there)
    return errc::out_of_range;
  auto& state = states_[where.slot];
  const auto generation = generation_of(where.slot);
  if (state == slot_state::live) {
    // At most one of the two is right, and nothing tells which: generations of different runs start at random.
    lost_claims_.push_back({where.slot, generation});
    disputed_.insert(where.slot);
    state = slot_state::free;
    --slab_.count(slot_state::live);
    set_generation(where.slot, std::max(options_.first_generation, generation));
  }
  if (disputed_.contains(where.slot)) {
    // A claimed generation is never used again.
    set_generation(where.slot, std::max(generation_of(where.slot), where.generation));
    return errc::stale;
  }
  state = slot_state::live;
  set_generation(where.slot, where.generation);
  ++slab_.count(slot_state::live);
  return errc::ok;
}

std::vector<slot_ref> allocator_state::restored() {
  if (std::exchange(restoring_, false)) {
    for (slot_number slot = 0; slot < slab_.there; ++slot)
      if (states_[slot] == slot_state::free)
        push_free(slot);
    disputed_.clear();
    // Nothing is evicted before the first request. Other ranks are still being restored: evicting a key now would free
    // slots that their allocators do not know yet, and would then keep as live for ever.
    if (!parked_.empty())
      settle();
  }
  in_service_ = true;
  return std::exchange(lost_claims_, {});
}

std::vector<slot_ref> allocator_state::free_slots() const {
  std::vector<slot_ref> out;
  out.reserve(slab_.count(slot_state::free));
  for (slot_number slot = 0; slot < slab_.there; ++slot)
    if (states_[slot] == slot_state::free)
      out.push_back({slot, generation_of(slot)});
  return out;
}

slot_number allocator_state::next_free(slot_number slot) const noexcept {
  const auto successor = successors_[slot];
  if (successor == 0)
    return slot + 1 < options_.slots ? slot + 1 : no_slot;
  return successor == no_successor ? no_slot : successor - first_successor;
}

void allocator_state::push_free(slot_number slot) noexcept {
  auto& kind = kind_of(slot);
  successors_[slot] = no_successor;
  if (kind.last_free == no_slot)
    kind.first_free = slot;
  else
    successors_[kind.last_free] = slot + first_successor;
  kind.last_free = slot;
  ++kind.count(slot_state::free);
}

slot_ref allocator_state::pop_free(slot_kind& of) noexcept {
  in_service_ = true;
  // Only memory slots are made when they are first needed.
  if (of.count(slot_state::free) == 0)
    push_free(of.first + of.there++);
  const auto slot = of.first_free;
  of.first_free = next_free(slot);
  if (of.first_free == no_slot)
    of.last_free = no_slot;
  --of.count(slot_state::free);
  auto generation = generation_of(slot) + 1;
  if (generation == 0) // 0 is never granted
    ++generation;
  set_generation(slot, generation);
  states_[slot] = slot_state::reserved;
  ++of.count(slot_state::reserved);
  return {slot, generation};
}

void allocator_state::grant(const parked_request& to, errc code_if_fewer) {
  // The slots of the slab are not listed before all claims are known, and no others are granted before them.
  const auto n = restoring_ ? 0 : std::min<std::uint64_t>(to.count, room());
  take_answer answer;
  answer.request = to.request;
  answer.code = n == to.count ? errc::ok : code_if_fewer;
  answer.reply.slots.items.reserve(n);
  const auto of_slab = std::min(n, slab_.room());
  for (std::uint64_t i = 0; i < n; ++i)
    answer.reply.slots.items.push_back(pop_free(i < of_slab ? slab_ : memory_));
  outbox_.answers.push_back(std::move(answer));
}

void allocator_state::take(std::uint64_t request, std::uint32_t count, timestamp deadline, timestamp now) {
  now_ = std::max(now_, now);
  file_.was_asked = true;
  end_closing(now);
  if (count == 0) {
    outbox_.answers.push_back({request, {}, errc::ok});
    return;
  }
  if (parked_.size() >= options_.max_parked && (!parked_.empty() || room() < count)) {
    outbox_.answers.push_back({request, {}, errc::limit_exceeded});
    return;
  }
  exhausted_ = false; // a lease or a reservation may have ended meanwhile
  parked_.push_back({request, count, deadline});
  settle();
  tick(now);
}

void allocator_state::settle() {
  if (restoring_)
    return;
  while (!parked_.empty()) {
    const auto& head = parked_.front();
    // A page is better off on the disk than in memory only, so growth is tried first.
    const auto available = slab_.room() + (may_grow() || awaits_growth() ? 0 : memory_.room());
    const bool enough = available >= head.count;
    // No more slots will come, neither by eviction nor, in time, out of quarantine.
    const bool no_more = !slab_growth_.asked && !may_grow() && !frame_growth_.asked && !may_grow_frames(head.count);
    const bool hopeless = exhausted_ && coming_until(head.deadline) == 0 && no_more;
    // The same if all existing slots are free.
    const bool all_there = in_use() == 0 && no_more;
    if (!enough && !hopeless && !all_there)
      break;
    grant(head, errc::full);
    parked_.pop_front();
  }
  ask_for_eviction();
}

void allocator_state::ask_for_eviction() {
  const auto high = share(options_.high_watermark);
  const auto low = share(options_.low_watermark);
  if (coming() < low)
    refilling_ = true;
  if (coming() >= high)
    refilling_ = false;
  const auto missing = [](std::uint64_t wanted, std::uint64_t there) { return wanted > there ? wanted - there : 0; };
  std::uint64_t asked_for = 0;
  auto last_deadline = timestamp::min();
  for (const auto& p : parked_) {
    asked_for += p.count;
    last_deadline = std::max(last_deadline, p.deadline);
  }
  // Slots that rest beyond the last deadline do not help the waiting requests.
  const auto in_time = options_.fenced ? coming() : slab_.room(coming_until(last_deadline));
  // Slots above the limit must be emptied, with or without a request.
  const auto evict = std::max({missing(std::min(refilling_ ? high : 0, limit()), coming()),
                               missing(std::min(asked_for, limit()), in_time), slab_.too_many()});
  if (may_grow() && slab_.too_many() == 0) {
    // Whether memory has room does not matter: a page is better off on the disk.
    const auto slab_coming = slab_.coming();
    const auto slab_in_time = options_.fenced ? slab_coming : in_time;
    ask_for_growth(std::max(missing(refilling_ || slab_coming < low ? std::min(high, slab_.limit) : 0, slab_coming),
                            missing(asked_for, slab_in_time)));
  }
  const auto wanted = std::max(evict, missing(asked_for, in_time));
  if (wanted > 0 && !slab_growth_.asked && may_grow_frames(wanted)) {
    frame_growth_.asked = true;
    outbox_.grow_frames = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, options_.memory_slots));
  }
  if (evicting_ || exhausted_ || awaits_growth() || frame_growth_.asked || evict == 0)
    return;
  outbox_.evict = static_cast<std::uint32_t>(evict);
  evicting_ = true;
  came_back_ = false;
}

void allocator_state::ask_for_growth(std::uint64_t wanted) {
  if (wanted == 0)
    return;
  slab_growth_.asked = true;
  slab_growth_.asked_at = now_;
  outbox_.grow = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, options_.slots - grown_so_far()));
  outbox_.grow_within_room =
      options_.there && file_.room > slab_.there ? std::min(outbox_.grow, file_.room - slab_.there) : 0;
}

bool allocator_state::awaits_growth() const noexcept {
  return slab_growth_.asked && (!options_.there || now_ < later(slab_growth_.asked_at, options_.growth_patience));
}

void allocator_state::eviction_done(std::uint64_t freed, bool more) {
  evicting_ = false;
  // Slots that came back meanwhile were evicted for another rank. They may be the children that kept their parents.
  exhausted_ = freed == 0 && !more && !came_back_;
  settle();
}

bool allocator_state::may_grow() const noexcept {
  return options_.elastic && slab_growth_.may_ask(now_) && grown_so_far() < options_.slots;
}

bool allocator_state::may_grow_frames(std::uint64_t wanted) const noexcept {
  if (memory_.limit >= options_.memory_slots || !frame_growth_.may_ask(now_))
    return false;
  // Beside a large slab most of the memory would be for copies of its pages, for which other ranks lose pages.
  return 2 * (memory_slots_with(frames_ + wanted) - memory_.limit) >= wanted;
}

std::uint64_t allocator_state::memory_slots_with(std::uint64_t frames) const noexcept {
  const auto slots = options_.expected_slots > 0 ? options_.expected_slots : options_.slots;
  return std::min<std::uint64_t>(io::pages_beyond_slab(frames, slots), options_.memory_slots);
}

void allocator_state::resize(std::uint32_t slots) {
  if (options_.there)
    return grown(slots, slots);
  slab_growth_.answered(slots > slab_.limit, now_, options_.growth_retry);
  set_limit(slots);
}

void allocator_state::grown(std::uint32_t slots, std::uint32_t granted) {
  slab_growth_.answered(slots > slab_.there || granted > file_.granted, now_, options_.growth_retry);
  while (slab_.there < std::min(slots, options_.slots))
    push_free(slab_.there++);
  // There is room for as many more, at least: the io worker has not counted it yet.
  file_.room += std::max(granted, file_.granted) - file_.granted;
  file_.granted = std::max(granted, file_.granted);
  limit_file();
}

void allocator_state::set_room(std::uint32_t pages) {
  file_.room = pages;
  limit_file();
}

void allocator_state::limit_file() {
  const auto limit = std::min(slab_.there, std::max(file_.granted, file_.room));
  // As after restoring, nothing is evicted before the first request.
  if (file_.was_asked)
    set_limit(limit);
  else
    slab_.limit = limit;
}

void allocator_state::set_limit(std::uint32_t slots) {
  slab_.limit = std::min(slots, options_.slots);
  // An earlier failure to evict may not hold any more.
  exhausted_ = exhausted_ && slab_.in_use() <= slab_.limit;
  settle();
}

void allocator_state::frames_grown(std::uint32_t frames) {
  frame_growth_.answered(frames > frames_, now_, options_.growth_retry);
  set_frames(frames);
}

void allocator_state::set_frames(std::uint32_t frames) {
  frames_ = frames;
  memory_.limit = memory_slots_with(frames);
  settle();
}

void allocator_state::close(timestamp now) {
  closed_until_ = later(now, options_.closed_for);
  set_limit(0);
}

void allocator_state::end_closing(timestamp now) {
  if (!closed_until_ || now < *closed_until_)
    return;
  closed_until_.reset();
  set_limit(options_.slots);
}

std::vector<errc> allocator_state::move_all(std::span<const slot_ref> slots, slot_state from, slot_state to,
                                            std::vector<slot_ref>* moved) {
  std::vector<errc> results;
  results.reserve(slots.size());
  for (const auto& where : slots) {
    auto& kind = kind_of(where.slot);
    if (!exists(where.slot)) {
      results.push_back(errc::out_of_range);
    } else if (states_[where.slot] != from || generation_of(where.slot) != where.generation) {
      results.push_back(errc::stale);
    } else {
      states_[where.slot] = to;
      --kind.count(from);
      if (to == slot_state::free)
        push_free(where.slot);
      else
        ++kind.count(to);
      if (moved != nullptr)
        moved->push_back(where);
      results.push_back(errc::ok);
      continue;
    }
    ++refused_;
  }
  return results;
}

std::vector<errc> allocator_state::give_back(std::span<const slot_ref> slots, slot_state from, bool rest,
                                             timestamp now) {
  const bool at_once = !options_.fenced && !rest;
  std::vector<slot_ref> moved;
  auto results = move_all(slots, from, at_once ? slot_state::free : slot_state::quarantined, &moved);
  came_back_ = came_back_ || !moved.empty();
  if (options_.fenced)
    outbox_.fence.insert(outbox_.fence.end(), moved.begin(), moved.end());
  else if (rest && !moved.empty()) // in order of time, because all rest equally long
    resting_.push_back({later(now, options_.rest), std::move(moved)});
  settle();
  return results;
}

void allocator_state::end_rest(timestamp now) {
  for (; !resting_.empty() && resting_.front().until <= now; resting_.pop_front())
    move_all(resting_.front().slots, slot_state::quarantined, slot_state::free);
}

std::uint64_t allocator_state::coming_until(timestamp when) const noexcept {
  if (options_.fenced) // a fence takes only as long as the I/O that it waits for
    return count_of(slot_state::quarantined);
  std::uint64_t n = 0;
  for (const auto& x : resting_) {
    if (x.until > when)
      break;
    n += x.slots.size();
  }
  return n;
}

std::vector<errc> allocator_state::publish(std::span<const slot_ref> slots) {
  auto results = move_all(slots, slot_state::reserved, slot_state::live);
  settle();
  return results;
}

std::vector<errc> allocator_state::abort(std::span<const slot_ref> slots, bool rest, timestamp now) {
  return give_back(slots, slot_state::reserved, rest, now);
}

std::vector<errc> allocator_state::release(std::span<const slot_ref> slots, bool rest, timestamp now) {
  return give_back(slots, slot_state::live, rest, now);
}

std::vector<errc> allocator_state::fenced(std::span<const slot_ref> slots) {
  auto results = move_all(slots, slot_state::quarantined, slot_state::free);
  settle();
  return results;
}

void allocator_state::tick(timestamp now) {
  now_ = std::max(now_, now);
  end_closing(now);
  const auto resting = resting_.size();
  end_rest(now);
  if (resting_.size() < resting)
    settle();
  retry_eviction();
  bool served = false;
  for (auto p = parked_.begin(); p != parked_.end();) {
    if (p->deadline > now) {
      ++p;
      continue;
    }
    grant(*p, errc::timeout);
    p = parked_.erase(p);
    served = true;
  }
  if (served || ((options_.elastic || options_.memory_slots > 0) && !parked_.empty()))
    settle();
}

// Pages of a sparse file may wait for the disk space of those that are to be evicted, without any further request.
void allocator_state::retry_eviction() {
  if (!exhausted_ || slab_.too_many() == 0 || now_ < retry_eviction_at_)
    return;
  retry_eviction_at_ = later(now_, options_.growth_retry);
  exhausted_ = false;
  settle();
}

std::optional<timestamp> allocator_state::next_deadline() const {
  std::optional<timestamp> first;
  if (!resting_.empty())
    first = resting_.front().until;
  if (closed_until_ && (!first || *closed_until_ < *first))
    first = closed_until_;
  for (const auto& x : parked_)
    if (!first || x.deadline < *first)
      first = x.deadline;
  return first;
}

allocator_stats allocator_state::stats() const noexcept {
  allocator_stats s;
  s.total = std::max(slab_.limit, slab_.in_use());
  s.free = room();
  s.reserved = count_of(slot_state::reserved);
  s.live = count_of(slot_state::live);
  s.quarantined = count_of(slot_state::quarantined);
  s.refused = refused_;
  if (!options_.elastic) {
    // Existing slots that may not be used yet wait like those that rest.
    s.quarantined += slab_.there - s.total;
    s.total = slab_.there;
  }
  s.beyond_slab = std::max(memory_.limit, memory_.in_use());
  s.total += s.beyond_slab;
  return s;
}

allocator_outbox allocator_state::take_outbox() {
  return std::exchange(outbox_, {});
}

std::string allocator_state::check_invariants() const {
  if (restoring_)
    return {};
  for (const auto* kind : {&slab_, &memory_}) {
    std::array<std::uint64_t, 4> counted{};
    for (auto slot = kind->first; slot < kind->first + kind->there; ++slot) {
      ++counted[static_cast<std::size_t>(states_[slot])];
      if (states_[slot] != slot_state::free && generation_of(slot) == 0)
        return "slot " + std::to_string(slot) + " was granted with generation 0";
    }
    if (counted != kind->counts)
      return "the counts of slots by state are wrong";
    if (auto wrong = check_free_list(*kind); !wrong.empty())
      return wrong;
  }
  if (memory_.there > options_.memory_slots)
    return "there are more memory slots than there may be";
  std::uint64_t resting = 0;
  for (const auto& x : resting_)
    for (const auto& where : x.slots) {
      ++resting;
      if (states_[where.slot] != slot_state::quarantined || generation_of(where.slot) != where.generation)
        return "slot " + std::to_string(where.slot) + " rests but is not in quarantine";
    }
  if (!options_.fenced && resting != count_of(slot_state::quarantined))
    return std::to_string(resting) + " slots rest, but " + std::to_string(count_of(slot_state::quarantined)) +
           " are in quarantine";
  return {};
}

std::string allocator_state::check_free_list(const slot_kind& kind) const {
  std::unordered_set<slot_number> listed;
  auto last = no_slot;
  for (auto slot = kind.first_free; slot != no_slot; slot = next_free(slot)) {
    if (slot < kind.first || slot >= kind.first + kind.there || states_[slot] != slot_state::free ||
        !listed.insert(slot).second)
      return "slot " + std::to_string(slot) + " is in the free list twice, or is not free";
    last = slot;
  }
  const auto free = kind.count(slot_state::free);
  if (listed.size() != free || last != kind.last_free)
    return "the free list has " + std::to_string(listed.size()) + " slots, " + std::to_string(free) +
           " are counted as free";
  return {};
}

} // namespace troupe
