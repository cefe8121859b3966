#pragma once

#include "base/identifiers.hpp"
#include "io/slab/page_store.hpp"
#include "messages/io_messages.hpp"
#include "messages/transfer_messages.hpp"
#include "tests/simulation/disk.hpp"
#include "tests/simulation/environment.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Tracks the content of each frame of the arena of one run and its pins, by the answers of io workers, the messages of
/// clients to them, and the transfers of the disks; and by no state of an io worker.
///
///     free → placed (given to a writer) → filled (reported by its writer) → on disk as well (reported by the disk)
///     free → read (from the disk, for a reader)
///
/// A frame without pins may be reused at any time, but not before its page is on disk, or dropped. A pin lasts from the
/// answer that named it until its client ends it, or is known to be quiesced.
class frame_ledger {
public:
  frame_ledger(environment& world, const std::vector<std::unique_ptr<disk>>& disks, std::uint64_t slot_bytes);

  /// The run has ended. The arguments are of the next one: its memory, and for how long it has been paused.
  void begin(std::span<std::byte> memory, std::function<duration()> paused);

  // -- arena ---------------------------------------------------------------------------------------------------------

  void assigned(rank_number rank, std::uint64_t offset, std::uint64_t bytes);
  void taken_back(rank_number rank, std::uint64_t offset, std::uint64_t bytes);
  /// The rank is asked to empty an extent: from now on its pages may be elsewhere than they were.
  void empties(rank_number rank) { ranks_[rank].may_move = true; }
  /// Looks at the content before it is overwritten: a page may have been moved there.
  void notice_moves(std::uint64_t offset);
  /// Memory was overwritten by mistake: the pages there may be detected as corrupt, and dropped, at any time.
  void corrupted(std::uint64_t offset);

  /// Sets the function that knows which keys are leased now.
  void ask_of_leases(std::function<bool(const key_digest&)> is_leased) { is_leased_ = std::move(is_leased); }

  // -- io workers ----------------------------------------------------------------------------------------------------

  /// A request for frames, on its way to a worker: when it was asked.
  using moment = std::uint64_t;
  moment asks(owner_id owner) {
    known_.insert(owner);
    return ++now_;
  }
  void placed(rank_number rank, owner_id owner, moment asked, const frame_request& x, const frame_reply& reply);
  void fetched(rank_number rank, owner_id owner, moment asked, const frame_request& x, const frame_reply& reply);

  /// Pass on to the worker, and are answered.
  void fills(rank_number rank, owner_id owner, const fill_request& x);
  void filled(rank_number rank, owner_id owner, const fill_request& x, const std::optional<io_reply>& reply);
  void unpins(rank_number rank, owner_id owner, pin_number pin);
  void unpinned(rank_number rank, owner_id owner, pin_number pin, bool ok);
  void rests(rank_number rank, owner_id owner);
  /// The worker tells a shard that the page has left memory, and is nowhere else.
  void drops(rank_number rank, slot_ref where);
  void fences(rank_number rank, std::span<const slot_ref> slots);
  void fenced(rank_number rank, std::span<const slot_ref> slots);

  /// The worker says that it has dropped a page that can never be written: only where its disk is damaged.
  void lost(rank_number rank, slot_ref where);

  // -- disks ---------------------------------------------------------------------------------------------------------

  void transfers(rank_number rank, const io::page_request& x);

  // -- clients -------------------------------------------------------------------------------------------------------

  /// Whether the client has ever requested frames from this run.
  bool knows(owner_id owner) const { return known_.contains(owner); }
  /// A copy engine moves these pages: the error, or empty.
  std::string copies(rank_number rank, const copy_order& order, bool scatter) const;
  /// The device of a process that was killed writes into the frame.
  std::string late_copy(rank_number rank, owner_id owner, std::uint64_t offset) const;

  // -- the rest ------------------------------------------------------------------------------------------------------

  /// A page that is committed, or whose location was returned to a reader, exists: the missing part, or empty.
  std::string stored(rank_number rank, slot_ref where) const;
  /// The page may have left memory without being on disk.
  bool may_be_gone(rank_number rank, const slot_ref& where) const;
  /// Some pin of another client, for a client that tries to end it.
  std::optional<std::pair<pin_number, owner_id>> any_pin(rank_number rank, bool fetch, std::uint64_t random) const;
  std::optional<owner_id> owner_of(rank_number rank, pin_number pin) const;
  /// Pins of a fetch on the frame of this slot.
  std::vector<std::pair<pin_number, owner_id>> pins_on(rank_number rank, slot_ref where) const;
  /// A frame of the rank that a client has pinned, if there is one.
  std::optional<std::uint64_t> pinned_frame(rank_number rank) const;
  /// A frame of the rank without pins and transfers, if there is one.
  std::optional<std::uint64_t> idle_frame(rank_number rank) const;
  /// A frame with a page, or for one, that is nowhere else, if there is one.
  std::optional<std::uint64_t> unwritten_frame(std::uint64_t random) const;
  /// A page that lies in memory alone, if there is one.
  std::optional<page_ref> any_unwritten(rank_number rank) const;
  /// The slot of a page of the rank that is nowhere else.
  std::optional<slot_ref> unwritten_page(rank_number rank, std::uint64_t random) const;
  bool in_arena(const std::byte* x) const { return x >= memory_.data() && x < memory_.data() + memory_.size(); }
  std::span<std::byte> bytes(std::uint64_t offset) const { return memory_.subspan(offset, slot_bytes_); }
  /// Pins that have not ended, in words.
  std::string quiesced() const;

private:
  enum class content : std::uint8_t { none, placed, filled, read };

  struct holder {
    pin_number pin = 0;
    owner_id owner = 0;
    bool fetch = false;
    page_ref page;
  };

  struct frame {
    content is = content::none;
    page_ref page;
    /// When, by a clock that stops while the node does.
    std::optional<timestamp> corrupted;
    /// Before the io worker was notified that the page is there, and so before it could be verified.
    bool corrupted_early = false;
    std::vector<holder> holders;
  };

  struct pin {
    owner_id owner = 0;
    bool fetch = false;
    /// 0 for those that have none.
    std::vector<std::optional<std::uint64_t>> offsets;
    std::vector<page_ref> pages;
    /// When its end was requested.
    moment ended = 0;
  };

  struct loan {
    rank_number rank = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  struct rank_record {
    std::map<pin_number, pin> pins;
    /// Pages whose fill has passed on, by pin.
    std::map<pin_number, pin> filling;
    /// Whether the message about a pin named one that the client had.
    std::map<std::pair<owner_id, pin_number>, std::deque<bool>> ending;
    /// The frame of a page, as far as that is known.
    std::map<slot_ref, std::uint64_t> where;
    /// This generation and older may be lost, or are lost.
    std::map<slot_number, generation_number> fencing;
    std::map<slot_number, generation_number> fenced;
    /// When the last fence of a slot was answered.
    std::map<slot_number, moment> fenced_at;
    /// Pages that are not what was saved, that were not reported to readers, or whose loss shards know: they may leave
    /// memory.
    std::set<slot_ref> damaged;
    std::map<owner_id, std::uint64_t> pinned;
    /// It has been asked to empty an extent.
    bool may_move = false;
    /// Owners that are quiesced. One that gets a frame of an earlier request counts as quiesced as well.
    std::set<owner_id> resting;
  };

  static bool up_to(const std::map<slot_number, generation_number>& generations, slot_ref where) {
    const auto found = generations.find(where.slot);
    return found != generations.end() && where.generation <= found->second;
  }

  /// The fence of the page's slot was answered before the request came.
  bool was_fenced(rank_number rank, const slot_ref& where, moment asked) const;
  void wrong(const std::string& property, rank_number rank, std::uint64_t offset, const std::string& why) const;
  frame& at(std::uint64_t offset) { return frames_[offset]; }
  std::string in_loan(rank_number rank, std::uint64_t offset) const;
  bool holds(rank_number rank, std::uint64_t offset, const page_ref& page) const;
  /// A page that the rank may have moved is found there, whole: it lies there from now on. False if it cannot be so.
  bool moved(rank_number rank, const page_ref& page, std::uint64_t to);
  /// Looks for the page of that frame elsewhere, if it is nowhere else, and may have been moved.
  void seek(rank_number rank, std::uint64_t offset);
  bool only_there(rank_number rank, const frame& x) const {
    return x.is == content::filled && !may_be_gone(rank, x.page.where) && !disks_[rank]->written(x.page.where);
  }
  /// Why the frame cannot be given to this page now, as property and text.
  std::pair<std::string, std::string> may_take(rank_number rank, std::uint64_t offset, const page_ref& page) const;
  void take(rank_number rank, std::uint64_t offset, const page_ref& page, content as);
  void left_memory(const page_ref& page) {
    world_.count("page left memory");
    if (is_leased_ && is_leased_(page.key))
      world_.count("page left memory while it was leased");
  }
  void add_pin(rank_number rank, owner_id owner, bool fetch, const frame_request& x, const frame_reply& reply);
  void check_reply(rank_number rank, const frame_request& x, const frame_reply& reply) const;
  void trace_reply(rank_number rank, const frame_request& x, const frame_reply& reply) const;
  /// The client that named it had it.
  std::optional<pin> end_pin(rank_number rank, owner_id owner, pin_number number, bool fetch);
  void let_go(rank_number rank, pin_number number, const pin& x);
  void answered(rank_number rank, owner_id owner, pin_number number, bool ok, const char* what);
  environment& world_;
  const std::vector<std::unique_ptr<disk>>& disks_;
  std::uint64_t slot_bytes_;
  std::span<std::byte> memory_;
  std::vector<loan> loans_;
  std::map<std::uint64_t, frame> frames_;
  std::vector<rank_record> ranks_;
  std::set<owner_id> known_;
  /// Frames of the answer that is being taken in: no page was moved there, although the bytes of one may still be.
  std::set<std::uint64_t> placing_;
  /// Frames whose pages are being looked for.
  std::set<std::uint64_t> seeking_;
  moment now_ = 0;
  std::function<duration()> paused_;
  std::function<bool(const key_digest&)> is_leased_;
};

} // namespace troupe::simulation
