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

/// A lease that one shard has granted. Leases of one lookup have the same ticket in all shards.
struct lease_of_shard {
  std::uint32_t shard = 0;
  ticket lease;

  friend auto operator<=>(const lease_of_shard&, const lease_of_shard&) = default;
};

/// Pages of a rank that lookups have found and that will probably be fetched: those that wait to be read, first come,
/// first served, and the frames of those that were read, until somebody fetches them. What a lease asked for is
/// forgotten when it ends. Knows no frames but by number, and reads nothing.
class prefetch_queue {
public:
  /// Pages that may wait at once.
  explicit prefetch_queue(std::size_t waiting_max) : waiting_max_(waiting_max) {}

  /// `first` is the place of the first page in its lease. How many of the pages were left out because too many wait.
  std::size_t add(const lease_of_shard& by, std::uint32_t first, std::span<const page_ref> pages);

  /// The page whose turn it is; there must be one that waits.
  const page_ref& front() const;
  /// It needs no frame after all.
  void skip();
  /// It is being read into this frame, which was not here.
  void begin(frame_number f);

  /// Somebody has fetched the page of the frame. Whether it is one of these.
  bool fetched(frame_number f) { return remove(f); }
  /// The frame has no page of these any more.
  void lost(frame_number f) { remove(f); }
  /// The page of the one frame, if it is one of these, is in the other one, which is not here.
  void moved(frame_number from, frame_number to);

  /// Of the lease, only pages at the first `keep` places are asked for. How many that waited do not any more.
  std::size_t end(const lease_of_shard& by, std::uint32_t keep);
  /// The same for all leases of the client.
  std::size_t end_owner(owner_id owner);
  /// And for all there are.
  std::size_t end_all();

  std::size_t waiting() const noexcept { return waiting_; }
  /// Frames of pages that nobody has fetched.
  std::size_t unfetched() const noexcept { return frames_.size(); }

  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  struct item {
    std::uint32_t place = 0;
    page_ref page;
  };
  /// What one lease asked for.
  struct wish {
    std::deque<item> waiting;
    /// By place in the lease.
    std::set<std::pair<std::uint32_t, frame_number>> brought;
    /// When it came, among all.
    std::uint64_t turn = 0;
  };
  using wishes = std::map<lease_of_shard, wish>;

  struct brought_page {
    lease_of_shard by;
    std::uint32_t place = 0;
  };

  bool remove(frame_number f);
  /// Forgets what is empty.
  void settle(wishes::iterator x);
  std::size_t cut(wishes::iterator x, std::uint32_t keep);
  item take_front(wishes::iterator x);

  // `by_turn_` has the wishes with pages that wait, and no others; a wish has pages that wait, or frames. Each frame in
  // `frames_` is in the wish that it names, and no others are.

  std::size_t waiting_max_;
  wishes wishes_;
  std::map<std::uint64_t, wishes::iterator> by_turn_;
  std::unordered_map<frame_number, brought_page> frames_;
  std::size_t waiting_ = 0;
  std::uint64_t last_turn_ = 0;
};

} // namespace troupe
