#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/allocator_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace troupe {

/// Of one (namespace, rank).
struct allocator_options {
  /// Pages of the rank's slab file.
  std::uint32_t slots = 0;
  /// Below this many slots free or on their way to it, shards are asked to evict until there are `high_watermark`.
  std::uint32_t low_watermark = 0;
  std::uint32_t high_watermark = 0;
  /// Requests that wait for slots at one time.
  std::uint32_t max_parked = 1024;
  /// Generations begin after this one. Differs between runs over the same slab file, so that a page that an earlier run
  /// left there is not taken for one of this run.
  generation_number first_generation = 0;
  /// An io worker says when nobody writes a slot any more. Otherwise nobody can, since engines write the slab file
  /// themselves, and time has to do.
  bool fenced = true;
  /// The slot that is given out first; those before it come last.
  slot_number first_slot = 0;
  /// How long all slots rest after `close`.
  duration closed_for{};
  /// Without a fence: how long a slot rests in quarantine whose writer may be late.
  duration rest = std::chrono::seconds(10);
  /// Slots are there as far as something holds their pages, and that comes and goes: `resize` says how many may be in
  /// use, at first none. `slots` is how many there can be, the watermarks are shares of that.
  bool elastic = false;
  /// Elastic, where a slot is a place in a file that grows and never shrinks: only the first slots are there, so many
  /// of them at first.
  std::optional<std::uint32_t> there{};
  /// Until more is asked for again, after there was none.
  duration growth_retry = std::chrono::seconds(1);
  /// Of a file that grows: after so long without an answer, slots are evicted meanwhile. Whoever makes files grow may
  /// be held up by the disk of another one.
  duration growth_patience = std::chrono::milliseconds(500);
};

/// Options of an allocator with so many slots, and generations that begin at random. Watermarks are fractions of the
/// slots, and no more than eviction needs in order to be ahead of those who take: 1,024 and 2,048.
allocator_options options_for_slots(std::uint32_t slots, double low_watermark, double high_watermark);

/// The answer to one `take`.
struct take_answer {
  std::uint64_t request = 0;
  take_reply reply;
  /// ok: as many as were asked for. full: all that could be had. timeout: all there were when its deadline passed.
  /// limit_exceeded: none, since too many requests wait already.
  errc code = errc::ok;
};

/// What follows from calls, for the actor to send.
struct allocator_outbox {
  std::vector<take_answer> answers;
  /// To the io worker: say when no I/O touches these slots any more, and refuse later I/O with these generations.
  std::vector<slot_ref> fence;
  /// If not 0: ask the registry shards to evict so many slots in all, then call `eviction_done` once.
  std::uint32_t evict = 0;
  /// Elastic, if not 0: ask whether so many more slots can be had, and call `resize` once, before anything is evicted.
  std::uint32_t grow = 0;

  bool empty() const noexcept { return answers.empty() && fence.empty() && evict == 0 && grow == 0; }
};

/// The slots of one rank's slab file: which are free, reserved by a writer, live, or quarantined until no I/O touches
/// them. Plain C++; owned and called by one actor, not thread-safe.
///
///     free --take--> reserved --publish--> live --release--> quarantined --fenced--> free
///                    reserved --abort--> quarantined
///
/// Without a fence, those who give a slot back say whether it has to `rest`, which ends the quarantine by time; if it
/// does not, it is free at once.
///
/// Free slots are taken first in, first out: a fresh slab is written from its beginning to its end, slots that were
/// freed together are used again together, as neighbours in the file, and a slot rests as long as possible, so that a
/// write which is late against all rules meets a free slot rather than another key's page.
class allocator_state {
public:
  /// Memory of one slot: its place in the list of free ones, its generation and its state.
  static constexpr std::uint64_t bytes_per_slot = sizeof(slot_number) + sizeof(generation_number) + 1;

  explicit allocator_state(const allocator_options& options);

  /// Before anything else: these slots are live, as an earlier run left them, in any order and any number of calls.
  /// From the first call on no slot is given out, and requests wait, until `restored`. One code per slot: ok; stale if
  /// the slot is claimed already, which then is nobody's; out_of_range; invalid_argument for generation 0, or when
  /// slots were taken before.
  std::vector<errc> restore(std::span<const slot_ref> slots);

  /// All slots that nobody claimed, or more than one, are free. Returns claims that were ok before another one came:
  /// their pages are to be dropped. Asks for no eviction before somebody asks for slots.
  std::vector<slot_ref> restored();

  /// Asks for `count` slots; the answer comes through the outbox, exactly once. At once if
  /// there are enough and nobody waits. Else the request waits its turn, until its deadline, or until neither eviction
  /// nor quarantine can bring more in time. More slots than exist are never waited for.
  void take(std::uint64_t request, std::uint32_t count, timestamp deadline, timestamp now);

  /// One code per slot: ok; out_of_range; stale if the slot is not in the state that the call begins from, or has
  /// another generation. What is not ok changes nothing and is counted in `allocator_stats::refused`.
  /// `rest` and `now` count only where there is no fence.
  std::vector<errc> publish(std::span<const slot_ref> slots);
  std::vector<errc> abort(std::span<const slot_ref> slots, bool rest = true, timestamp now = timestamp::max());
  std::vector<errc> release(std::span<const slot_ref> slots, bool rest = true, timestamp now = timestamp::max());
  /// The io worker's answer to the outbox's `fence`.
  std::vector<errc> fenced(std::span<const slot_ref> slots);

  /// The shards' answer to the outbox's `evict`, taken together: how many slots have come back by them, be it for
  /// another rank, and whether any of them may have more. To be called after the `release` of these slots.
  void eviction_done(std::uint64_t freed, bool more);

  /// Elastic: so many slots may be in use from now on. Where more are, shards are asked to evict until it is so. The
  /// answer to the outbox's `grow`, and at any other time, when what holds the pages is taken away. Slots of a file do
  /// not become fewer.
  void resize(std::uint32_t slots);
  /// The same at any other time, when what holds the pages is taken away, or more of it is there.
  void set_limit(std::uint32_t slots);

  /// Not elastic, and none is in use: from now on all slots rest for `allocator_options::closed_for`, and requests are
  /// answered that there are none.
  void close(timestamp now);

  /// Frees what has rested, and answers requests whose deadline has passed, with what is free.
  void tick(timestamp now);

  /// When `tick` has something to do. For tests: the actor looks at short intervals.
  std::optional<timestamp> next_deadline() const;

  std::size_t parked() const noexcept { return parked_.size(); }
  allocator_stats stats() const noexcept;
  allocator_outbox take_outbox();

  enum class slot_state : std::uint8_t { free, reserved, live, quarantined };

  /// For tests and simulations.
  slot_state state_of(slot_number slot) const { return states_[slot]; }
  generation_number generation_of(slot_number slot) const { return options_.first_generation + generations_[slot]; }
  /// The first violated invariant in words, or an empty text. A full scan.
  std::string check_invariants() const;

private:
  struct parked_request {
    std::uint64_t request = 0;
    std::uint32_t count = 0;
    timestamp deadline;
  };

  struct resting_slots {
    timestamp until;
    std::vector<slot_ref> slots;
  };

  static constexpr slot_number no_slot = 0xffffffff;

  /// Zero-filled memory that is not touched before it is used: a rank of 67 million slots would block whoever makes it
  /// for seconds otherwise.
  struct give_back_memory {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  template <class T>
  using zeroed = std::unique_ptr<T[], give_back_memory>;
  template <class T>
  static zeroed<T> zeroes(std::size_t n);

  // In `successors_`: 0 is the slot behind this one in the file, as it is in a fresh slab; else there is none, or it is
  // the number less two.
  static constexpr std::uint32_t no_successor = 1;
  static constexpr std::uint32_t first_successor = 2;

  /// `moved` gets those that are ok.
  std::vector<errc> move_all(std::span<const slot_ref> slots, slot_state from, slot_state to,
                             std::vector<slot_ref>* moved = nullptr);
  std::vector<errc> give_back(std::span<const slot_ref> slots, slot_state from, bool rest, timestamp now);
  void end_rest(timestamp now);
  void end_closing(timestamp now);
  /// Slots in quarantine that are free at that time, as far as is known.
  std::uint64_t coming_until(timestamp when) const noexcept;
  std::uint64_t& count_of(slot_state state) noexcept { return counts_[static_cast<std::size_t>(state)]; }
  std::uint64_t count_of(slot_state state) const noexcept { return counts_[static_cast<std::size_t>(state)]; }
  std::uint64_t in_use() const noexcept { return exist_ - count_of(slot_state::free); }
  /// Slots that can be given out when so many of those in use have come back.
  std::uint64_t room(std::uint64_t back = 0) const noexcept {
    const auto used = in_use() - back;
    return limit_ > used ? limit_ - used : 0;
  }
  /// A watermark, of as many slots as there are now.
  std::uint64_t share(std::uint32_t of_all) const noexcept {
    return options_.slots == 0 ? 0 : std::uint64_t{of_all} * limit_ / options_.slots;
  }
  errc restore_one(slot_ref where);
  void set_generation(slot_number slot, generation_number x) noexcept {
    generations_[slot] = x - options_.first_generation;
  }
  void push_free(slot_number slot) noexcept;
  slot_ref pop_free() noexcept;
  void grant(const parked_request& to, errc code_if_fewer);
  /// Serves those who wait, in order, and asks for eviction if need be.
  void settle();
  void ask_for_eviction();
  bool may_grow() const noexcept;

  allocator_options options_;
  /// Slots that may be in use: all of them, where they are not elastic.
  std::uint64_t limit_ = 0;
  /// More was asked for, and there is no answer.
  bool growing_ = false;
  timestamp growth_asked_ = timestamp::min();
  /// Not before.
  timestamp next_growth_ = timestamp::min();
  /// When something happened last, as far as is known.
  timestamp now_ = timestamp::min();
  /// The slot behind a free one in the list, or `no_slot`.
  slot_number next_free(slot_number slot) const noexcept;

  // By slot; all zero is a fresh slab, whose slots are free one after the other and have the first generation.
  zeroed<std::uint32_t> successors_;
  /// Beyond the first one.
  zeroed<generation_number> generations_;
  zeroed<slot_state> states_;

  /// The first ones, which can be given out at all: as many as there can be, but for a file that grows.
  std::uint32_t exist_ = 0;
  /// All slots rest until then.
  std::optional<timestamp> closed_until_;
  slot_number first_free_ = no_slot;
  slot_number last_free_ = no_slot;
  std::uint64_t counts_[4] = {};
  std::uint64_t refused_ = 0;

  std::deque<parked_request> parked_;
  /// In the order of time.
  std::deque<resting_slots> resting_;
  allocator_outbox outbox_;
  bool evicting_ = false;
  /// Slots were given back since the shards were asked to evict.
  bool came_back_ = false;
  /// Below the low watermark was reached, the high one not yet.
  bool refilling_ = false;
  /// The shards said that nothing can be evicted. Asked again when somebody wants slots.
  bool exhausted_ = false;

  /// Claims are being taken.
  bool restoring_ = false;
  /// Slots have been given out.
  bool in_service_ = false;
  std::vector<slot_ref> lost_claims_;
  /// Slots that two have claimed.
  std::unordered_set<slot_number> disputed_;
};

} // namespace troupe
