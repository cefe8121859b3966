#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace troupe {

/// A transfer of a page between slab and memory, in progress or about to start: it exists already while a page is
/// verified before it is written.
struct page_transfer {
  frame_number frame = no_frame;
  slot_number slot = 0;
  bool read = false;
  /// A read that no fetch had requested when it began.
  bool ahead = false;
  /// The size of the request, once it is made.
  std::uint64_t bytes = 0;

  friend bool operator==(const page_transfer&, const page_transfer&) = default;
};

/// The transfers of a rank by their tags, which are never used again.
///
/// Invariant: each transfer is either a read or a write, so `reads() + writes() == size()`, and the reads ahead are
/// some of the reads.
class transfer_table {
public:
  /// Adds the transfer and returns its tag.
  std::uint64_t begin(const page_transfer& x);
  /// A tag for a request that is no transfer of a slot. No transfer has it.
  std::uint64_t unused_tag() noexcept { return ++last_; }
  /// The transfer, which has not ended, is requested with so many bytes.
  void requested(std::uint64_t tag, std::uint64_t bytes) { transfers_.at(tag).bytes = bytes; }
  /// The transfer with this tag, if it has not ended.
  std::optional<page_transfer> find(std::uint64_t tag) const;
  /// Removes and returns the transfer with this tag, if it has not ended.
  std::optional<page_transfer> end(std::uint64_t tag);

  std::size_t size() const noexcept { return transfers_.size(); }
  std::size_t reads() const noexcept { return reads_; }
  std::size_t reads_ahead() const noexcept { return reads_ahead_; }
  std::size_t writes() const noexcept { return transfers_.size() - reads_; }

  template <class F>
  void for_each(F f) const {
    for (const auto& [tag, x] : transfers_)
      f(x);
  }

private:
  std::unordered_map<std::uint64_t, page_transfer> transfers_;
  std::size_t reads_ = 0;
  std::size_t reads_ahead_ = 0;
  std::uint64_t last_ = 0;
};

} // namespace troupe
