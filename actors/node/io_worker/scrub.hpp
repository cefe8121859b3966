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
  /// That of the node. Null: nothing is read.
  std::shared_ptr<scrub_pace> pace{};
  std::uint64_t slot_bytes = 0;
  /// Pages that a shard lists at once.
  std::uint32_t listed_max = 256;
  /// For how long a page waits for clients that read. They may never cease to.
  duration patience = std::chrono::seconds(1);
  /// Between the end of a pass and the next one. The first may find little, as it begins before an index is restored.
  duration pass_pause = std::chrono::seconds(10);
  /// Until a shard is asked again that gave no answer.
  duration retry = std::chrono::seconds(10);
};

/// Which page of a slab is to be read next, and when, though nobody asks for it: to find out what the disk has lost
/// before somebody wants it. Knows no disk and no page: whoever has both reads and judges.
///
/// A pass goes over the live pages of one shard after the other, as these list them part by part, and within a part in
/// the order of the slab. One page is read at a time, at the pace that all slabs of the node share. Between `begin` and
/// the end of the object, exactly one of these is the case: a list is wanted, a list is on its way, pages wait, a page
/// is read, or the pass has a pause.
class scrub {
public:
  explicit scrub(scrub_options options) : options_(std::move(options)) {}
  scrub(const scrub&) = delete;
  scrub& operator=(const scrub&) = delete;
  ~scrub() { end(); }

  bool on() const noexcept { return shards_ > 0; }

  /// There are so many shards to ask.
  void begin(std::uint32_t shards, timestamp now);
  /// Nothing is wanted any more; others have its part of the pace.
  void end();

  struct wish {
    std::uint32_t shard = 0;
    /// As the answer before said where to go on; 0 at first.
    std::uint32_t from = 0;
    std::uint32_t most = 0;
  };
  /// A list to ask for; `listed` or `not_listed` follows.
  std::optional<wish> take_wish(timestamp now);
  void listed(std::vector<page_ref> pages, std::uint32_t next, bool more, timestamp now);
  void not_listed(timestamp now);

  /// The page whose turn it is, if its time has come; `busy`: somebody waits for the disk. It counts as read from now
  /// on: `ended` follows, or `skipped` where there is no reading it.
  std::optional<page_ref> take_page(bool busy, timestamp now);
  /// Costs no time.
  void skipped(timestamp now);
  void ended(timestamp now);

  /// When `take_wish` or `take_page` has something, unless something else happens before; nothing: when a list or a
  /// page comes to its end.
  std::optional<timestamp> next(bool busy) const noexcept;

  /// Over all of its life.
  std::uint64_t passes() const noexcept { return passes_; }

private:
  void go_on(timestamp now);
  /// Within a pass that has found pages, others leave this slab its part of the pace.
  void share_pace(bool wanted);

  scrub_options options_;
  std::uint32_t shards_ = 0;
  std::uint32_t shard_ = 0;
  std::uint32_t from_ = 0;
  /// This shard has more than was listed.
  bool more_ = true;
  bool asked_ = false;
  bool reading_ = false;
  /// The next one at the end.
  std::vector<page_ref> pages_;
  timestamp not_before_{};
  /// When the pace lets the next page be read, once that was asked for.
  std::optional<timestamp> turn_;
  /// For pages of others, and to be taken off its own rests: one with small pages waits often behind large ones.
  duration waited_{};
  bool shares_ = false;
  timestamp ask_at_{};
  std::uint64_t passes_ = 0;
};

} // namespace troupe
