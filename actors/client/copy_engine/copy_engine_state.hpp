#pragma once

#include "actors/client/copy_engine/mapped_arena.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "io/page.hpp"
#include "io/remote_memory.hpp"
#include "io/shared_memory.hpp"
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
  namespace_id space;
  rank_number rank = 0;
  /// Items per order; more are refused.
  std::uint32_t batch_pages_max = 4096;
  /// Finds the arena of a node.
  std::shared_ptr<io::shared_memory_finder> finder{};
  /// Where the node's arena is elsewhere: exposes memory to it, of so many bytes at most.
  std::shared_ptr<io::memory_exposer> exposer{};
  std::uint64_t remote_bytes = 0;
};

/// The rules of the copy engine of one device: gather blocks into frames of the node's arena and seal the pages there,
/// check pages in frames and scatter them into blocks. The last one to see the bytes of a page before an engine does,
/// so the check is made here, after every copy but the last.
///
/// Orders are those of one attachment of the client, by its owner id. When that has ended, none of it begins any more,
/// and whoever ended it can wait until the last one under way has ended: from then on nothing here touches the frames
/// that it had pinned.
///
/// The calls of several threads at once are safe: orders of both directions are carried out side by side.
class copy_engine_state {
public:
  /// `mover` must be made for the geometry of the namespace. `events`: those that orders may wait for; none if null.
  copy_engine_state(const copy_engine_options& options, std::shared_ptr<page_mover> mover,
                    std::shared_ptr<const device_event_table> events = nullptr);

  /// From now on, orders are those of this attachment, and name frames of this arena. Takes the place of the one
  /// before; orders under way keep the memory they began with. Where it is the same arena, as after a reconnect, what
  /// the device knows of it stays known; else it forgets what it knew of the other one, which takes time. Errors: those
  /// of the finder, and `invalid_argument` for an arena that cannot be; then what was bound before still is.
  result<void> bind(owner_id owner, const arena_info& arena);

  /// The same where the arena is elsewhere: orders name frames of memory that is exposed to the node now, anew for each
  /// attachment, and that nobody else can reach: what is late on its way to the memory of another attachment finds
  /// nothing of this one. Returns what the node is to be told. Errors: `unsupported`, `limit_exceeded` (not even two
  /// pages have room), those of the exposer.
  result<remote_offer> expose(owner_id owner, const arena_info& arena);

  /// No order of this attachment begins any more; what was bound in its place is left alone.
  void end(owner_id owner);

  /// Waits until no order of this attachment, which has ended, is under way.
  void wait_for_rest(owner_id owner);

  /// Unless something is bound: lets go of an arena that cannot be found any more, and of memory that was exposed. A
  /// host has room for the memory of a node once, and a node that comes back needs it before any client can bind to it.
  /// Says whether there is one that can still be found, of a node that may be about to end: then it has to be looked
  /// for again.
  bool drop_lost_arena();

  /// A save: gathers blocks into frames, and seals the pages. An item in which a block is missing (`null_block`) is
  /// out_of_range: a stored page is always whole. So is one whose frame does not lie in one extent of the arena. Where
  /// the device cannot be told of that extent, the item has the error of that.
  ///
  /// One code per item; or why the order failed as a whole: `expired` for another attachment, which is over or not yet
  /// here, `limit_exceeded`, `invalid_argument` for another number of further blocks than the items have and for an
  /// event that is not known, or what the device reports.
  result<copy_reply> gather(const copy_order& order);

  class open_gather;

  /// The same in two steps, for pages whose bytes come into the frames by somebody else: the frames are pinned as long
  /// as what is returned is there, which keeps this. Errors as above; events are not looked at.
  static result<open_gather> begin_gather(const std::shared_ptr<copy_engine_state>& state, const copy_order& order);
  /// Seals the pages whose move is ok; one that has no checksum has been sealed by somebody else.
  copy_reply end_gather(const open_gather& what, const copy_order& order) const;

  /// A load: scatters the pages whose header is that of the item and whose payload is as sealed; what belongs to a
  /// block that is missing is checked like the rest, and not written. Errors as above.
  result<copy_reply> scatter(const copy_order& order);

  /// Why the device could not be told of an extent, for the log: once for each arena.
  std::optional<error> take_trouble();

  /// Orders of a direction that the device carries out at once; at least 1.
  std::uint32_t orders_at_once(move_direction which) const noexcept {
    return std::max(mover_->calls_at_once(which), 1U);
  }

  /// What has made the device unusable for good.
  std::optional<error> failure() const { return mover_->failure(); }

private:
  /// Counts an order as under way.
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
    /// The first member, so that the order has ended when nothing else of it is left.
    order_token token;
    std::shared_ptr<mapped_arena> memory;
    device_events events;
    copy_reply reply;
    std::vector<block_move> moves;
    /// Of each move, in the order.
    std::vector<std::size_t> positions;
  };

  /// Takes the place of the arena before.
  void adopt(owner_id owner, std::shared_ptr<mapped_arena> arena);
  /// The arena before goes, which takes time.
  void let_go();
  result<work> begin(const copy_order& order);
  result<void> find_events(work& job, const copy_order& order) const;
  void add_whole_pages(work& job, const copy_order& order) const;
  void seal(const work& job, const copy_order& order, std::size_t move) const;
  void ended(owner_id owner);
  /// The device knows all extents with frames of the order, or the items have the error.
  result<void> prepare(work& job, const copy_order& order);
  result<void> carry_out(work& job, move_direction direction);
  result<void> move(const work& job, std::span<block_move> moves, move_direction direction);
  void add_move(work& job, const copy_order& order, std::size_t position) const;
  /// The bytes of the item's frame; empty if they do not lie in one extent.
  std::span<std::byte> frame(const work& job, const copy_item& item) const;
  /// The blocks of an item behind the first, in an order with the right number of them.
  std::span<const std::uint32_t> further_blocks(const copy_order& order, std::size_t position) const;
  io::page_identity identity(const copy_item& item) const;

  /// The first, as it keeps the memory that the mover works on.
  copy_engine_options options_;
  std::shared_ptr<page_mover> mover_;
  std::shared_ptr<const device_event_table> events_;
  std::uint32_t blocks_per_page_ = 1;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  /// Guards what follows, and nothing behind the pointer. Lanes take a copy of that for the time of an order, so an
  /// arena that is replaced lives until the last order that began with it has ended, and only then does the device
  /// forget the rest of it.
  std::mutex mutex_;
  /// Of whom orders are taken; 0: of nobody.
  owner_id owner_ = 0;
  /// The last one bound, also when its attachment is over: it may be the next one's as well.
  std::shared_ptr<mapped_arena> arena_;
  /// Orders under way, by attachment; none of them is 0.
  std::map<owner_id, std::size_t> under_way_;
  std::condition_variable order_ended_;
  std::optional<error> trouble_;
  bool trouble_told_ = false;
};

/// An order of `copy_engine_state::begin_gather` that is being carried out.
class copy_engine_state::open_gather {
public:
  /// Of the items whose frames are as they have to be, in their order: the page of each is where its bytes are to come.
  std::span<block_move> moves() noexcept { return work_.moves; }
  /// Of each move, in the order.
  std::span<const std::size_t> positions() const noexcept { return work_.positions; }

private:
  friend class copy_engine_state;
  open_gather(std::shared_ptr<copy_engine_state> state, work what) : state_(std::move(state)), work_(std::move(what)) {}

  /// Goes last.
  std::shared_ptr<copy_engine_state> state_;
  work work_;
};

} // namespace troupe
