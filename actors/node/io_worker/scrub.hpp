#pragma once

#include "actors/node/io_worker/scrub_pace.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

struct scrub_options {
  /// The pace of the node. Null: no scrubbing.
  std::shared_ptr<scrub_pace> pace{};
  std::uint64_t slot_bytes = 0;
  /// The most pages that a shard lists at once.
  std::uint32_t listed_max = 256;
  /// The longest time that a page waits while clients read, since they may never stop.
  duration patience = std::chrono::seconds(1);
  /// The pause between two passes. The first pass may find little, because it begins before an index is restored.
  duration pass_pause = std::chrono::seconds(10);
  /// The delay before a shard that did not answer is asked again.
  duration retry = std::chrono::seconds(10);
};

/// The schedule of a scrub: it decides which page of a slab is read next, and when, to find damage before a client
/// requests the page. It has no access to disk or pages; its caller reads and verifies.
///
/// A pass covers the live pages of one shard after the other. Shards list them part by part, and a part is read in the
/// order of the slab. One page is read at a time, at the pace that all slabs of the node share. Between `begin` and
/// destruction exactly one of these is the case: a list is wanted, a list was requested, pages wait, a page is being
/// read, or the pause after a pass.
class scrub {
public:
  explicit scrub(scrub_options options) : options_(std::move(options)) {}
  scrub(const scrub&) = delete;
  scrub& operator=(const scrub&) = delete;
  ~scrub() { end(); }

  bool on() const noexcept { return shards_ > 0; }

  /// Starts scrubbing over this number of shards.
  void begin(std::uint32_t shards, timestamp now);
  /// Stops scrubbing; the other slabs get its share of the pace.
  void end();

  struct wish {
    std::uint32_t shard = 0;
    /// The position that the previous answer named; 0 at first.
    std::uint32_t from = 0;
    std::uint32_t most = 0;
  };
  /// The list to request; `listed` or `not_listed` follows.
  std::optional<wish> take_wish(timestamp now);
  void listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now);
  void not_listed(timestamp now);

  /// The next page, if it is due. `busy`: clients wait for the disk. The page counts as being read: `ended` follows, or
  /// `skipped` where it is not read.
  std::optional<page_ref> take_page(bool busy, timestamp now);
  /// The page was not read, and takes no time of the pace.
  void skipped(timestamp now);
  void ended(timestamp now);

  /// The time when `take_wish` or `take_page` next has something, unless another event comes first; empty while a list
  /// or a page is outstanding.
  std::optional<timestamp> next(bool busy) const noexcept;

  /// The number of complete passes since `begin`.
  std::uint64_t passes() const noexcept { return passes_; }

private:
  void go_on(timestamp now);
  /// Joins or leaves the shared pace; it is joined during a pass that has found pages.
  void share_pace(bool wanted);

  scrub_options options_;
  std::uint32_t shards_ = 0;
  std::uint32_t shard_ = 0;
  std::uint32_t from_ = 0;
  /// The shard has more pages than it has listed.
  bool more_ = true;
  bool asked_ = false;
  bool reading_ = false;
  /// The next page is at the end.
  std::vector<page_ref> pages_;
  timestamp not_before_{};
  /// The time that the pace gave to the next page, once it was requested.
  std::optional<timestamp> turn_;
  /// Time spent waiting for pages of other slabs, which is subtracted from its own rests: a slab with small pages often
  /// waits behind large ones.
  duration waited_{};
  bool shares_ = false;
  timestamp ask_at_{};
  std::uint64_t passes_ = 0;
};

} // namespace troupe
