#pragma once

#include "events/page_book.hpp"
#include "events/stream.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe::events {

/// The state of one request for missed batches: what the requester still has to get, from one stream.
///
/// If the batches from `start` on are kept, they are sent as they are. Otherwise the state of the stream follows as a
/// snapshot: `AllBlocksCleared`, then all pages, then the batches since the snapshot began. A batch that was published
/// while the snapshot was made may be about pages that it contains already; the last word about each page is right
/// then, since a stored page that is stored again, and a removed one that is removed again, change nothing.
///
/// Batches of a snapshot are numbered in ascending order, from `start` on, and the last one has the number of the last
/// published batch that it covers: so for the requester nothing is missing behind it.
class replay {
public:
  /// All changes of the stream must be in batches when the replay begins (`needs_snapshot` says whether that matters).
  replay(std::uint32_t number, std::uint64_t start) : stream_(number), start_(start) {}

  std::uint32_t stream_number() const noexcept { return stream_; }

  struct step {
    std::uint64_t number = 0;
    std::shared_ptr<const std::string> text;
  };
  /// The next batch; none when nothing is left, or when the replay has failed: kept batches were dropped faster than
  /// they were fetched, several times. `wall`: seconds since 1970.
  std::optional<step> next(stream& of, const page_book& book, double wall);

  bool failed() const noexcept { return failed_; }
  /// Whether a snapshot was needed, and how many pages it has left out.
  bool made_snapshot() const noexcept { return snapshots_ > 0; }
  std::uint64_t left_out() const noexcept { return left_out_; }
  /// Whether `next` begins a snapshot, so that pending changes have to be in batches.
  bool begins_snapshot(const stream& of) const noexcept;

  /// Pages of one batch of a snapshot, unless there are too few numbers.
  static constexpr std::uint32_t pages_per_batch = 1024;

private:
  enum class phase : std::uint8_t { begin, snapshot, kept, ended };
  void begin(const stream& of, const page_book& book);
  step next_of_snapshot(const stream& of, const page_book& book, double wall);

  /// How often a snapshot is begun again.
  static constexpr std::uint32_t snapshots_most = 4;

  std::uint32_t stream_;
  std::uint64_t start_;
  phase phase_ = phase::begin;
  bool failed_ = false;
  std::uint32_t snapshots_ = 0;
  std::uint64_t left_out_ = 0;
  /// Where a snapshot continues: the number of its next batch, the last one that it covers, the entry of the book, and
  /// the pages of a batch.
  std::uint64_t number_ = 0;
  std::uint64_t covered_ = 0;
  std::uint32_t entry_ = 0;
  std::uint32_t pages_ = 0;
  bool first_ = true;
  /// Where the replay of kept batches continues, and its end.
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
};

} // namespace troupe::events
