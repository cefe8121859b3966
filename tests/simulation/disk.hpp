#pragma once

#include "base/identifiers.hpp"
#include "io/slab/page_store.hpp"
#include "tests/simulation/environment.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::simulation {

/// One slab file and the engine that serves it. Outlives the node's process. Transfers take any time and end in any
/// order; bytes move at two moments in between, so that a frame or a slot that is reused too early does harm.
///
/// Checks what no engine could: that a slot is transferred once at a time, and that no frame is in two transfers.
class disk {
public:
  using on_complete = std::function<void(const io::completion&)>;

  disk(environment& world, rank_number rank, std::uint64_t slot_bytes);

  /// `aside`: a read that no request waits for, of a slot that continues without it. It takes its time.
  void submit(const io::page_request& what, on_complete done, bool aside = false);

  /// The node's process ends, or the power fails: transfers in progress are completed, or not, or partly, without a
  /// notification.
  void crash();

  /// Flips one bit of the stored page.
  void flip();

  /// Cuts the file off in the middle.
  void truncate();
  /// The result of the io worker's regular check of the file.
  bool damaged() const noexcept { return damaged_; }
  /// A fresh slab in the place of a damaged one.
  void replace();

  /// Whether the page was written and the engine confirmed it.
  bool written(slot_ref where) const noexcept {
    return where.slot < written_.size() && written_[where.slot] == where.generation;
  }
  /// Whether a transfer uses this memory.
  bool uses(std::span<const std::byte> memory) const noexcept;
  bool reads_into(std::span<const std::byte> memory) const noexcept;
  /// The content that a node would find in the slot; zeroes for a slot that the disk does not have.
  std::span<const std::byte> content(slot_ref where) const noexcept;
  /// How many transfers of the slot are in progress, of this generation or an older one.
  std::size_t transfers_of(slot_ref where) const noexcept;
  /// Whether it is being read into memory, for a request or as a prefetch.
  bool is_promoted(slot_ref where) const noexcept;
  /// The slot that most transfers are under way of, if there are any.
  std::optional<slot_ref> busiest_slot() const;
  /// Without reads that no request waits for.
  std::size_t in_flight() const noexcept;

private:
  enum class mishap : std::uint8_t { none, error, lost, misdirected, flipped, hang };

  struct transfer {
    io::page_request what;
    on_complete done;
    mishap wrong = mishap::none;
    bool aside = false;
    /// Write: the bytes as they were when the engine read them.
    std::vector<std::byte> seen;
  };

  mishap choose(io::operation op);
  void check(const io::page_request& what, bool aside);
  std::uint64_t offset_of(const transfer& t) const noexcept { return t.what.where.slot * slot_bytes_; }
  /// The first or the second half of the bytes moves between the buffer and the transfer.
  void touch(transfer& t, bool second);
  void end(std::uint64_t tag);
  errc carry_out(transfer& t);
  errc read(transfer& t);
  /// All sectors, or a random part of them.
  void store(std::span<const std::byte> bytes, std::uint64_t offset, bool torn);

  environment& world_;
  random_source random_;
  rank_number rank_;
  std::uint64_t slot_bytes_;
  std::vector<std::byte> medium_;
  /// Bytes of the file.
  std::uint64_t length_;
  bool damaged_ = false;
  /// Counts crashes, so that earlier plans are dropped.
  std::uint64_t epoch_ = 0;
  /// Transfers by tag.
  std::unordered_map<std::uint64_t, transfer> transfers_;
  std::vector<generation_number> written_;
  std::vector<std::byte> nothing_;
};

} // namespace troupe::simulation
