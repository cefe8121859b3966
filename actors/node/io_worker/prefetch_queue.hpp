#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "base/identifiers.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

/// A lease that one shard has granted. The leases of one lookup have the same ticket in all shards.
struct lease_of_shard {
  std::uint32_t shard = 0;
  ticket lease;

  friend auto operator<=>(const lease_of_shard&, const lease_of_shard&) = default;
};

/// A first-in, first-out queue of pages of a rank that lookups have found and that will probably be fetched: pages that
/// wait to be read, and the frames of pages that were read, until a fetch requests them. The pages of a lease are
/// removed when it ends. It knows frames only by number, and reads nothing.
class prefetch_queue {
public:
  /// `waiting_max`: the most pages that wait at once.
  explicit prefetch_queue(std::size_t waiting_max) : waiting_max_(waiting_max) {}

  /// Adds pages; `first` is the place of the first one in its lease. Returns the number of pages that were left out
  /// because too many wait.
  std::size_t add(const lease_of_shard& by, std::uint32_t first, std::span<const page_ref> pages);

  /// The next page; at least one must wait.
  const page_ref& front() const;
  /// Removes the next page, which needs no frame.
  void skip();
  /// The next page is being read into this frame, which was not in the queue.
  void begin(frame_number f);

  /// The page of the frame was fetched. Returns whether the frame was in the queue.
  bool fetched(frame_number f) { return remove(f); }
  /// The frame no longer has a page of the queue.
  void lost(frame_number f) { remove(f); }
  /// The page of frame `from`, if it is in the queue, is now in frame `to`, which is not in the queue.
  void moved(frame_number from, frame_number to);

  /// Keeps only the pages at the first `keep` places of the lease. Returns the number of waiting pages that were
  /// removed.
  std::size_t end(const lease_of_shard& by, std::uint32_t keep);
  /// Removes the pages of all leases of the client.
  std::size_t end_owner(owner_id owner);
  /// Removes all pages.
  std::size_t end_all();

  std::size_t waiting() const noexcept { return waiting_; }
  /// The number of frames whose pages were not fetched yet.
  std::size_t unfetched() const noexcept { return frames_.size(); }

  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  struct item {
    std::uint32_t place = 0;
    page_ref page;
  };
  /// The pages of one lease.
  struct wish {
    std::deque<item> waiting;
    /// Frames that were read, by place in the lease.
    std::set<std::pair<std::uint32_t, frame_number>> brought;
    /// Its position in the order of arrival.
    std::uint64_t turn = 0;
  };
  using wishes = std::map<lease_of_shard, wish>;

  struct brought_page {
    lease_of_shard by;
    std::uint32_t place = 0;
  };

  bool remove(frame_number f);
  /// Removes the entry if it is empty.
  void settle(wishes::iterator x);
  std::size_t cut(wishes::iterator x, std::uint32_t keep);
  item take_front(wishes::iterator x);

  // `by_turn_` has exactly the entries with waiting pages. An entry has waiting pages, or frames. Each frame in
  // `frames_` is in the entry that it names, and no others are.

  std::size_t waiting_max_;
  wishes wishes_;
  std::map<std::uint64_t, wishes::iterator> by_turn_;
  std::unordered_map<frame_number, brought_page> frames_;
  std::size_t waiting_ = 0;
  std::uint64_t last_turn_ = 0;
};

} // namespace troupe
