#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "actors/node/io_worker/free_frames.hpp"
#include "actors/node/registry/eviction_policy.hpp"
#include "base/identifiers.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

///     free ──take──▶ filling ──filled──▶ dirty ◀──▶ writing ──▶ clean ──evicted──▶ free
///     free ──take──▶ reading ─────────────────────────────────▶ clean
///     any ──the slot is given back──▶ free, or orphaned as long as somebody has it pinned
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
};

inline constexpr std::size_t frame_state_count = 7;

/// The memory of one rank: which page lies in which frame, who keeps it there, and which goes next. Knows nothing of
/// clients, deadlines or transfers.
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

  frame_table(std::uint64_t slot_bytes, eviction_factory policy);

  frame_table(const frame_table&) = delete;
  frame_table& operator=(const frame_table&) = delete;

  /// Its frames are free from now on.
  void add_extent(const extent& x);

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

  /// The page was used.
  void touch(frame_number f);

  /// From filling to dirty: the bytes are there.
  void filled(frame_number f);
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
  const std::vector<extent>& extents() const noexcept { return extents_; }
  std::uint32_t buffer(frame_number f) const noexcept { return extents_[f / per_extent_].buffer; }

  std::uint64_t size() const noexcept { return frames_.size(); }
  std::uint64_t count(frame_state x) const noexcept { return counts_[static_cast<std::size_t>(x)]; }
  /// That can be read.
  std::uint64_t resident() const noexcept {
    return count(frame_state::dirty) + count(frame_state::writing) + count(frame_state::clean);
  }
  std::uint64_t pinned() const noexcept { return pinned_; }
  /// Pages that went so that others could come.
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
    /// Used since it was filled: what the policy is told once it has it.
    bool used = false;
  };

  void change(frame_number f, frame_state to) noexcept;
  void become_clean(frame_number f);
  /// Nobody finds its page any more, and nothing moves bytes: free it, or wait for who has it pinned.
  void let_go(frame_number f);
  void detach(frame_number f) noexcept;
  frame_number evict();

  // Between two calls:
  // - Every frame is in one state, and `counts_` says how many are in each. Free frames are in `free_`, each once, and
  //   no others are.
  // - `by_slot_` has the frames that are not free, orphaned or dropped, each under the slot of its page.
  // - The policy has the clean frames that are not dropped, and no others.
  // - Frames that are filling are pinned by their writer alone; free ones by nobody; orphaned ones by somebody.

  std::uint64_t slot_bytes_;
  std::uint32_t per_extent_ = 0;
  std::vector<extent> extents_;
  std::vector<frame> frames_;
  free_frames free_;
  std::unordered_map<slot_number, frame_number> by_slot_;
  std::unique_ptr<eviction_policy> policy_;
  std::array<std::uint64_t, frame_state_count> counts_{};
  std::uint64_t pinned_ = 0;
  std::uint64_t evicted_ = 0;
};

} // namespace troupe
