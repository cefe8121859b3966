#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/device_event_table.hpp"
#include "gpu/page_mover.hpp"
#include "io/page.hpp"
#include "io/shared_memory.hpp"
#include "messages/io_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

struct copy_engine_options {
  namespace_id space;
  rank_number rank = 0;
  /// Items per order; more are refused.
  std::uint32_t batch_pages_max = 4096;
  /// Finds page buffers that a node has lent.
  std::shared_ptr<io::shared_memory_finder> finder{};
};

/// The rules of the copy engine of one device: gather blocks into page buffers and seal them, check page buffers and
/// scatter them into blocks. The last one to see the bytes of a page before an engine does, so the check is made
/// here, after every copy but the last.
///
/// The calls of several threads at once are safe: orders of both directions are carried out side by side.
class copy_engine_state {
public:
  /// `mover` must be made for the geometry of the namespace. `events`: those that orders may wait for; none if null.
  copy_engine_state(const copy_engine_options& options, std::shared_ptr<page_mover> mover,
                    std::shared_ptr<const device_event_table> events = nullptr);

  /// From now on, orders name this segment. Replaces the one before, as after a reconnect; orders under way keep the
  /// memory they began with. Takes as long as locking the memory for the device does. Errors: those of
  /// `page_mover::prepare`; then no segment is bound.
  result<void> bind(std::uint64_t id, std::shared_ptr<io::shared_memory> memory);

  /// The same, with what a node has lent. Errors also: those of the finder; then what was bound before still is.
  result<void> bind(const segment_info& lent);

  /// A save: gathers blocks into page buffers, and seals those. An item in which a block is missing (`null_block`) is
  /// out_of_range: a stored page is always whole.
  ///
  /// One code per item; or why the order failed as a whole: `expired` for another segment, whose node is gone,
  /// `limit_exceeded`, `invalid_argument` for another number of further blocks than the items have and for an event
  /// that is not known, or what the device reports.
  result<copy_reply> gather(const copy_order& order);

  /// A load: scatters the page buffers whose header is that of the item and whose payload is as sealed; what belongs to
  /// a block that is missing is checked like the rest, and not written. Errors as above.
  result<copy_reply> scatter(const copy_order& order);

  /// Orders of one direction that the device carries out at once; at least 1.
  std::uint32_t orders_at_once() const noexcept { return std::max(mover_->calls_at_once(), 1U); }

  /// What has made the device unusable for good.
  std::optional<error> failure() const { return mover_->failure(); }

private:
  /// A segment, prepared for the mover as long as an order uses it.
  class binding {
  public:
    static result<std::shared_ptr<binding>> make(std::uint64_t id, std::shared_ptr<io::shared_memory> memory,
                                                 std::shared_ptr<page_mover> mover);
    binding(const binding&) = delete;
    binding& operator=(const binding&) = delete;
    ~binding() { mover_->forget(memory_->bytes()); }

    std::uint64_t id() const noexcept { return id_; }
    std::span<std::byte> bytes() const noexcept { return memory_->bytes(); }

  private:
    binding(std::uint64_t id, std::shared_ptr<io::shared_memory> memory, std::shared_ptr<page_mover> mover) noexcept;

    std::uint64_t id_;
    std::shared_ptr<io::shared_memory> memory_;
    std::shared_ptr<page_mover> mover_;
  };

  /// An order, as far as it is carried out.
  struct work {
    std::shared_ptr<binding> memory;
    device_events events;
    copy_reply reply;
    std::vector<block_move> moves;
    /// Of each move, in the order.
    std::vector<std::size_t> positions;
  };

  result<work> begin(const copy_order& order) const;
  result<void> carry_out(work& job, move_direction direction);
  result<void> move(const work& job, std::span<block_move> moves, move_direction direction);
  void add_move(work& job, const copy_order& order, std::size_t position) const;
  /// The bytes of the item's page buffer; empty if they lie outside of the segment.
  std::span<std::byte> buffer(const work& job, const copy_item& item) const;
  /// The blocks of an item behind the first, in an order with the right number of them.
  std::span<const std::uint32_t> further_blocks(const copy_order& order, std::size_t position) const;
  io::page_identity identity(const copy_item& item) const;

  copy_engine_options options_;
  std::shared_ptr<page_mover> mover_;
  std::shared_ptr<const device_event_table> events_;
  std::uint32_t blocks_per_page_ = 1;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  /// Guards the pointer and nothing behind it. Lanes take a copy for the time of an order, so a binding that is
  /// replaced lives until the last order that began with it has ended, and only then does the device forget the memory.
  mutable std::mutex mutex_;
  std::shared_ptr<binding> binding_;
};

} // namespace troupe
