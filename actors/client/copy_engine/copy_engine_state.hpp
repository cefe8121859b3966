#pragma once

#include "actors/client/copy_engine/encoding_choice.hpp"
#include "actors/client/copy_engine/mapped_arena.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "io/memory/remote_memory.hpp"
#include "io/memory/shared_memory.hpp"
#include "io/page.hpp"
#include "messages/io_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

struct copy_engine_options {
  namespace_id ns;
  rank_number rank = 0;
  /// Items per order; more are refused.
  std::uint32_t batch_pages_max = 4096;
  /// Finds the arena of a node.
  std::shared_ptr<io::shared_memory_finder> finder{};
  /// For a node on another host: exposes memory to it, `remote_bytes` at most.
  std::shared_ptr<io::memory_exposer> exposer{};
  std::uint64_t remote_bytes = 0;
  /// Whether pages are encoded where that pays off (`encoding_choice`). Pages that are encoded are read either way.
  bool encodes = false;
};

/// The rules of the copy engine of one device: it gathers blocks into frames of the node's arena and seals the pages
/// there, and it checks pages in frames and scatters them into blocks. The check is made here because this is the last
/// code to see a page before an engine does, after every copy but the last.
///
/// Orders belong to one attachment of the client, by its owner id. When that has ended, none of its orders begins any
/// more, and `wait_for_quiesce` waits until the last one in progress has ended. From then on nothing here accesses the
/// frames that it had pinned.
///
/// Safe for calls of several threads at once: orders of both directions are carried out in parallel.
class copy_engine_state {
public:
  /// `mover` must be made for the geometry of the namespace. `events`: those that orders may wait for; null: none.
  copy_engine_state(const copy_engine_options& options, std::shared_ptr<page_mover> mover,
                    std::shared_ptr<const device_event_table> events = nullptr);

  /// Makes this attachment and arena current: orders belong to this attachment and name frames of this arena. Replaces
  /// the one before; orders in progress keep the memory that they began with. For the same arena, as after a reconnect,
  /// the device keeps its registration; else the old arena is unregistered, which takes time. Errors: those of the
  /// finder, and `invalid_argument` for an invalid arena; then the earlier binding stays.
  result<void> bind(owner_id owner, const arena_info& arena);

  /// The same where the arena is on another host: orders name frames of memory that is exposed to the node, anew for
  /// each attachment and inaccessible to others. So a late transfer for another attachment does not reach this memory.
  /// Returns the offer to be sent to the node. Errors: `unsupported`, `limit_exceeded` (two pages do not fit), those of
  /// the exposer.
  result<remote_offer> expose(owner_id owner, const arena_info& arena);

  /// Starts no more orders of this attachment; a newer binding is not affected.
  void end(owner_id owner);

  /// Waits until no order of this attachment, which has ended, is in progress.
  void wait_for_quiesce(owner_id owner);

  /// Unless something is bound: releases an arena that cannot be found any more, and exposed memory. A host has room
  /// for the memory of a node only once, and a node that restarts needs it before any client can bind to it. Returns
  /// whether an arena can still be found, of a node that may be about to end: then call it again later.
  bool drop_lost_arena();

  /// A save: gathers blocks into frames, and seals the pages. An item with a missing block (`null_block`) is
  /// out_of_range, because a stored page is always whole. So is one whose frame is not in a single extent of the arena.
  /// One in a frame for encoded pages that has no encoding is `unsupported`: its caller needs a whole frame for it.
  /// Where the extent cannot be registered with the device, the item has that error.
  ///
  /// Returns one code per item, or why the order failed as a whole: `expired` for an attachment that has ended or not
  /// begun, `limit_exceeded`, `invalid_argument` for a wrong number of further blocks or an unknown event, or the error
  /// of the device.
  result<copy_reply> gather(const copy_order& order);

  class open_gather;

  /// The same in two steps, for pages whose bytes another component writes into the frames. The frames are pinned as
  /// long as the returned object lives, which keeps this state alive. Errors as above; events are ignored.
  static result<open_gather> begin_gather(const std::shared_ptr<copy_engine_state>& state, const copy_order& order);
  /// Seals the pages whose move is ok; a page without a checksum has been sealed already.
  copy_reply end_gather(const open_gather& what, const copy_order& order) const;

  /// A load: scatters the pages whose header matches the item and whose payload matches its checksum. The part of a
  /// missing block is checked like the rest, and not written. Errors as above.
  result<copy_reply> scatter(const copy_order& order);

  /// Why an extent could not be registered with the device, for the log: once for each arena.
  std::optional<error> take_trouble();

  /// Orders of a direction that the device carries out at once; at least 1.
  std::uint32_t orders_at_once(move_direction which) const noexcept {
    return std::max(mover_->calls_at_once(which), 1U);
  }

  /// What has made the device unusable for good.
  std::optional<error> failure() const { return mover_->failure(); }

private:
  /// Counts an order as in progress.
  class order_token {
  public:
    order_token() = default;
    order_token(copy_engine_state* state, owner_id owner) noexcept : state_(state), owner_(owner) {}
    order_token(order_token&& other) noexcept : state_(std::exchange(other.state_, nullptr)), owner_(other.owner_) {}
    order_token& operator=(order_token&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(owner_, other.owner_);
      return *this;
    }
    ~order_token() {
      if (state_ != nullptr)
        state_->ended(owner_);
    }

  private:
    copy_engine_state* state_ = nullptr;
    owner_id owner_ = 0;
  };

  /// An order, as far as it is carried out.
  struct work {
    /// The first member, so that it is destroyed last and the order ends after the rest.
    order_token token;
    std::shared_ptr<mapped_arena> memory;
    device_events events;
    copy_reply reply;
    std::vector<block_move> moves;
    /// The position in the order, for each move.
    std::vector<std::size_t> positions;
  };

  /// Replaces the current arena.
  void adopt(owner_id owner, std::shared_ptr<mapped_arena> arena);
  /// Releases the current arena, which takes time.
  void let_go();
  result<work> begin(const copy_order& order);
  result<void> find_events(work& job, const copy_order& order) const;
  void add_whole_pages(work& job, const copy_order& order) const;
  /// Decides how many pages of a save are encoded, the first ones in whole frames, and learns from what became of them.
  /// Those in frames for encoded pages are encoded in any case.
  encoding_choice::plan choose_encoding(work& job, const copy_order& order);
  void note_encoding(work& job, const copy_order& order, const encoding_choice::plan& plan);
  void seal(const work& job, const copy_order& order, std::size_t move) const;
  void ended(owner_id owner);
  /// Registers all extents with frames of the order with the device, or sets the error of the items.
  result<void> prepare(work& job, const copy_order& order);
  result<void> carry_out(work& job, move_direction direction);
  result<void> move(const work& job, std::span<block_move> moves, move_direction direction);
  void add_move(work& job, const copy_order& order, std::size_t position) const;
  /// The bytes of the item's frame; empty if they are not in one extent.
  std::span<std::byte> frame(const work& job, const copy_item& item) const;
  /// The blocks of an item after the first, in an order with a valid number of them.
  std::span<const std::uint32_t> further_blocks(const copy_order& order, std::size_t position) const;
  io::page_identity identity(const copy_item& item) const;

  /// The first member, as it keeps the memory that the mover uses.
  copy_engine_options options_;
  std::shared_ptr<page_mover> mover_;
  std::shared_ptr<const device_event_table> events_;
  std::uint32_t blocks_per_page_ = 1;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t encoded_slot_bytes_ = 0;
  bool encodes_ = false;
  /// Guards the members below, but not the arena itself. Lanes hold a reference to it for the time of an order, so a
  /// replaced arena lives until the last order that began with it has ended, and the device unregisters it after that.
  std::mutex mutex_;
  /// The attachment whose orders are accepted; 0: none.
  owner_id owner_ = 0;
  /// The last arena that was bound, kept after its attachment has ended, because the next one may use it too.
  std::shared_ptr<mapped_arena> arena_;
  /// Orders in progress, by attachment; no count is 0.
  std::map<owner_id, std::size_t> under_way_;
  std::condition_variable order_ended_;
  std::optional<error> trouble_;
  bool trouble_notified_ = false;
  encoding_choice choice_;
};

/// An order of `copy_engine_state::begin_gather` that is being carried out.
class copy_engine_state::open_gather {
public:
  /// One move for each item with a valid frame, in their order: its page is where the bytes have to be written.
  std::span<block_move> moves() noexcept { return work_.moves; }
  /// The position in the order, for each move.
  std::span<const std::size_t> positions() const noexcept { return work_.positions; }

private:
  friend class copy_engine_state;
  open_gather(std::shared_ptr<copy_engine_state> state, work what) : state_(std::move(state)), work_(std::move(what)) {}

  /// Destroyed last.
  std::shared_ptr<copy_engine_state> state_;
  work work_;
};

} // namespace troupe
