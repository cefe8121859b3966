#pragma once

#include "base/identifiers.hpp"
#include "io/slab/page_store.hpp"
#include "messages/io_messages.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// The disk space of a sparse slab file: what its slots occupy, how many pages there is room for, and which parts of
/// the file are freed (trimmed).
///
/// The file was granted space for a number of whole pages. An encoded page leaves the end of its slot unoccupied, so
/// there is room for more pages than that. A slot occupies what it was granted, or what its largest page since its last
/// trim needed, also while it is free: the next page that gets it is likely to be of the same size.
///
/// Invariants. What all slots occupy is never more than what was granted, as far as this class admits writes
/// (`begin_write`). A slot is trimmed only while nothing is written to it; its end only under an encoded page, and as a
/// whole only while it is free. No write begins while its slot is being trimmed.
///
/// `room` is what the allocator grants slots by. It keeps a margin, so that pages that are not encoded find space while
/// others are being evicted for them. Where that is used up, writes wait, and their pages stay in memory.
///
/// Plain state; not thread-safe.
class slab_usage {
public:
  /// Memory of one slot.
  static constexpr std::uint64_t bytes_per_slot = 1;

  struct options {
    std::uint64_t slots = 0;
    std::uint64_t whole_bytes = 0;
    /// The bytes of an encoded page, less than `whole_bytes`; 0: the file is not sparse, and everything is admitted.
    std::uint64_t encoded_bytes = 0;
    /// The most trims at once.
    std::uint32_t trims_max = 16;
  };
  /// A part of a slot to be freed on the disk.
  struct trim {
    slot_number slot = 0;
    std::uint64_t from = 0;
    std::uint64_t bytes = 0;
  };

  explicit slab_usage(const options& x);

  bool enabled() const noexcept { return options_.encoded_bytes > 0; }

  /// What slots occupied when the file was opened, by slot. With `pages`, each of them may have a page of an earlier
  /// run, and counts as used until it is vacated; else all are free.
  void found(std::span<const std::uint64_t> occupied, bool pages);
  /// There is disk space for so many whole pages. These slots were given theirs, and occupy it although they are free:
  /// nothing may have been written to them.
  void grant(std::uint64_t pages, std::span<const io::slot_range> given = {});

  /// A page of this size is to be written to the slot, which it has from now on. Slots beyond the slab do not count.
  void assign(slot_number slot, frame_size size);
  /// The slot is free: its page is dead. A write may still be in progress.
  void vacate(slot_number slot);

  /// Whether the page of the slot may be written now; `end_write` follows then. Otherwise trims may make room, the
  /// writes of other pages, or their eviction.
  bool begin_write(slot_number slot);
  void end_write(slot_number slot);
  /// Whether refused writes may be admitted now, since something has changed. Then all of them have to be tried again.
  bool take_change() noexcept;

  /// The next trim to be carried out under this tag, if there is one; `end_trim` follows.
  std::optional<trim> next_trim(std::uint64_t tag);
  /// False: that was no trim. A failed one leaves the slot as it was, and there are no more until `retry_trims`.
  bool end_trim(std::uint64_t tag, bool done);
  void retry_trims() noexcept { changed_ = std::exchange(trims_fail_, false) || changed_; }
  std::size_t trims() const noexcept { return trims_.size(); }

  /// For how many pages there is room, those that are there included; at least as many as were granted.
  std::uint32_t room() const noexcept;
  /// The same, if it has changed. With pages of an earlier run not before `pages_are_known`.
  std::optional<std::uint32_t> take_changed_room();
  /// All slots that are free have been vacated.
  void pages_are_known() noexcept { room_is_known_ = true; }
  /// What all slots occupy, and what their pages need.
  std::uint64_t occupied_bytes() const noexcept { return occupied_bytes_; }
  std::uint64_t page_bytes() const noexcept {
    return encoded_pages_ * options_.encoded_bytes + (pages_ - encoded_pages_) * options_.whole_bytes;
  }
  /// How many pages these are.
  std::uint64_t pages() const noexcept { return pages_; }
  std::uint64_t granted() const noexcept { return granted_; }
  std::uint64_t granted_bytes() const noexcept { return granted_ * options_.whole_bytes; }

  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  enum class extent : std::uint8_t { none, encoded, whole };
  struct slot_state {
    /// What the slot occupies on the disk.
    extent occupied : 2 = extent::none;
    /// What its page needs; none: it is free.
    extent page : 2 = extent::none;
    /// Known from this run. Until then the end of the slot may be allocated without having been written.
    bool end_is_trimmed : 1 = false;
    bool writing : 1 = false;
    bool trimming : 1 = false;
    /// Listed in `free_`.
    bool listed : 1 = false;
  };
  struct pending_trim {
    slot_number slot = 0;
    extent left = extent::none;
  };

  std::uint64_t bytes_of(extent x) const noexcept;
  void set_occupied(slot_state& s, extent x) noexcept;
  void set_page(slot_state& s, extent x) noexcept;
  static bool may_trim_end(const slot_state& s) noexcept;
  void list_free(slot_number slot);
  trim begin(std::uint64_t tag, slot_number slot, extent left);
  /// What refused writes lack.
  std::uint64_t lacking_bytes() const noexcept;

  options options_;
  std::uint64_t granted_ = 0;
  std::vector<slot_state> slots_;
  std::uint64_t occupied_bytes_ = 0;
  /// Pages that are there, and those of them that are encoded.
  std::uint64_t pages_ = 0;
  std::uint64_t encoded_pages_ = 0;
  /// The size of the last page.
  frame_size usual_ = frame_size::whole;
  /// What refused writes need. Trims free what is lacking of it.
  std::uint64_t refused_bytes_ = 0;
  bool changed_ = false;
  bool room_is_known_ = true;
  std::uint32_t reported_room_ = 0;
  /// What trims of whole slots in progress will free.
  std::uint64_t coming_bytes_ = 0;
  /// Slots whose end may be trimmed, and free slots that may occupy something; checked when taken.
  std::deque<slot_number> ends_;
  std::deque<slot_number> free_;
  std::unordered_map<std::uint64_t, pending_trim> trims_;
  bool trims_fail_ = false;
};

} // namespace troupe
