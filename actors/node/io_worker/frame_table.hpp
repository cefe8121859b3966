#pragma once

#include "actors/node/eviction/eviction_policy.hpp"
#include "actors/node/io_worker/frame_number.hpp"
#include "actors/node/io_worker/free_frames.hpp"
#include "actors/node/tables/page_residence.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// The states of a frame, and the changes between them:
///
///     free ──take──▶ filling ──filled──▶ dirty ◀──▶ writing ──▶ clean ──evicted──▶ free
///     free ──take──▶ reading ─────────────────────────────────▶ clean
///     dirty, and expendable ──dropped──▶ free
///     any ──the slot is given back──▶ free, or orphaned as long as a client has it pinned
///     free ──its extent is emptied──▶ absent ──an extent is assigned in its place──▶ free
enum class frame_state : std::uint8_t {
  free,
  /// Its writer has it pinned, and the bytes are not complete.
  filling,
  /// The bytes are being read from the slab.
  reading,
  /// The page can be read, and exists only here.
  dirty,
  /// As `dirty`, and the page is being written to the slab.
  writing,
  /// The page can be read, and is in the slab as well.
  clean,
  /// The page was dropped, but a client may still copy from or to the frame.
  orphaned,
  /// Not usable: the extent is being emptied, or was given back.
  absent,
};

inline constexpr std::size_t frame_state_count = 8;

constexpr frame_size other_size(frame_size x) noexcept {
  return x == frame_size::whole ? frame_size::encoded : frame_size::whole;
}

/// The frame table of one rank: which page lies in which frame, which pins it has, and which page is evicted next.
/// Independent of clients, deadlines and transfers.
///
/// An extent is cut into frames of one size: for whole slots, or for encoded pages, of which it holds more. A page that
/// is not encoded needs a whole frame; an encoded one fits into either. Frames are numbered by their extents, in the
/// order in which these were added. An extent that is added after one was given back takes over its numbers, and may
/// have frames of the other size.
class frame_table {
public:
  /// One extent. A frame that does not fit completely does not exist.
  struct extent {
    std::uint32_t number = 0;
    /// The offset from the start of the arena.
    std::uint64_t offset = 0;
    std::span<std::byte> bytes;
    /// The number under which the store knows the memory.
    std::uint32_t buffer = 0;
  };

  /// `resident` is notified of each page that becomes readable or stops being so; may be null. Slots from
  /// `first_memory_slot` on have no place in the slab: their pages stay dirty, and in memory. `encoded_bytes`: the size
  /// of frames for encoded pages, less than `slot_bytes`; 0 if there are none.
  frame_table(std::uint64_t slot_bytes, const eviction_factory& policy,
              std::shared_ptr<resident_slots> resident = nullptr, slot_number first_memory_slot = no_memory_slots,
              std::uint64_t encoded_bytes = 0);

  /// No slot is a memory slot.
  static constexpr slot_number no_memory_slots = 0xffffffff;

  frame_table(const frame_table&) = delete;
  frame_table& operator=(const frame_table&) = delete;

  /// Adds an extent with frames of this size, which are free.
  void add_extent(const extent& x, frame_size size = frame_size::whole);
  /// Cuts an extent with frames of the other size, none of which has a page or is in use, into frames of this size; the
  /// last one with whole frames stays. False if there is no such extent.
  bool recut_for(frame_size size);

  // -- an extent that is to leave, one at a time --

  /// Chooses an extent with frames of this size and stops placing pages in it: the extent with the fewest pinned
  /// frames, and among these the one with the fewest pages. False if there is none, or one is being emptied already.
  bool begin_emptying(frame_size size = frame_size::whole);
  /// Keeps the extent, which takes pages again.
  void stop_emptying();
  bool emptying() const noexcept { return emptying_ != none_; }
  /// A frame of the extent whose page can be moved: clean or dirty, and not pinned. `no_frame` if there is none now.
  frame_number next_to_move() noexcept;
  /// Moves the page with its bytes to a free frame of this size, of which there must be one; use, writing and eviction
  /// continue there. The size is that of the frame, or a whole one for a dirty page that is not held back. Returns the
  /// new frame.
  frame_number move(frame_number from, frame_size to);
  frame_number move(frame_number from) { return move(from, size_of(from)); }
  /// Evicts the next page in the order among frames of this size, whether it was written or is expendable. False if no
  /// page can be evicted.
  bool evict(frame_size size = frame_size::whole);
  /// Whether no frame of the extent has a page or is in use.
  bool emptied() const noexcept { return emptying() && extents_[emptying_].absent == stride_; }
  /// Removes the emptied extent from the table and returns it.
  extent take_emptied();

  /// Takes a frame of this size for this page, pinned once, as `filling` or `reading`. Free frames are used first, then
  /// clean ones that are not pinned. `no_frame` if there is none now. No frame may hold a page of the slot.
  frame_number take(const page_ref& page, frame_state as, frame_size size = frame_size::whole);

  /// The frame that holds the page of this slot and generation, in whatever state; `no_frame` if none does.
  frame_number find(const slot_ref& where) const noexcept;
  /// The frame that holds a page of the slot, of whatever generation; `no_frame` if none does.
  frame_number in_slot(slot_number slot) const noexcept;

  void pin(frame_number f) noexcept;
  /// Ends a pin. An orphaned frame becomes free with its last pin.
  void unpin(frame_number f);

  /// Sets the time for frames that are taken or used from now on.
  void pass_time(timestamp now) noexcept { now_ = now; }
  /// Records a use of the page.
  void touch(frame_number f);
  /// The time of the last use of the least recently used page, estimated from about sixty frames spread over all of
  /// them, or over those of this size; empty if these have no page. A pinned page counts as in use, because it cannot
  /// be evicted, however old it is.
  std::optional<timestamp> oldest_use(std::optional<frame_size> size = std::nullopt) const noexcept;

  /// Filling to dirty: the bytes are complete.
  void filled(frame_number f);
  /// Holds back a dirty frame: its page may later be dropped without having been written.
  void hold_back(frame_number f);
  /// Makes held-back frames expendable; they are not pinned, and given in prefix order. From now on they make room for
  /// others, in the same order as clean ones, and their pages are then dropped.
  void let_expend(std::span<const frame_number> frames);
  /// Ends holding back the frame: it stays until it is written. Returns whether it was held back.
  bool keep(frame_number f);
  bool held_back(frame_number f) const noexcept { return frames_[f].held_back; }
  bool expendable(frame_number f) const noexcept { return frames_[f].expendable; }
  /// Drops all held-back pages, which are not pinned, and frees their frames.
  void drop_all();
  /// Pages that were dropped unwritten since the last call.
  std::vector<page_ref> take_dropped() { return std::exchange(dropped_, {}); }
  /// Frames whose pages were evicted or dropped unwritten since `forget_vacated`.
  std::span<const frame_number> vacated() const noexcept { return vacated_; }
  void forget_vacated() noexcept { vacated_.clear(); }
  /// Dirty to writing.
  void begin_write(frame_number f);
  /// Writing to clean, or back to dirty.
  void end_write(frame_number f, bool ok);
  /// Reading to clean. After a failure the page is dropped.
  void end_read(frame_number f, bool ok);

  /// Drops the page, which is not found any more. While it is read or written the frame keeps its state; then, and at
  /// once in every other state, it becomes free, or orphaned.
  void drop(frame_number f);

  const page_ref& page(frame_number f) const noexcept { return frames_[f].page; }
  frame_state state(frame_number f) const noexcept { return frames_[f].state; }
  std::uint32_t pins(frame_number f) const noexcept { return frames_[f].pins; }
  /// Whether the page was dropped while it was read or written.
  bool dropped(frame_number f) const noexcept { return frames_[f].dropped; }
  /// A counter that changes each time the frame is taken; it distinguishes a list entry from one of an earlier page.
  std::uint32_t turn(frame_number f) const noexcept { return frames_[f].turn; }

  /// All bytes of the frame.
  std::span<std::byte> bytes(frame_number f) const noexcept;
  frame_size size_of(frame_number f) const noexcept { return extents_[f / stride_].size; }
  /// The frames of this size that an extent has; 0 if there are no such frames, or no extent was added.
  std::uint32_t per_extent(frame_size size) const noexcept { return of(size).per_extent; }
  /// The offset from the start of the arena.
  std::uint64_t offset(frame_number f) const noexcept;
  /// All extents, including the one that is being emptied.
  std::vector<extent> memory() const;
  /// Those extents without a pinned frame.
  std::vector<extent> memory_not_pinned() const;
  std::uint32_t buffer(frame_number f) const noexcept { return extents_[f / stride_].memory.buffer; }

  /// The number of frames that are not absent; and of this size.
  std::uint64_t size() const noexcept { return frames_.size() - count(frame_state::absent); }
  std::uint64_t size(frame_size size) const noexcept { return of(size).frames; }
  /// The bound below which all frame numbers lie.
  std::uint64_t numbers() const noexcept { return frames_.size(); }
  /// The number of extents, including the one that is being emptied; and of those with frames of this size.
  std::uint64_t extents() const noexcept { return by_size_[0].extents + by_size_[1].extents; }
  std::uint64_t extents(frame_size size) const noexcept { return of(size).extents; }
  /// The number of frames in all extents except the one that is being emptied; and of this size.
  std::uint64_t lasting() const noexcept { return lasting(frame_size::whole) + lasting(frame_size::encoded); }
  std::uint64_t lasting(frame_size size) const noexcept;
  std::uint64_t count(frame_state x) const noexcept { return counts_[static_cast<std::size_t>(x)]; }
  /// The number of free frames of this size.
  std::uint64_t free(frame_size size) const noexcept { return of(size).free.size(); }
  /// The part of the extents that has free frames of this size, in bytes: their frames with a share of the rest in
  /// which no frame fits, so that an extent without pages counts completely.
  std::uint64_t free_bytes(frame_size size) const noexcept;
  /// The bytes of all frames that are not absent, and of those with readable pages.
  std::uint64_t bytes() const noexcept;
  std::uint64_t resident_bytes() const noexcept;
  /// The number of readable pages.
  std::uint64_t resident() const noexcept {
    return count(frame_state::dirty) + count(frame_state::writing) + count(frame_state::clean);
  }
  std::uint64_t pinned() const noexcept { return pinned_; }
  /// Whether the page of the frame is dirty and will stay so, because it has a memory slot and is not held back.
  bool stays(frame_number f) const noexcept { return frames_[f].stays; }
  /// The number of such frames; and of this size.
  std::uint64_t staying() const noexcept { return by_size_[0].staying + by_size_[1].staying; }
  std::uint64_t staying(frame_size size) const noexcept { return of(size).staying; }
  /// Of some frames that stay and are not pinned, of this size or of any, the one that was used longest ago; `no_frame`
  /// if all are pinned. The next call looks at others. `unwritten`: of all dirty frames that are not held back.
  frame_number next_staying(std::optional<frame_size> size = std::nullopt, bool unwritten = false) noexcept;
  /// The number of dirty frames that are held back; and of these, the number that are expendable.
  std::uint64_t held_back() const noexcept { return held_back_; }
  std::uint64_t expendable() const noexcept { return expendable_; }
  /// The number of pages in the slab that were evicted to make room.
  std::uint64_t evicted() const noexcept { return evicted_; }

  /// The first inconsistency, or an empty text. For tests: reads every frame.
  std::string check() const;

private:
  struct frame {
    page_ref page;
    std::uint32_t pins = 0;
    std::uint32_t turn = 0;
    frame_state state = frame_state::free;
    bool dropped = false;
    bool held_back = false;
    bool expendable = false;
    bool stays = false;
    /// Used since it was filled; the policy is notified of that when it gets the page.
    bool used = false;
    /// The time when it was last taken or used.
    timestamp used_at{};
  };

  /// An extent with the number of its frames that are absent, that are pinned, and that have a page or will get one.
  struct place {
    extent memory;
    frame_size size = frame_size::whole;
    bool present = true;
    std::uint32_t absent = 0;
    std::uint32_t pinned = 0;
    std::uint32_t held = 0;
  };

  /// The frames of one size.
  struct sized {
    std::uint64_t frame_bytes = 0;
    std::uint32_t per_extent = 0;
    /// Extents with such frames.
    std::uint64_t extents = 0;
    /// Those that are not absent, those with readable pages, and those that stay.
    std::uint64_t frames = 0;
    std::uint64_t readable = 0;
    std::uint64_t staying = 0;
    free_frames free;
    std::unique_ptr<eviction_policy> policy;
  };

  static constexpr std::size_t none_ = ~std::size_t{0};

  const sized& of(frame_size x) const noexcept { return by_size_[static_cast<std::size_t>(x)]; }
  sized& of(frame_size x) noexcept { return by_size_[static_cast<std::size_t>(x)]; }
  sized& of(frame_number f) noexcept { return of(size_of(f)); }

  static constexpr bool holds(frame_state x) noexcept { return x != frame_state::free && x != frame_state::absent; }
  static constexpr bool readable(frame_state x) noexcept {
    return x == frame_state::dirty || x == frame_state::writing || x == frame_state::clean;
  }
  /// The first number of the extent at this place, and the one behind its last frame.
  frame_number first_of(std::size_t at) const noexcept { return static_cast<frame_number>(at * stride_); }
  frame_number end_of(std::size_t at) const noexcept { return first_of(at) + of(extents_[at].size).per_extent; }
  /// Whether its page is found under its slot.
  static bool has_slot(const frame& x) noexcept;
  /// What is inconsistent about one frame, as the end of a sentence; else empty.
  std::string check_frame(frame_number f) const;
  void cut(std::size_t at, const extent& x, frame_size size);
  /// Makes the free frames of the extent at this place absent.
  void drop_free_frames(std::size_t at);
  /// Frees the frame, which has neither a pin nor a page.
  void become_free(frame_number f);
  void change(frame_number f, frame_state to) noexcept;
  void become_clean(frame_number f);
  /// Reports that its page is readable, and whether it is in the slab as well.
  void report_resident(frame_number f, bool written) noexcept;
  /// Frees the frame after its page was dropped and its transfer has ended, or orphans it until its last pin ends.
  void let_go(frame_number f);
  void detach(frame_number f) noexcept;
  void drop_pages(frame_number f);
  /// Removes the frame from the policy because the state of its page changed.
  void withdraw(frame_number f);
  void forget_held_back(frame_number f) noexcept;
  /// Sets whether the page stays in memory until it is dropped.
  void let_stay(frame_number f, bool stays) noexcept;

  // Between two calls:
  // - Every frame is in one state, and `counts_` has the number of frames in each. `free_` has exactly the free frames,
  //   each once.
  // - `by_slot_` has the frames that are not free, orphaned or dropped, each under the slot of its page.
  // - The policy of a size has exactly the clean frames of that size that are not dropped and the expendable ones.
  // - Frames that stay are exactly the dirty ones of memory slots that are not held back.
  // - Held-back frames are dirty. Expendable ones are held back and not pinned.
  // - Filling frames are pinned by their writer alone; free ones are not pinned; orphaned ones are pinned.
  // - The absent frames are all those of an extent that was given back, those of the extent being emptied that would
  //   otherwise be free, and the last numbers of an extent that has fewer frames than one of the other size.
  // - The policy knows a frame by its entry, `entry_of_`, which moves with the page, so that the page keeps its place
  //   in the order of eviction. `frame_of_` is the inverse map.

  std::array<sized, 2> by_size_;
  /// The numbers that every extent has: the frames of one with the smaller ones.
  std::uint32_t stride_ = 1;
  std::uint64_t extent_bytes_ = 0;
  std::vector<place> extents_;
  std::vector<frame> frames_;
  std::vector<entry_index> entry_of_;
  std::vector<frame_number> frame_of_;
  /// The extent that is being emptied.
  std::size_t emptying_ = none_;
  /// The position where the search for a movable page continues.
  std::uint32_t looked_at_ = 0;
  timestamp now_{};
  std::unordered_map<slot_number, frame_number> by_slot_;
  std::array<std::uint64_t, frame_state_count> counts_{};
  std::uint64_t pinned_ = 0;
  std::uint64_t evicted_ = 0;
  std::uint64_t held_back_ = 0;
  std::uint64_t expendable_ = 0;
  slot_number first_memory_slot_;
  /// The frame where the search for one that stays continues.
  frame_number staying_looked_at_ = 0;
  std::vector<page_ref> dropped_;
  std::vector<frame_number> vacated_;
  std::shared_ptr<resident_slots> resident_;
};

} // namespace troupe
