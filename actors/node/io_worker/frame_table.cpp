#include "actors/node/io_worker/frame_table.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Proposals that are looked at for one frame. Only pages that somebody has pinned are passed over, and of those there
/// are few.
constexpr std::size_t looks_max = 1024;

} // namespace

frame_table::frame_table(std::uint64_t slot_bytes, eviction_factory policy) : slot_bytes_(slot_bytes) {
  policy_ = policy([this](entry_index f) { return std::hash<key_digest>{}(frames_[f].page.key); });
}

void frame_table::add_extent(const extent& x) {
  // All extents of an arena are alike.
  per_extent_ = static_cast<std::uint32_t>(x.bytes.size() / slot_bytes_);
  const auto first = static_cast<frame_number>(frames_.size());
  extents_.push_back(x);
  frames_.resize(frames_.size() + per_extent_);
  for (auto f = first; f < frames_.size(); ++f)
    free_.insert(f);
  counts_[static_cast<std::size_t>(frame_state::free)] += per_extent_;
}

std::span<std::byte> frame_table::bytes(frame_number f) const noexcept {
  return extents_[f / per_extent_].bytes.subspan((f % per_extent_) * slot_bytes_, slot_bytes_);
}

std::uint64_t frame_table::offset(frame_number f) const noexcept {
  return extents_[f / per_extent_].offset + (f % per_extent_) * slot_bytes_;
}

void frame_table::change(frame_number f, frame_state to) noexcept {
  auto& x = frames_[f];
  --counts_[static_cast<std::size_t>(x.state)];
  ++counts_[static_cast<std::size_t>(to)];
  x.state = to;
}

frame_number frame_table::take(const page_ref& page, frame_state as) {
  auto f = no_frame;
  if (!free_.empty()) {
    f = free_.take();
  } else if (f = evict(); f == no_frame) {
    return no_frame;
  }
  change(f, as);
  auto& x = frames_[f];
  x = frame{page, 0, x.turn + 1, as, false, false, false, false};
  by_slot_.emplace(page.where.slot, f);
  pin(f);
  return f;
}

frame_number frame_table::evict() {
  const auto most = std::min<std::uint64_t>(looks_max, policy_->size());
  for (std::uint64_t looks = 0; looks < most; ++looks) {
    std::array<entry_index, 1> next{};
    if (policy_->propose(next) == 0)
      return no_frame;
    const auto f = next.front();
    if (frames_[f].pins > 0) {
      policy_->kept(f);
      continue;
    }
    policy_->left(f, leave_reason::evicted);
    if (frames_[f].expendable) {
      give_up(f);
      return f;
    }
    detach(f);
    change(f, frame_state::free);
    ++evicted_;
    return f;
  }
  return no_frame;
}

void frame_table::hold_back(frame_number f) {
  frames_[f].held_back = true;
  ++held_back_;
}

void frame_table::let_expend(std::span<const frame_number> frames) {
  if (frames.empty())
    return;
  for (const auto f : frames)
    frames_[f].expendable = true;
  expendable_ += frames.size();
  policy_->inserted(frames);
}

void frame_table::forget_held_back(frame_number f) noexcept {
  auto& x = frames_[f];
  held_back_ -= std::exchange(x.held_back, false) ? 1 : 0;
  expendable_ -= std::exchange(x.expendable, false) ? 1 : 0;
}

void frame_table::withdraw(frame_number f) {
  if (frames_[f].state == frame_state::clean || frames_[f].expendable)
    policy_->left(f, leave_reason::erased);
  forget_held_back(f);
}

bool frame_table::keep(frame_number f) {
  if (!frames_[f].held_back)
    return false;
  withdraw(f);
  return true;
}

void frame_table::give_up(frame_number f) {
  given_up_.push_back(frames_[f].page);
  forget_held_back(f);
  detach(f);
  change(f, frame_state::free);
}

void frame_table::give_up_all() {
  for (frame_number f = 0; f < frames_.size() && held_back_ > 0; ++f) {
    if (!frames_[f].held_back)
      continue;
    withdraw(f);
    give_up(f);
    free_.insert(f);
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
  if (frames_[f].pins++ == 0)
    ++pinned_;
}

void frame_table::unpin(frame_number f) {
  if (--frames_[f].pins > 0)
    return;
  --pinned_;
  if (frames_[f].state == frame_state::orphaned)
    let_go(f);
}

void frame_table::touch(frame_number f) {
  frames_[f].used = true;
  if (frames_[f].state == frame_state::clean || frames_[f].expendable)
    policy_->touched(std::array<entry_index, 1>{f}, {});
}

void frame_table::filled(frame_number f) {
  change(f, frame_state::dirty);
}

void frame_table::begin_write(frame_number f) {
  change(f, frame_state::writing);
}

void frame_table::end_write(frame_number f, bool ok) {
  if (frames_[f].dropped)
    let_go(f);
  else if (ok)
    become_clean(f);
  else
    change(f, frame_state::dirty);
}

void frame_table::end_read(frame_number f, bool ok) {
  if (frames_[f].dropped) {
    let_go(f);
  } else if (ok) {
    become_clean(f);
  } else {
    detach(f);
    let_go(f);
  }
}

void frame_table::become_clean(frame_number f) {
  change(f, frame_state::clean);
  const std::array<entry_index, 1> one{f};
  policy_->inserted(one);
  if (frames_[f].used)
    policy_->touched(one, {});
}

void frame_table::detach(frame_number f) noexcept {
  by_slot_.erase(frames_[f].page.where.slot);
}

void frame_table::drop(frame_number f) {
  auto& x = frames_[f];
  detach(f);
  if (x.state == frame_state::reading || x.state == frame_state::writing) {
    x.dropped = true;
    return;
  }
  withdraw(f);
  let_go(f);
}

void frame_table::let_go(frame_number f) {
  frames_[f].dropped = false;
  if (frames_[f].pins > 0) {
    change(f, frame_state::orphaned);
    return;
  }
  change(f, frame_state::free);
  free_.insert(f);
}

std::string frame_table::check() const {
  std::array<std::uint64_t, frame_state_count> counts{};
  std::uint64_t pinned = 0;
  std::uint64_t attached = 0;
  std::uint64_t evictable = 0;
  std::uint64_t held_back = 0;
  std::uint64_t expendable = 0;
  for (frame_number f = 0; f < frames_.size(); ++f) {
    const auto& x = frames_[f];
    const auto name = "frame " + std::to_string(f);
    ++counts[static_cast<std::size_t>(x.state)];
    pinned += x.pins > 0 ? 1 : 0;
    const bool gone = x.state == frame_state::free || x.state == frame_state::orphaned || x.dropped;
    attached += gone ? 0 : 1;
    evictable += x.state == frame_state::clean || x.expendable ? 1 : 0;
    expendable += x.expendable ? 1 : 0;
    held_back += x.held_back ? 1 : 0;
    if (x.held_back && x.state != frame_state::dirty)
      return name + " is held back, though it is not dirty";
    if (x.expendable && (!x.held_back || x.pins > 0))
      return name + " is expendable, though it is not held back or somebody has it pinned";
    if (!gone && find(x.page.where) != f)
      return name + " is not found under its slot";
    if (x.dropped && x.state != frame_state::reading && x.state != frame_state::writing)
      return name + " is dropped, though no bytes move";
    if (free_.contains(f) != (x.state == frame_state::free))
      return name + (free_.contains(f) ? " is taken for free" : " is free, and nobody can take it");
    if (x.state == frame_state::free && x.pins > 0)
      return name + " is free and pinned";
    if (x.state == frame_state::filling && x.pins != 1)
      return name + " is being filled and has " + std::to_string(x.pins) + " pins";
    if (x.state == frame_state::orphaned && x.pins == 0)
      return name + " is orphaned and nobody has it pinned";
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
  if (free_.size() != count(frame_state::free))
    return "the list of free frames has another length than there are";
  if (policy_->size() != evictable)
    return "the policy has " + std::to_string(policy_->size()) + " frames of " + std::to_string(evictable);
  return {};
}

} // namespace troupe
