#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "actors/node/io_worker/free_frames.hpp"
#include "actors/node/registry/eviction_policy.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "base/page_residence.hpp"

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

///     free ──take──▶ filling ──filled──▶ dirty ◀──▶ writing ──▶ clean ──evicted──▶ free
///     free ──take──▶ reading ─────────────────────────────────▶ clean
///     dirty, and expendable ──given up──▶ free
///     any ──the slot is given back──▶ free, or orphaned as long as somebody has it pinned
///     free ──its extent is emptied──▶ absent ──an extent is lent in its place──▶ free
enum class frame_state : std::uint8_t {
  free,
  /// Its writer has it pinned, and the bytes are not there yet.
  filling,
  /// The bytes are on their way from the slab.
  reading,
  /// The page can be read, and is nowhere else.
  dirty,
  /// The same, and is being written to the slab.
  writing,
  /// The page can be read, and is in the slab as well.
  clean,
  /// The page is gone, but a client may still copy from or to the frame.
  orphaned,
  /// No place for a page: its extent is being emptied, or has gone back.
  absent,
};

inline constexpr std::size_t frame_state_count = 8;

/// The memory of one rank: which page lies in which frame, who keeps it there, and which goes next. Knows nothing of
/// clients, deadlines or transfers.
///
/// Frames are numbered by their extents, in the order in which these came; an extent that comes after one has gone back
/// takes the numbers of that one.
class frame_table {
public:
  /// Of one extent. Frames that do not fit whole are not there.
  struct extent {
    std::uint32_t number = 0;
    /// From the start of the arena.
    std::uint64_t offset = 0;
    std::span<std::byte> bytes;
    /// What the store knows the memory by.
    std::uint32_t buffer = 0;
  };

  /// `resident` is told of each page that can be read, and of each that cannot any more; may be null.
  frame_table(std::uint64_t slot_bytes, eviction_factory policy, std::shared_ptr<resident_slots> resident = nullptr);

  frame_table(const frame_table&) = delete;
  frame_table& operator=(const frame_table&) = delete;

  /// Its frames are free from now on.
  void add_extent(const extent& x);

  // -- an extent that is to leave, one at a time --

  /// From now on no page comes into it. That of which fewest frames are pinned, and of these the one with fewest pages.
  /// False if there is none, or one is being emptied.
  bool begin_emptying();
  /// It stays, and takes pages again.
  void stop_emptying();
  bool emptying() const noexcept { return emptying_ != none_; }
  /// A frame of it whose page may be moved: clean or dirty, and nobody has it pinned. `no_frame` if there is none now.
  frame_number next_to_move() noexcept;
  /// To a free frame, of which there must be one, bytes and all: it is used, written and evicted there as it would have
  /// been here. Returns where it is.
  frame_number move(frame_number from);
  /// The page that would go next leaves, written or given up. False if none can.
  bool evict();
  /// No frame of it has a page, or is touched by anybody.
  bool emptied() const noexcept { return emptying() && extents_[emptying_].absent == per_extent_; }
  /// The one that is emptied, which is not the table's any more.
  extent take_emptied();

  /// A frame for this page, pinned once, as `filling` or `reading`. Free ones go first, then clean ones that nobody
  /// has pinned. `no_frame` if there is none now. No frame may hold a page of the slot.
  frame_number take(const page_ref& page, frame_state as);

  /// The frame that holds the page of this slot and generation, in whatever state; `no_frame` if none does.
  frame_number find(const slot_ref& where) const noexcept;
  /// The frame that holds a page of the slot, of whatever generation; `no_frame` if none does.
  frame_number in_slot(slot_number slot) const noexcept;

  void pin(frame_number f) noexcept;
  /// A frame that is orphaned is free when nobody has it pinned any more.
  void unpin(frame_number f);

  /// What time it is, for those that are taken or used from now on.
  void pass_time(timestamp now) noexcept { now_ = now; }
  /// The page was used.
  void touch(frame_number f);
  /// When the page was used that was not for longest, as far as some sixty frames tell that are spread over all of
  /// them; nothing if these have no page. What somebody has pinned is in use: it cannot go, however long ago it came.
  std::optional<timestamp> oldest_use() const noexcept;

  /// From filling to dirty: the bytes are there.
  void filled(frame_number f);
  /// A dirty frame whose page may go without having been written, sooner or later.
  void hold_back(frame_number f);
  /// Frames that are held back and that nobody has pinned, in prefix order: from now on they make room for others, in
  /// the order in which clean ones do, and their pages are gone then.
  void let_expend(std::span<const frame_number> frames);
  /// The frame is not held back any more: it stays until it is written. Whether it was.
  bool keep(frame_number f);
  bool held_back(frame_number f) const noexcept { return frames_[f].held_back; }
  bool expendable(frame_number f) const noexcept { return frames_[f].expendable; }
  /// All that are held back are free now; nobody has them pinned.
  void give_up_all();
  /// Pages that were given up since this was asked last.
  std::vector<page_ref> take_given_up() { return std::exchange(given_up_, {}); }
  /// Frames whose pages have made room, by being evicted or given up, since `forget_vacated`.
  std::span<const frame_number> vacated() const noexcept { return vacated_; }
  void forget_vacated() noexcept { vacated_.clear(); }
  /// From dirty to writing.
  void begin_write(frame_number f);
  /// From writing to clean, or back to dirty.
  void end_write(frame_number f, bool ok);
  /// From reading to clean. Where it failed the page is gone.
  void end_read(frame_number f, bool ok);

  /// The frame's page is gone: nobody finds it any more. While it is read or written it stays so; then, and at once in
  /// every other state, it is free, or orphaned.
  void drop(frame_number f);

  const page_ref& page(frame_number f) const noexcept { return frames_[f].page; }
  frame_state state(frame_number f) const noexcept { return frames_[f].state; }
  std::uint32_t pins(frame_number f) const noexcept { return frames_[f].pins; }
  /// Whether it was dropped while it was read or written.
  bool dropped(frame_number f) const noexcept { return frames_[f].dropped; }
  /// Another one each time the frame is taken: tells an entry in a list from one of an earlier page.
  std::uint32_t turn(frame_number f) const noexcept { return frames_[f].turn; }

  std::span<std::byte> bytes(frame_number f) const noexcept;
  /// From the start of the arena.
  std::uint64_t offset(frame_number f) const noexcept;
  /// Those there are, with the one that is being emptied.
  std::vector<extent> memory() const;
  /// Those of them in which nobody has a frame pinned.
  std::vector<extent> memory_not_pinned() const;
  std::uint32_t buffer(frame_number f) const noexcept { return extents_[f / per_extent_].memory.buffer; }

  /// Frames there are, without those that are absent.
  std::uint64_t size() const noexcept { return frames_.size() - count(frame_state::absent); }
  /// The numbers of all frames are below this.
  std::uint64_t numbers() const noexcept { return frames_.size(); }
  /// Extents there are, with the one that is being emptied.
  std::uint64_t extents() const noexcept { return present_; }
  /// Frames for pages that stay: those of all extents but the one that is being emptied.
  std::uint64_t lasting() const noexcept { return (present_ - (emptying() ? 1 : 0)) * per_extent_; }
  std::uint64_t count(frame_state x) const noexcept { return counts_[static_cast<std::size_t>(x)]; }
  /// That can be read.
  std::uint64_t resident() const noexcept {
    return count(frame_state::dirty) + count(frame_state::writing) + count(frame_state::clean);
  }
  std::uint64_t pinned() const noexcept { return pinned_; }
  /// Of the dirty ones; and of those, how many are expendable.
  std::uint64_t held_back() const noexcept { return held_back_; }
  std::uint64_t expendable() const noexcept { return expendable_; }
  /// Pages that went so that others could come, and were in the slab.
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
    /// Used since it was filled: what the policy is told once it has it.
    bool used = false;
    /// When it was taken or used last.
    timestamp used_at{};
  };

  /// An extent, and how many of its frames are absent and pinned, and have a page or are on their way to one.
  struct place {
    extent memory;
    bool present = true;
    std::uint32_t absent = 0;
    std::uint32_t pinned = 0;
    std::uint32_t held = 0;
  };

  static constexpr std::size_t none_ = ~std::size_t{0};

  static constexpr bool holds(frame_state x) noexcept { return x != frame_state::free && x != frame_state::absent; }
  /// Nobody has it, and it has no page.
  void become_free(frame_number f);
  void change(frame_number f, frame_state to) noexcept;
  void become_clean(frame_number f);
  /// Its page can be read from now on, and is in the slab as well, or not.
  void tell_resident(frame_number f, bool written) noexcept;
  /// Nobody finds its page any more, and nothing moves bytes: free it, or wait for who has it pinned.
  void let_go(frame_number f);
  void detach(frame_number f) noexcept;
  void give_up(frame_number f);
  /// It is no choice of the policy any more, because of what became of its page.
  void withdraw(frame_number f);
  void forget_held_back(frame_number f) noexcept;

  // Between two calls:
  // - Every frame is in one state, and `counts_` says how many are in each. Free frames are in `free_`, each once, and
  //   no others are.
  // - `by_slot_` has the frames that are not free, orphaned or dropped, each under the slot of its page.
  // - The policy has the clean frames that are not dropped and the expendable ones, and no others.
  // - Frames that are held back are dirty. Expendable ones are held back, and pinned by nobody.
  // - Frames that are filling are pinned by their writer alone; free ones by nobody; orphaned ones by somebody.
  // - Absent ones are all of an extent that has gone back, and those of the one that is being emptied that would be
  //   free.
  // - The policy knows a frame by its entry, `entry_of_`, which goes with the page where that is moved: so the page
  //   keeps its place in the order of eviction. `frame_of_` is the other way round.

  std::uint64_t slot_bytes_;
  std::uint32_t per_extent_ = 0;
  std::vector<place> extents_;
  std::vector<frame> frames_;
  std::vector<entry_index> entry_of_;
  std::vector<frame_number> frame_of_;
  std::uint64_t present_ = 0;
  /// Which is being emptied.
  std::size_t emptying_ = none_;
  /// Where the search for what can be moved goes on.
  std::uint32_t looked_at_ = 0;
  timestamp now_{};
  free_frames free_;
  std::unordered_map<slot_number, frame_number> by_slot_;
  std::unique_ptr<eviction_policy> policy_;
  std::array<std::uint64_t, frame_state_count> counts_{};
  std::uint64_t pinned_ = 0;
  std::uint64_t evicted_ = 0;
  std::uint64_t held_back_ = 0;
  std::uint64_t expendable_ = 0;
  std::vector<page_ref> given_up_;
  std::vector<frame_number> vacated_;
  std::shared_ptr<resident_slots> resident_;
};

} // namespace troupe
