#include "actors/node/io_worker/memory_dialogue.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

/// How long an allocator waits for memory that may still come, and the interval at which a wish for memory is repeated.
constexpr duration growth_patience = std::chrono::seconds(1);
constexpr duration wish_pause = std::chrono::seconds(1);

/// A wish for memory stays valid until it can have been repeated, unless it is fulfilled. Otherwise memory obtained for
/// it could go to any rank.
constexpr duration wish_holds = 2 * wish_pause;

} // namespace

void memory_dialogue::grow(std::uint32_t frames, timestamp now) {
  growers_.push_back({state_.frames().lasting() + frames, now + growth_patience});
}

result<frame_table::extent> memory_dialogue::get_extent(timestamp now) {
  auto assigned = extents_->assign(options_.numa_node);
  if (!assigned) {
    if (assigned.error().code == errc::full && now >= next_wish_) {
      next_wish_ = now + wish_pause;
      wants_until_ = now + wish_holds;
      reported_.wants = false; // so that it is reported again in any case
      report(now);
    }
    return tl::unexpected(std::move(assigned.error()));
  }
  auto out = make_known(*assigned);
  if (!out)
    extents_->take_back(assigned->number);
  else
    wants_until_ = timestamp::min();
  return out;
}

result<frame_table::extent> memory_dialogue::make_known(const io::extent& x) {
  frame_table::extent out{x.number, x.offset, x.bytes, 0};
  if (store_ == nullptr)
    return out;
  auto known = store_->add_buffer(x.bytes);
  if (!known) {
    refusals_.push_back(known.error().text);
    return tl::unexpected(std::move(known.error()));
  }
  out.buffer = *known;
  return out;
}

void memory_dialogue::request_extents(timestamp now) {
  while (state_.wants_extent())
    if (const auto assigned = get_extent(now))
      state_.add_extent(*assigned, now);
    else
      state_.no_extent(assigned.error().code == errc::busy, now);
  while (!growers_.empty() && has_ended(growers_.front(), now)) {
    growers_.pop_front();
    reported_frames_ = state_.frames().lasting();
    grown_.push_back(static_cast<std::uint32_t>(reported_frames_));
  }
}

bool memory_dialogue::has_ended(const grower& x, timestamp now) {
  while (state_.frames().lasting() < x.frames) {
    const auto assigned = get_extent(now);
    if (!assigned) {
      // A rank that has memory continues without more: its pages can make room. Otherwise the request is repeated with
      // the next tick.
      const bool may_come =
          assigned.error().code == errc::busy ||
          (options_.has_broker && assigned.error().code == errc::full && state_.frames().lasting() == 0);
      return !may_come || now >= x.until;
    }
    state_.add_extent(*assigned, now);
  }
  return true;
}

bool memory_dialogue::accept(std::uint32_t number, timestamp now) {
  const auto& arena = extents_->info();
  if (state_.draining() || number >= arena.bytes / arena.extent_bytes)
    return false;
  const auto x = make_known(extents_->at(number));
  if (!x)
    return false;
  // The rank may need another extent at once.
  wants_until_ = next_wish_ = timestamp::min();
  state_.add_extent(*x, now);
  return true;
}

std::optional<result<std::uint32_t>> memory_dialogue::take_returned() {
  const auto ended = state_.take_emptying_end();
  if (!ended)
    return {};
  if (ended->code != errc::ok)
    return fail(ended->code, "the rank needs its memory, or it is still in use");
  // The store must not know the memory any more before another rank gets it.
  if (store_ != nullptr)
    store_->remove_buffer(ended->memory.buffer);
  return ended->memory.number;
}

std::optional<std::uint32_t> memory_dialogue::take_changed_frames() {
  const auto frames = state_.frames().lasting();
  if (frames == std::exchange(reported_frames_, frames))
    return {};
  return static_cast<std::uint32_t>(frames);
}

void memory_dialogue::report(timestamp now) {
  if (!options_.has_broker)
    return;
  const auto& frames = state_.frames();
  const auto oldest = frames.oldest_use().value_or(timestamp{});
  memory_report out{options_.ns,
                    options_.rank,
                    now < wants_until_,
                    static_cast<std::uint32_t>(frames.extents()),
                    frames.free_bytes(frame_size::whole) + frames.free_bytes(frame_size::encoded),
                    {}};
  if (std::tie(out.wants, out.extents, out.free_bytes, oldest) ==
      std::tie(reported_.wants, reported_.extents, reported_.free_bytes, reported_oldest_))
    return;
  reported_ = out;
  reported_oldest_ = oldest;
  if (oldest != timestamp{})
    out.oldest = std::max<duration>(now - oldest, duration{1});
  reports_.push_back(out);
}

void memory_dialogue::report_extents(timestamp now) {
  if (state_.frames().extents() != reported_.extents)
    report(now);
}

} // namespace troupe
