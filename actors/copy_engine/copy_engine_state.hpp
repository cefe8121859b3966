#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/page_mover.hpp"
#include "io/page.hpp"
#include "io/segment.hpp"
#include "messages/io_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

struct copy_engine_options {
  namespace_id space;
  rank_number rank = 0;
  /// Items per order; more are refused.
  std::uint32_t batch_pages_max = 4096;
};

/// The rules of the copy engine of one device: gather blocks into page buffers and seal them, verify page buffers and
/// scatter them into blocks. The last one to see the bytes of a page before an engine does, so the check is made
/// here, after every copy but the last.
class copy_engine_state {
public:
  /// `mover` must be made for the geometry of the namespace.
  copy_engine_state(const copy_engine_options& options, std::unique_ptr<page_mover> mover);

  /// From now on, orders name this segment. Replaces the one before, as after a reconnect.
  void bind(std::uint64_t id, std::shared_ptr<io::segment> memory);

  /// An answer in which everything is well so far, or why the order is refused as a whole: `expired` for another
  /// segment, whose node is gone. The steps below add what goes wrong, item by item.
  result<copy_reply> begin(const copy_order& order) const;

  /// A save: first gather, then seal.
  void gather(const copy_order& order, copy_reply& reply);
  void seal(const copy_order& order, copy_reply& reply);

  /// A load: first verify, then scatter what is sound.
  void verify(const copy_order& order, copy_reply& reply);
  void scatter(const copy_order& order, copy_reply& reply);

private:
  template <class Move>
  void move_sound(const copy_order& order, copy_reply& reply, Move move);
  /// The bytes of the item's page buffer; empty if they lie outside of the segment.
  std::span<std::byte> buffer(const copy_item& item) const;
  io::page_identity identity(const copy_item& item) const;

  copy_engine_options options_;
  std::unique_ptr<page_mover> mover_;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t segment_id_ = 0;
  std::shared_ptr<io::segment> segment_;
};

} // namespace troupe
