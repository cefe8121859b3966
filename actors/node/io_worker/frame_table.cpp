#include "actors/node/io_worker/frame_table.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

/// The most candidates of the policy that are tried for one frame. Only pinned pages are passed over, and there are few
/// of those.
constexpr std::size_t looks_max = 1024;

/// The number of sampled frames for the least recent use.
constexpr std::uint64_t samples = 64;

} // namespace

frame_table::frame_table(std::uint64_t slot_bytes, const eviction_factory& policy,
                         std::shared_ptr<resident_slots> resident, slot_number first_memory_slot,
                         std::uint64_t encoded_bytes)
    : first_memory_slot_(first_memory_slot), resident_(std::move(resident)) {
  of(frame_size::whole).frame_bytes = slot_bytes;
  of(frame_size::encoded).frame_bytes = encoded_bytes;
  for (auto& x : by_size_)
    x.policy = policy([this](entry_index e) { return std::hash<key_digest>{}(frames_[frame_of_[e]].page.key); });
}

void frame_table::add_extent(const extent& x, frame_size size) {
  // All extents of an arena have the same size.
  extent_bytes_ = x.bytes.size();
  for (auto& y : by_size_)
    y.per_extent = y.frame_bytes == 0 ? 0 : static_cast<std::uint32_t>(extent_bytes_ / y.frame_bytes);
  stride_ = std::max({by_size_[0].per_extent, by_size_[1].per_extent, 1U});
  const auto at = static_cast<std::size_t>(std::ranges::find(extents_, false, &place::present) - extents_.begin());
  // No earlier place is unused, so the arrays grow.
  if (at == extents_.size()) {
    extents_.emplace_back();
    const auto first = static_cast<std::ptrdiff_t>(frames_.size());
    frame absent;
    absent.state = frame_state::absent;
    frames_.resize(frames_.size() + stride_, absent);
    entry_of_.resize(frames_.size());
    frame_of_.resize(frames_.size());
    std::iota(entry_of_.begin() + first, entry_of_.end(), static_cast<entry_index>(first));
    std::iota(frame_of_.begin() + first, frame_of_.end(), static_cast<frame_number>(first));
    counts_[static_cast<std::size_t>(frame_state::absent)] += stride_;
  }
  cut(at, x, size);
}

// All frames of the place are absent.
void frame_table::cut(std::size_t at, const extent& x, frame_size size) {
  extents_[at] = {x, size, true, stride_};
  ++of(size).extents;
  for (auto f = first_of(at); f < end_of(at); ++f)
    become_free(f);
}

bool frame_table::recut_for(frame_size size) {
  const auto from = other_size(size);
  const auto least = from == frame_size::whole ? 2U : 1U;
  const auto leaving = emptying() && extents_[emptying_].size == from ? 1U : 0U;
  if (of(size).frame_bytes == 0 || extents(from) < least + leaving || free(from) < of(from).per_extent)
    return false;
  for (std::size_t at = 0; at < extents_.size(); ++at) {
    const auto& x = extents_[at];
    if (!x.present || x.size != from || x.held > 0 || at == emptying_)
      continue;
    drop_free_frames(at);
    --of(from).extents;
    cut(at, extent(x.memory), size);
    return true;
  }
  return false;
}

void frame_table::drop_free_frames(std::size_t at) {
  for (auto f = first_of(at); f < end_of(at); ++f)
    if (frames_[f].state == frame_state::free) {
      of(f).free.erase(f);
      change(f, frame_state::absent);
    }
}

std::uint64_t frame_table::lasting(frame_size size) const noexcept {
  const bool leaves = emptying() && extents_[emptying_].size == size;
  return (extents(size) - (leaves ? 1 : 0)) * of(size).per_extent;
}

std::uint64_t frame_table::free_bytes(frame_size size) const noexcept {
  return free(size) * extent_bytes_ / std::max(of(size).per_extent, 1U);
}

std::uint64_t frame_table::bytes() const noexcept {
  return by_size_[0].frames * by_size_[0].frame_bytes + by_size_[1].frames * by_size_[1].frame_bytes;
}

std::uint64_t frame_table::resident_bytes() const noexcept {
  return by_size_[0].readable * by_size_[0].frame_bytes + by_size_[1].readable * by_size_[1].frame_bytes;
}

// -- an extent that is to leave ---------------------------------------------------------------------------------------

bool frame_table::begin_emptying(frame_size size) {
  // Only one extent at a time is emptied.
  if (emptying() || extents(size) == 0)
    return false;
  const auto cost = [size](const place& x) { return std::tuple(!x.present || x.size != size, x.pinned, x.held); };
  const auto least = std::ranges::min_element(extents_, {}, cost);
  emptying_ = static_cast<std::size_t>(least - extents_.begin());
  // Free frames leave at once; frames with a page leave when the page is moved or dropped.
  drop_free_frames(emptying_);
  return true;
}

void frame_table::stop_emptying() {
  const auto at = std::exchange(emptying_, none_);
  for (auto f = first_of(at); f < end_of(at); ++f)
    if (frames_[f].state == frame_state::absent)
      become_free(f);
}

frame_number frame_table::next_to_move() noexcept {
  for (std::uint32_t i = 0; emptying() && i < stride_; ++i) {
    const auto at = (looked_at_ + i) % stride_;
    const auto f = first_of(emptying_) + at;
    const auto& x = frames_[f];
    // A client may access pinned bytes, and I/O uses the bytes of other states, so only these can be moved.
    if (x.pins > 0 || (x.state != frame_state::clean && x.state != frame_state::dirty))
      continue;
    looked_at_ = at;
    return f;
  }
  return no_frame;
}

frame_number frame_table::move(frame_number from, frame_size size) {
  const auto to = of(size).free.take();
  std::memcpy(bytes(to).data(), bytes(from).data(), bytes(from).size());
  auto& old = frames_[from];
  change(to, old.state);
  const auto turn = frames_[to].turn + 1;
  const bool stays = old.stays;
  let_stay(from, false);
  frames_[to] = old;
  frames_[to].turn = turn;
  by_slot_[old.page.where.slot] = to;
  std::swap(entry_of_[from], entry_of_[to]);
  frame_of_[entry_of_[from]] = from;
  frame_of_[entry_of_[to]] = to;
  // Its counts now belong to the new frame.
  old.held_back = false;
  old.expendable = false;
  let_stay(to, stays);
  become_free(from);
  return to;
}

frame_table::extent frame_table::take_emptied() {
  auto& x = extents_[std::exchange(emptying_, none_)];
  x.present = false;
  --of(x.size).extents;
  return x.memory;
}

// -- frames -----------------------------------------------------------------------------------------------------------

std::vector<frame_table::extent> frame_table::memory() const {
  std::vector<extent> out;
  for (const auto& x : extents_)
    if (x.present)
      out.push_back(x.memory);
  return out;
}

std::vector<frame_table::extent> frame_table::memory_not_pinned() const {
  std::vector<extent> out;
  for (const auto& x : extents_)
    // Pinned memory may be in use by a client.
    if (x.present && x.pinned == 0)
      out.push_back(x.memory);
  return out;
}

std::span<std::byte> frame_table::bytes(frame_number f) const noexcept {
  const auto& in = extents_[f / stride_];
  const auto each = of(in.size).frame_bytes;
  return in.memory.bytes.subspan((f % stride_) * each, each);
}

std::uint64_t frame_table::offset(frame_number f) const noexcept {
  const auto& in = extents_[f / stride_];
  return in.memory.offset + (f % stride_) * of(in.size).frame_bytes;
}

void frame_table::change(frame_number f, frame_state to) noexcept {
  auto& x = frames_[f];
  --counts_[static_cast<std::size_t>(x.state)];
  ++counts_[static_cast<std::size_t>(to)];
  auto& in = extents_[f / stride_];
  auto& all = of(in.size);
  all.frames += x.state == frame_state::absent ? 1 : 0;
  all.frames -= to == frame_state::absent ? 1 : 0;
  all.readable += readable(to) ? 1 : 0;
  all.readable -= readable(x.state) ? 1 : 0;
  in.absent -= x.state == frame_state::absent ? 1 : 0;
  in.absent += to == frame_state::absent ? 1 : 0;
  in.held -= holds(x.state) ? 1 : 0;
  in.held += holds(to) ? 1 : 0;
  x.state = to;
}

void frame_table::become_free(frame_number f) {
  const bool leaves = f / stride_ == emptying_;
  change(f, leaves ? frame_state::absent : frame_state::free);
  // Frames of an extent that is being emptied must not take new pages.
  if (!leaves)
    of(f).free.insert(f);
}

frame_number frame_table::take(const page_ref& page, frame_state as, frame_size size) {
  // A page evicted from an extent that is being emptied frees no frame, so eviction continues.
  while (free(size) == 0)
    // Without lasting frames, eviction frees none that may be taken.
    if (lasting(size) == 0 || !evict(size))
      return no_frame;
  const auto f = of(size).free.take();
  change(f, as);
  auto& x = frames_[f];
  x = frame{.page = page, .turn = x.turn + 1, .state = as, .used_at = now_};
  by_slot_.emplace(page.where.slot, f);
  pin(f);
  return f;
}

bool frame_table::evict(frame_size size) {
  auto& policy = *of(size).policy;
  const auto most = std::min<std::uint64_t>(looks_max, policy.size());
  for (std::uint64_t looks = 0; looks < most; ++looks) {
    std::array<entry_index, 1> next{};
    if (policy.propose(next) == 0)
      return false;
    const auto f = frame_of_[next.front()];
    if (frames_[f].pins > 0) {
      // A client may access the page, so the next proposal is tried.
      policy.kept(next.front());
      continue;
    }
    policy.left(next.front(), leave_reason::evicted);
    vacated_.push_back(f);
    if (frames_[f].expendable) {
      // The page is not in the slab, so it is lost with its frame and must be reported.
      drop_pages(f);
      return true;
    }
    detach(f);
    become_free(f);
    ++evicted_;
    return true;
  }
  return false;
}

void frame_table::hold_back(frame_number f) {
  frames_[f].held_back = true;
  ++held_back_;
  let_stay(f, false);
}

void frame_table::let_stay(frame_number f, bool stays) noexcept {
  auto& staying = of(f).staying;
  staying += stays ? 1 : 0;
  staying -= std::exchange(frames_[f].stays, stays) ? 1 : 0;
}

frame_number frame_table::next_staying(std::optional<frame_size> size, bool unwritten) noexcept {
  auto found = no_frame;
  std::uint64_t seen = 0;
  const auto all = unwritten ? count(frame_state::dirty) : size ? staying(*size) : staying();
  for (std::size_t i = 0; i < frames_.size() && seen < std::min(samples, all); ++i) {
    staying_looked_at_ = (staying_looked_at_ + 1) % static_cast<frame_number>(frames_.size());
    const auto& x = frames_[staying_looked_at_];
    const bool counts = unwritten ? x.state == frame_state::dirty && !x.held_back : x.stays;
    if (!counts || (size && size_of(staying_looked_at_) != *size))
      continue;
    ++seen;
    if (x.pins > 0)
      continue;
    if (found == no_frame || x.used_at < frames_[found].used_at)
      found = staying_looked_at_;
  }
  return found;
}

void frame_table::let_expend(std::span<const frame_number> frames) {
  // There is nothing to pass to the policy.
  if (frames.empty())
    return;
  std::array<std::vector<entry_index>, 2> entries;
  for (const auto f : frames) {
    frames_[f].expendable = true;
    entries[static_cast<std::size_t>(size_of(f))].push_back(entry_of_[f]);
  }
  expendable_ += frames.size();
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (!entries[i].empty())
      by_size_[i].policy->inserted(entries[i]);
}

void frame_table::forget_held_back(frame_number f) noexcept {
  auto& x = frames_[f];
  held_back_ -= std::exchange(x.held_back, false) ? 1 : 0;
  expendable_ -= std::exchange(x.expendable, false) ? 1 : 0;
}

void frame_table::withdraw(frame_number f) {
  // The policy has only clean and expendable frames.
  if (frames_[f].state == frame_state::clean || frames_[f].expendable)
    of(f).policy->left(entry_of_[f], leave_reason::erased);
  forget_held_back(f);
}

bool frame_table::keep(frame_number f) {
  // Other frames stay until they are written anyway.
  if (!frames_[f].held_back)
    return false;
  withdraw(f);
  let_stay(f, frames_[f].page.where.slot >= first_memory_slot_);
  return true;
}

void frame_table::drop_pages(frame_number f) {
  dropped_.push_back(frames_[f].page);
  forget_held_back(f);
  detach(f);
  become_free(f);
}

void frame_table::drop_all() {
  for (frame_number f = 0; f < frames_.size() && held_back_ > 0; ++f) {
    if (!frames_[f].held_back)
      continue;
    withdraw(f);
    vacated_.push_back(f);
    drop_pages(f);
  }
}

frame_number frame_table::in_slot(slot_number slot) const noexcept {
  const auto i = by_slot_.find(slot);
  return i == by_slot_.end() ? no_frame : i->second;
}

frame_number frame_table::find(const slot_ref& where) const noexcept {
  const auto f = in_slot(where.slot);
  return f != no_frame && frames_[f].page.where == where ? f : no_frame;
}

void frame_table::pin(frame_number f) noexcept {
  // Pinned frames are counted once, whatever their number of pins.
  if (frames_[f].pins++ > 0)
    return;
  ++pinned_;
  ++extents_[f / stride_].pinned;
}

void frame_table::unpin(frame_number f) {
  if (--frames_[f].pins > 0)
    return;
  --pinned_;
  --extents_[f / stride_].pinned;
  // The page was dropped earlier, and only the pins kept the frame.
  if (frames_[f].state == frame_state::orphaned)
    let_go(f);
}

void frame_table::touch(frame_number f) {
  frames_[f].used = true;
  frames_[f].used_at = now_;
  // The policy has only these frames; `become_clean` reports earlier uses of others.
  if (frames_[f].state == frame_state::clean || frames_[f].expendable)
    of(f).policy->touched(std::array<entry_index, 1>{entry_of_[f]}, {});
}

std::optional<timestamp> frame_table::oldest_use(std::optional<frame_size> size) const noexcept {
  std::optional<timestamp> out;
  const auto numbers = (size ? extents(*size) : extents()) * stride_;
  const auto step = std::max<std::uint64_t>(numbers / samples, 1);
  // The numbers of the extents in question, one after the other.
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    if (!extents_[i].present || (size && extents_[i].size != *size))
      continue;
    for (; at < stride_; at += step)
      if (const auto& x = frames_[first_of(i) + at]; holds(x.state)) {
        const auto used = x.pins > 0 ? now_ : x.used_at;
        out = out ? std::min(*out, used) : used;
      }
    at -= stride_;
  }
  return out;
}

void frame_table::report_resident(frame_number f, bool written) noexcept {
  if (!resident_)
    return;
  const auto slot = frames_[f].page.where.slot;
  // The mark comes first, so that the page never becomes visible with the mark of an earlier one.
  if (written)
    resident_->clear_unwritten(slot);
  else
    resident_->set_unwritten(slot);
  resident_->set(slot);
}

void frame_table::filled(frame_number f) {
  change(f, frame_state::dirty);
  let_stay(f, frames_[f].page.where.slot >= first_memory_slot_);
  report_resident(f, false);
}

void frame_table::begin_write(frame_number f) {
  change(f, frame_state::writing);
}

void frame_table::end_write(frame_number f, bool ok) {
  if (frames_[f].dropped)
    // The page was dropped during the write, so its result does not matter.
    let_go(f);
  else if (ok)
    become_clean(f);
  else
    // A failed write is repeated later: the frame has the only copy.
    change(f, frame_state::dirty);
}

void frame_table::end_read(frame_number f, bool ok) {
  if (frames_[f].dropped) {
    // The page was dropped during the read, so the bytes are not wanted any more.
    let_go(f);
  } else if (ok) {
    become_clean(f);
  } else {
    // The frame has no valid bytes.
    detach(f);
    let_go(f);
  }
}

void frame_table::become_clean(frame_number f) {
  change(f, frame_state::clean);
  report_resident(f, true);
  const std::array<entry_index, 1> one{entry_of_[f]};
  of(f).policy->inserted(one);
  // The policy did not have the frame when it was used.
  if (frames_[f].used)
    of(f).policy->touched(one, {});
}

void frame_table::detach(frame_number f) noexcept {
  if (resident_) {
    resident_->clear(frames_[f].page.where.slot);
    resident_->clear_unwritten(frames_[f].page.where.slot);
  }
  by_slot_.erase(frames_[f].page.where.slot);
  let_stay(f, false);
}

void frame_table::drop(frame_number f) {
  auto& x = frames_[f];
  detach(f);
  // The kernel may still access the bytes, so the frame stays until the I/O ends.
  if (x.state == frame_state::reading || x.state == frame_state::writing) {
    x.dropped = true;
    return;
  }
  withdraw(f);
  let_go(f);
}

void frame_table::let_go(frame_number f) {
  frames_[f].dropped = false;
  // A client may still access the bytes, so the frame stays until the last pin ends.
  if (frames_[f].pins > 0) {
    change(f, frame_state::orphaned);
    return;
  }
  become_free(f);
}

std::string frame_table::check() const {
  std::array<std::uint64_t, frame_state_count> counts{};
  std::uint64_t pinned = 0;
  std::uint64_t attached = 0;
  std::array<std::uint64_t, 2> evictable{};
  std::array<std::uint64_t, 2> free{};
  std::array<std::uint64_t, 2> staying{};
  std::uint64_t held_back = 0;
  std::uint64_t expendable = 0;
  std::array<std::uint64_t, 2> present{};
  std::array<std::uint64_t, 2> readable_ones{};
  for (frame_number f = 0; f < frames_.size(); ++f) {
    if (auto wrong = check_frame(f); !wrong.empty())
      return "frame " + std::to_string(f) + wrong;
    const auto& x = frames_[f];
    ++counts[static_cast<std::size_t>(x.state)];
    pinned += x.pins > 0 ? 1 : 0;
    attached += has_slot(x) ? 1 : 0;
    const auto size = static_cast<std::size_t>(size_of(f));
    evictable[size] += x.state == frame_state::clean || x.expendable ? 1 : 0;
    free[size] += x.state == frame_state::free ? 1 : 0;
    present[size] += x.state == frame_state::absent ? 0 : 1;
    readable_ones[size] += readable(x.state) ? 1 : 0;
    expendable += x.expendable ? 1 : 0;
    held_back += x.held_back ? 1 : 0;
    staying[size] += x.stays ? 1 : 0;
  }
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    const auto all = [&](auto is) {
      const auto first = frames_.begin() + static_cast<std::ptrdiff_t>(i * stride_);
      return static_cast<std::uint32_t>(std::count_if(first, first + stride_, is));
    };
    const auto& x = extents_[i];
    if (x.absent != all([](const frame& f) { return f.state == frame_state::absent; }) ||
        x.held != all([](const frame& f) { return holds(f.state); }) ||
        x.pinned != all([](const frame& f) { return f.pins > 0; }))
      return "extent " + std::to_string(i) + " is not counted right";
  }
  if (counts != counts_)
    return "frames are not counted right by state";
  if (pinned != pinned_)
    return "pinned frames are not counted right";
  if (held_back != held_back_ || expendable != expendable_)
    return "held back or expendable frames are not counted right";
  if (attached != by_slot_.size())
    return "the map has " + std::to_string(by_slot_.size()) + " frames, of which " + std::to_string(attached) +
           " exist";
  for (std::size_t i = 0; i < by_size_.size(); ++i) {
    const auto& all = by_size_[i];
    if (all.free.size() != free[i])
      return "the list of free frames has the wrong length";
    if (all.policy->size() != evictable[i])
      return "the policy has " + std::to_string(all.policy->size()) + " frames of " + std::to_string(evictable[i]);
    if (all.frames != present[i] || all.readable != readable_ones[i] || all.staying != staying[i])
      return "frames are not counted right by size";
  }
  return {};
}

std::string frame_table::check_frame(frame_number f) const {
  const auto& x = frames_[f];
  if (x.held_back && x.state != frame_state::dirty)
    return " is held back, though it is not dirty";
  if (x.expendable && (!x.held_back || x.pins > 0))
    return " is expendable, though it is not held back or is pinned";
  if (x.stays != (x.state == frame_state::dirty && !x.held_back && x.page.where.slot >= first_memory_slot_))
    return x.stays ? " stays, and need not" : " does not stay, though its page is nowhere else";
  if (has_slot(x) && find(x.page.where) != f)
    return " is not found under its slot";
  const bool unwritten = x.state == frame_state::dirty || x.state == frame_state::writing;
  const bool readable = unwritten || x.state == frame_state::clean;
  if (resident_ && has_slot(x) && resident_->contains(x.page.where.slot) != readable)
    return readable ? " can be read, and is not reported so" : " cannot be read, and is reported to be in memory";
  if (resident_ && has_slot(x) && resident_->is_written(x.page.where.slot) == unwritten)
    return unwritten ? " is reported to be in the slab, and is not" : " is in the slab, and is not reported so";
  if (x.dropped && x.state != frame_state::reading && x.state != frame_state::writing)
    return " is dropped, though no bytes move";
  const bool listed = by_size_[0].free.contains(f) || by_size_[1].free.contains(f);
  if (listed != (x.state == frame_state::free))
    return listed ? " is listed as free, and is not" : " is free, and is not listed";
  if (!holds(x.state) && x.pins > 0)
    return " is free and pinned";
  const auto at = f / stride_;
  const auto& in = extents_[at];
  const bool leaves = at == emptying_;
  const bool exists = in.present && f < end_of(at);
  if (!exists && x.state != frame_state::absent)
    return " is present, and its extent was given back, or has no such frame";
  if (exists && x.state == (leaves ? frame_state::free : frame_state::absent))
    return leaves ? " can take a page, and its extent is being emptied" : " is absent, and its extent is present";
  if (frame_of_[entry_of_[f]] != f)
    return " has an entry of another frame in the policy";
  if (x.state == frame_state::filling && x.pins != 1)
    return " is being filled and has " + std::to_string(x.pins) + " pins";
  if (x.state == frame_state::orphaned && x.pins == 0)
    return " is orphaned and not pinned";
  return {};
}

bool frame_table::has_slot(const frame& x) noexcept {
  return holds(x.state) && x.state != frame_state::orphaned && !x.dropped;
}

} // namespace troupe
