#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/allocator_messages.hpp"

#include <array>
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

/// Options of the allocator of one (namespace, rank).
struct allocator_options {
  /// Pages of the rank's slab file.
  std::uint32_t slots = 0;
  /// Further slots, numbered after those of the slab, for pages that stay in memory only. They are granted when the
  /// slab has none to grant and does not grow, as far as `set_frames` allows. Only with a fence.
  std::uint32_t memory_slots = 0;
  /// How many slots of the slab the rank can count on, by which its memory is divided; 0: all.
  std::uint32_t expected_slots = 0;
  /// If fewer slots than this are free or becoming free, shards are asked to evict until there are `high_watermark`.
  std::uint32_t low_watermark = 0;
  std::uint32_t high_watermark = 0;
  /// Requests that wait for slots at one time.
  std::uint32_t max_parked = 1024;
  /// Generations start after this one. It differs between runs over the same slab file, so that a page left by an
  /// earlier run is not mistaken for one of this run.
  generation_number first_generation = 0;
  /// Whether an io worker reports when a slot is not written any more. Otherwise engines write the slab file
  /// themselves, and slots rest for a time instead.
  bool fenced = true;
  /// The slot that is granted first; those before it come last.
  slot_number first_slot = 0;
  /// How long all slots rest after `close`.
  duration closed_for{};
  /// Without a fence: how long a slot whose writer may be late rests in quarantine.
  duration rest = std::chrono::seconds(10);
  /// Whether slots depend on memory for their pages, which comes and goes: `resize` sets how many may be in use, at
  /// first none. `slots` is the largest number, and the watermarks are shares of it.
  bool elastic = false;
  /// For an elastic allocator whose slots are places in a file that grows and never shrinks: how many slots exist at
  /// first.
  std::optional<std::uint32_t> there{};
  /// For a file that grows: for how many whole pages it has disk space at first; 0: for all slots that exist. Slots of
  /// a sparse file may be more: then they are used as far as `set_room` allows.
  std::uint32_t granted = 0;
  /// How long to wait before growth is requested again after a request that brought nothing.
  duration growth_retry = std::chrono::seconds(1);
  /// For a file that grows: how long to wait for growth before slots are evicted meanwhile. The actor that grows files
  /// may be delayed by the disk of another file.
  duration growth_patience = std::chrono::milliseconds(500);
};

/// Options of an allocator with `slots` slots and generations that start at random. Watermarks are fractions of the
/// slots, at most what eviction needs to stay ahead of requests: 1,024 and 2,048.
allocator_options options_for_slots(std::uint32_t slots, double low_watermark, double high_watermark);

/// The answer to one `take`.
struct take_answer {
  std::uint64_t request = 0;
  take_reply reply;
  /// ok: as many as requested. full: all that can be granted. timeout: all that were free when the deadline passed.
  /// limit_exceeded: none, because too many requests wait already.
  errc code = errc::ok;
};

/// Messages that follow from calls, for the actor to send.
struct allocator_outbox {
  std::vector<take_answer> answers;
  /// For the io worker: it reports when no I/O touches these slots any more, and refuses later I/O with these
  /// generations.
  std::vector<slot_ref> fence;
  /// If not 0: the registry shards are asked to evict this many slots in total; then `eviction_done` is called once.
  std::uint32_t evict = 0;
  /// For an elastic allocator, if not 0: this many more slots are requested. `resize` is then called once, before
  /// anything is evicted.
  std::uint32_t grow = 0;
  /// How many of these need no more disk space.
  std::uint32_t grow_within_room = 0;
  /// With memory slots, if not 0: this many more frames are requested from the io worker. `frames_grown` is then called
  /// once, before anything is evicted.
  std::uint32_t grow_frames = 0;

  bool empty() const noexcept {
    return answers.empty() && fence.empty() && evict == 0 && grow == 0 && grow_frames == 0;
  }
};

/// The slots of one rank's slab file: free, reserved by a writer, live, or quarantined until no I/O touches them. Plain
/// C++; owned and called by one actor, not thread-safe.
///
///     free --take--> reserved --publish--> live --release--> quarantined --fenced--> free
///                    reserved --abort--> quarantined
///
/// Without a fence, the caller that returns a slot says whether it must `rest`: then time ends the quarantine,
/// otherwise the slot is free at once.
///
/// Free slots are granted first in, first out. A fresh slab is written from its beginning to its end. Slots that were
/// freed together are reused together, as neighbours in the file. A slot rests as long as possible, so that a write
/// that is late against all rules meets a free slot rather than another key's page.
///
/// Memory slots, if there are any, are beyond the slab: their pages are in memory only. A request gets slots of the
/// slab first, so that what survives a restart is the beginning of a prefix. Which keys are evicted does not depend on
/// the kind of their slots. If memory is revoked, nothing is evicted for it: the io worker drops the pages that have
/// lost their place, and no memory slot is granted until there is room again.
class allocator_state {
public:
  /// Memory of one slot: its place in the free list, its generation and its state.
  static constexpr std::uint64_t bytes_per_slot = sizeof(slot_number) + sizeof(generation_number) + 1;

  explicit allocator_state(const allocator_options& options);

  /// Restores live slots of an earlier run, before anything else, in any order and any number of calls. From the first
  /// call until `restored`, no slot is granted and requests wait. One code per slot: ok; stale if the slot is claimed
  /// already, in which case no claim counts; out_of_range; invalid_argument for generation 0, or if slots were granted
  /// before.
  std::vector<errc> restore(std::span<const slot_ref> slots);

  /// Ends restoring: all slots with no claim, or more than one, are free. Returns claims that were ok before another
  /// one came; their pages must be dropped. Requests no eviction before the first request for slots.
  std::vector<slot_ref> restored();

  /// The slots of the slab that are free, with the generation that each had last.
  std::vector<slot_ref> free_slots() const;

  /// Requests `count` slots; the answer comes through the outbox, exactly once. It comes at once if there are enough
  /// and no other request waits. Otherwise the request waits its turn until its deadline, or until neither eviction nor
  /// quarantine can free more in time. It never waits for more slots than exist.
  void take(std::uint64_t request, std::uint32_t count, timestamp deadline, timestamp now);

  /// One code per slot: ok; out_of_range; stale if the slot is not in the state that the call starts from, or has
  /// another generation. A refused slot is unchanged and is counted in `allocator_stats::refused`. `rest` and `now`
  /// matter only without a fence.
  std::vector<errc> publish(std::span<const slot_ref> slots);
  std::vector<errc> abort(std::span<const slot_ref> slots, bool rest = true, timestamp now = timestamp::max());
  std::vector<errc> release(std::span<const slot_ref> slots, bool rest = true, timestamp now = timestamp::max());
  /// The io worker's answer to the outbox's `fence`.
  std::vector<errc> fenced(std::span<const slot_ref> slots);

  /// The combined answer of the shards to the outbox's `evict`: how many slots they freed, for any rank, and whether
  /// any of them may have more. Call it after the `release` of these slots.
  void eviction_done(std::uint64_t freed, bool more);

  /// Elastic: sets how many slots may be in use. If more are in use, shards are asked to evict the rest. It is the
  /// answer to the outbox's `grow`. The number of slots of a file does not shrink.
  void resize(std::uint32_t slots);
  /// The same, for a file that grows: how many slots it has, and for how many whole pages it has disk space.
  void grown(std::uint32_t slots, std::uint32_t granted);
  /// As `resize`, at any other time, when memory for pages was taken away or added.
  void set_limit(std::uint32_t slots);
  /// For a sparse file: for how many pages there is room, those that are there included. If more slots are in use,
  /// shards are asked to evict the rest.
  void set_room(std::uint32_t pages);
  /// With memory slots: how many frames the rank has, of which those that `io::pages_beyond_slab` says may be used for
  /// memory slots.
  void set_frames(std::uint32_t frames);
  /// The answer to the outbox's `grow_frames`; as `set_frames`.
  void frames_grown(std::uint32_t frames);

  /// Not elastic, with no slot in use: from now on all slots rest for `allocator_options::closed_for`, and requests are
  /// answered without slots.
  void close(timestamp now);

  /// Frees slots that have rested, and answers requests whose deadline has passed with the slots that are free.
  void tick(timestamp now);

  /// When `tick` has work next. For tests: the actor calls `tick` at short intervals.
  std::optional<timestamp> next_deadline() const;

  /// How many frames the rank has, as far as is known. 0 without memory slots.
  std::uint32_t frames() const noexcept { return frames_; }
  /// How many slots of the slab may be in use.
  std::uint32_t slab_slots() const noexcept { return static_cast<std::uint32_t>(slab_.limit); }
  /// For a file that grows: how many slots it has, and for how many whole pages it has disk space.
  std::uint32_t file_slots() const noexcept { return slab_.there; }
  std::uint32_t granted() const noexcept { return file_.granted; }
  bool has_memory_slots() const noexcept { return options_.memory_slots > 0; }
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

  /// The slots of one kind, whose numbers follow each other from `first` on.
  struct slot_kind {
    slot_number first = 0;
    /// How many exist: of the slab as many as there can be, except for a file that grows; of memory as many as were
    /// ever granted.
    std::uint32_t there = 0;
    /// How many may be in use.
    std::uint64_t limit = 0;
    /// How many are in each state; together as many as exist.
    std::array<std::uint64_t, 4> counts{};
    // The list of free slots.
    slot_number first_free = no_slot;
    slot_number last_free = no_slot;

    std::uint64_t& count(slot_state state) noexcept { return counts[static_cast<std::size_t>(state)]; }
    std::uint64_t count(slot_state state) const noexcept { return counts[static_cast<std::size_t>(state)]; }
    std::uint64_t in_use() const noexcept { return there - count(slot_state::free); }
    /// How many can be granted when `back` of those in use have come back.
    std::uint64_t room(std::uint64_t back = 0) const noexcept {
      const auto used = in_use() - back;
      return limit > used ? limit - used : 0;
    }
    /// How many can be granted when all in quarantine have come back.
    std::uint64_t coming() const noexcept { return room(count(slot_state::quarantined)); }
    /// How many are in use above the limit, beyond those in quarantine.
    std::uint64_t too_many() const noexcept {
      const auto kept = in_use() - count(slot_state::quarantined);
      return kept > limit ? kept - limit : 0;
    }
  };

  /// A file that grows. Its slots may be in use as far as the larger of the two numbers allows.
  struct grown_file {
    /// For how many whole pages it has disk space.
    std::uint32_t granted = 0;
    /// For how many pages there is room.
    std::uint32_t room = 0;
    /// Whether slots were requested.
    bool was_asked = false;
  };

  /// Growth that was requested and not answered yet, and the time before which none is requested again.
  struct growth {
    bool asked = false;
    timestamp asked_at = timestamp::min();
    timestamp not_before = timestamp::min();

    bool may_ask(timestamp now) const noexcept { return !asked && now >= not_before; }
    /// The answer has come; one that brought nothing is waited for `retry` before the next request.
    void answered(bool brought, timestamp now, duration retry) noexcept {
      if (asked && !brought)
        not_before = now + retry;
      asked = false;
    }
  };

  /// Zero-filled memory that is not touched before use: filling it for a rank of 67 million slots would block the
  /// caller for seconds.
  struct give_back_memory {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  template <class T>
  using zeroed = std::unique_ptr<T[], give_back_memory>;
  template <class T>
  static zeroed<T> zeroes(std::size_t n);

  // Values in `successors_`: 0 is the next slot in the file, as in a fresh slab; `no_successor` is none; others are the
  // slot number plus two.
  static constexpr std::uint32_t no_successor = 1;
  static constexpr std::uint32_t first_successor = 2;

  /// `moved` receives the slots that are ok.
  std::vector<errc> move_all(std::span<const slot_ref> slots, slot_state from, slot_state to,
                             std::vector<slot_ref>* moved = nullptr);
  std::vector<errc> give_back(std::span<const slot_ref> slots, slot_state from, bool rest, timestamp now);
  void end_rest(timestamp now);
  void end_closing(timestamp now);
  /// Slots in quarantine that will be free at that time, as far as is known.
  std::uint64_t coming_until(timestamp when) const noexcept;
  std::uint64_t count_of(slot_state state) const noexcept { return slab_.count(state) + memory_.count(state); }
  slot_kind& kind_of(slot_number slot) noexcept { return slot < options_.slots ? slab_ : memory_; }
  bool exists(slot_number slot) const noexcept {
    return slot < options_.slots ? slot < slab_.there : slot - options_.slots < memory_.there;
  }
  std::uint64_t in_use() const noexcept { return slab_.in_use() + memory_.in_use(); }
  /// Slots that may be in use.
  std::uint64_t limit() const noexcept { return slab_.limit + memory_.limit; }
  /// Slots that can be granted.
  std::uint64_t room() const noexcept { return slab_.room() + memory_.room(); }
  /// Slots that can be granted when all in quarantine have come back.
  std::uint64_t coming() const noexcept { return slab_.coming() + memory_.coming(); }
  /// A watermark, scaled to the present number of slots.
  std::uint64_t share(std::uint32_t of_all) const noexcept {
    const auto all = std::uint64_t{options_.slots} + options_.memory_slots;
    return all == 0 ? 0 : std::uint64_t{of_all} * limit() / all;
  }
  std::string check_free_list(const slot_kind& kind) const;
  errc restore_one(slot_ref where);
  void set_generation(slot_number slot, generation_number x) noexcept {
    generations_[slot] = x - options_.first_generation;
  }
  void push_free(slot_number slot) noexcept;
  slot_ref pop_free(slot_kind& of) noexcept;
  void grant(const parked_request& to, errc code_if_fewer);
  /// Serves waiting requests in order, and requests eviction if necessary.
  void settle();
  void ask_for_eviction();
  void retry_eviction();
  /// Requests more slots of the slab, or else more memory, if `wanted` are missing.
  void ask_for_growth(std::uint64_t wanted);
  bool may_grow() const noexcept;
  /// How many slots of the slab there can be without further growth.
  std::uint64_t grown_so_far() const noexcept { return options_.there ? slab_.there : slab_.limit; }
  /// Sets the limit of a file that grows.
  void limit_file();
  bool may_grow_frames(std::uint64_t wanted) const noexcept;
  /// How many memory slots may be in use with so many frames.
  std::uint64_t memory_slots_with(std::uint64_t frames) const noexcept;
  /// Whether growth of the slab may still be waited for, before memory slots are granted and slots are evicted.
  bool awaits_growth() const noexcept;

  allocator_options options_;
  slot_kind slab_;
  slot_kind memory_;
  growth slab_growth_;
  growth frame_growth_;
  grown_file file_;
  std::uint32_t frames_ = 0;
  /// The latest time that a call has passed.
  timestamp now_ = timestamp::min();
  /// The slot after a free one in the list, or `no_slot`.
  slot_number next_free(slot_number slot) const noexcept;

  // Arrays by slot; all zero is a fresh slab, whose slots are free in file order and have the first generation.
  zeroed<std::uint32_t> successors_;
  /// Offset from `first_generation`.
  zeroed<generation_number> generations_;
  zeroed<slot_state> states_;

  /// All slots rest until then.
  std::optional<timestamp> closed_until_;
  std::uint64_t refused_ = 0;

  std::deque<parked_request> parked_;
  /// In order of time.
  std::deque<resting_slots> resting_;
  allocator_outbox outbox_;
  bool evicting_ = false;
  /// Whether slots were given back since the last request for eviction.
  bool came_back_ = false;
  /// Whether the number of slots was below the low watermark and has not reached the high one since.
  bool refilling_ = false;
  /// The shards reported that nothing can be evicted. They are asked again at the next request for slots, or after a
  /// while if more slots are in use than may be.
  bool exhausted_ = false;
  timestamp retry_eviction_at_ = timestamp::min();

  /// Whether claims are being restored.
  bool restoring_ = false;
  /// Whether slots have been granted.
  bool in_service_ = false;
  std::vector<slot_ref> lost_claims_;
  /// Slots that were claimed twice.
  std::unordered_set<slot_number> disputed_;
};

} // namespace troupe
