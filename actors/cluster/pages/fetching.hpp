#pragma once

#include "actors/cluster/pages/staging_buffer.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// The number of a request to a peer or to this node; never reused.
using fetch_call = std::uint64_t;
/// The number of a caller that waits for pages.
using prefix_fetch_number = std::uint64_t;

/// A lookup at a peer. Every such call is answered, by `on_found`.
struct fetch_ask {
  fetch_call call = 0;
  peer_number peer = 0;
  namespace_id ns;
  std::vector<key_digest> keys;
};
struct fetch_release {
  peer_number peer = 0;
  namespace_id ns;
  ticket lease;
  /// Keys of which this node has made pages from those under the lease, and keeps them.
  std::vector<key_digest> kept_here{};
};
/// Load pages of a rank from a peer and save them at this node, through blocks of a staging buffer, which belong to
/// this call until it is answered by `on_moved`.
struct fetch_move {
  fetch_call call = 0;
  peer_number peer = 0;
  namespace_id ns;
  std::uint32_t rank = 0;
  transfer_task work;
};
/// The answer: the number of leading keys that are here.
struct fetch_answer {
  prefix_fetch_number requester = 0;
  std::uint32_t keys = 0;
  /// Of a run: the keys that it has made pages of.
  std::vector<key_digest> made{};
};
/// The peer has not answered in time.
struct fetch_late {
  peer_number peer = 0;
};

using fetch_effect = std::variant<fetch_ask, fetch_release, fetch_move, fetch_answer, fetch_late>;

/// Keys to be fetched from one peer, on which the caller has a lease. No peer is asked, and the lease is not released.
struct fetch_run {
  namespace_id ns;
  peer_number peer = 0;
  /// The key before the first one, or null.
  key_digest parent;
  std::vector<key_digest> keys;
  /// As in `transfer_task`.
  bool chained = true;
  timestamp until;
};

/// Counts of pages that a peer was to send.
struct sending_counts {
  std::uint64_t failed = 0;
  /// Pages sent that came from the peer's slab files; then those that could not be read from there, by reason.
  std::uint64_t from_files = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;

  /// Adds the outcome of a load of `pages` pages.
  void add(const result<transfer_result>& outcome, std::size_t pages);
};

struct fetch_counts {
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  std::uint64_t late = 0;
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;
  /// Pages loaded that came from the peer's slab files; then those that could not be read from there, by reason.
  std::uint64_t file_pages = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
};

struct fetching_options {
  /// For peers to answer a lookup.
  duration ask_limit{};
  /// For a caller to wait.
  duration wait_limit{};
  /// For the pages of one round to arrive.
  duration move_limit{};
  /// The most pages that move together; not more than the keys that the node takes in one request.
  std::uint32_t chunk_pages = 32;
  /// The most rounds in progress, and the most callers that wait. One more is answered at once that there is nothing.
  std::size_t rounds_max = 256;
  std::size_t waiting_max = 4096;
  /// Returns the peers to ask for pages of a namespace now.
  std::function<std::vector<peer_number>(const namespace_id&)> peers;
  /// Whether this node keeps what it fetches and the peer marks its copy to be evicted first; else this node marks its
  /// own.
  bool keep_copies = true;
  /// Peers from this number on are dead nodes. They answer lookups at once, and are fetched from only where no live
  /// peer has as much. Reading what they have left takes as long as the file system needs.
  peer_number first_dead = ~peer_number{0};
  /// A round is cut into a chunk for each copy that a rank can have in progress, within these bounds. Below the
  /// minimum, messages cost more than parallel copies gain; above the maximum, a copy thread waits for messages between
  /// chunks. A page is never cut.
  std::uint64_t chunk_bytes_min = std::uint64_t{2} << 20U;
  std::uint64_t chunk_bytes_max = std::uint64_t{16} << 20U;
};

/// Fetches pages of other nodes: plain rules.
///
/// A caller that misses keys waits for a *round*: all peers are asked at once how many of the keys they have, from the
/// first one on, and lease these. The peer that has most of them is the source; a live one is preferred to a dead one.
/// The others give their leases back. The pages arrive in chunks, rank by rank, are verified as in any load, and are
/// saved as any page is. So a round results either in pages of this node, or in nothing.
///
/// A key is in one round at most: a caller that misses a key in transfer waits for that round. If keys are left when a
/// round has ended, the next one asks all peers but the last source, because the parts of a prefix may be spread over
/// several nodes.
///
/// To limit copies in the cluster, one of the two nodes that have a page after a fetch evicts its own first. Either the
/// peer does, after it was notified of what is kept here, or this node does, whose pages are then marked as evicted
/// first. A peer is notified only of pages that were made here under the lease that it gave, not of pages that were
/// here before. So the holder of the newest copy of a page is never notified of it, whichever nodes copy from each
/// other at the same time.
///
/// Where several peers may be fetched from, a peer takes more blocks of a rank only while it holds at most three times
/// as many as are free then (a dynamic threshold). So one that sends slowly, or not at all, leaves room for the others,
/// and no share is set aside for peers that send nothing.
///
/// No caller waits longer than `wait_limit`, including earlier rounds; a round continues without the caller that waited
/// for it. A peer that is late or dies costs the round, and never causes wrong data: what counts is what the shards of
/// this node have in the end.
class fetching {
public:
  explicit fetching(fetching_options options) : options_(std::move(options)) {}

  /// Adds the staging buffers of a namespace: `blocks` blocks for each of its ranks. `copies_at_once`: how many chunks
  /// are copied at the same time.
  void add_namespace(const namespace_id& ns, std::uint64_t page_bytes, std::uint32_t ranks, std::uint32_t blocks,
                     std::uint32_t copies_at_once = 1);
  /// Stops using it: rounds end when their calls have returned, and `is_in_use` is true until then.
  void remove_namespace(const namespace_id& ns);
  bool is_in_use(const namespace_id& ns) const { return namespaces_.contains(ns); }

  prefix_fetch_number wanted_prefix(const prefix_fetch_request& wanted, timestamp now);
  /// As `wanted_prefix`, where the source is known. Keys that are in a round already are waited for; a page that does
  /// not come ends the run.
  prefix_fetch_number wanted_run(const fetch_run& wanted, timestamp now);

  void on_found(fetch_call call, const result<lookup_result>& found, timestamp now);
  /// `outcome`: that of the save. The call no longer accesses its blocks.
  void on_moved(fetch_call call, const result<transfer_result>& outcome, const sending_counts& sent, timestamp now);
  void on_tick(timestamp now);

  /// The time of the next `on_tick`: when the first limit runs out, or a little before. In the past if a round of a
  /// removed namespace waits for its calls. `timestamp::max()` if there is no limit.
  timestamp next_event() const noexcept { return is_idle() ? timestamp::max() : next_event_; }
  /// No caller waits, and no pages are in transfer.
  bool is_idle() const noexcept { return rounds_.empty() && waiting_.empty(); }
  std::size_t rounds() const noexcept { return rounds_.size(); }
  std::size_t calls_under_way() const noexcept { return calls_.size(); }
  /// The blocks in use in all staging buffers.
  std::size_t blocks_in_use() const;

  fetch_counts counts(peer_number peer) const;
  /// The counts of a peer that was asked; scratch counts if it was left out meanwhile.
  fetch_counts& counts_for(peer_number peer);
  /// Counts that a peer is asked.
  void count_asked(peer_number peer) { ++counts_[peer].asked; }
  /// The number of rounds that pages of the peer come by.
  std::size_t moving_from(peer_number peer) const;
  /// Deletes the counts of a peer that is left out.
  void forget(peer_number peer) { counts_.erase(peer); }

  std::vector<fetch_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  using round_number = std::uint64_t;

  struct place {
    round_number round = 0;
    std::uint32_t position = 0;
  };
  struct namespace_entry {
    std::uint64_t page_bytes = 0;
    std::uint32_t copies_at_once = 1;
    bool removed = false;
    /// The free blocks of each rank, and how many each peer holds of the others.
    std::vector<block_free_list> shelves;
    std::vector<std::map<peer_number, std::size_t>> held;
    std::unordered_map<key_digest, place> on_their_way;
  };
  struct rank_progress {
    /// The first page whose transfer has not started.
    std::uint32_t next = 0;
    /// The number of leading pages that are here.
    std::uint32_t here = 0;
    std::vector<std::uint8_t> done;
    /// Those of them that this round made.
    std::vector<std::uint8_t> made;
  };
  struct offer {
    peer_number peer = 0;
    std::uint32_t keys = 0;
    ticket lease;
  };
  struct round {
    namespace_id ns;
    key_digest parent;
    std::vector<key_digest> keys;
    timestamp ask_until;
    timestamp until;
    /// Peers that have not answered yet; then the offers of those that have.
    std::vector<peer_number> asked;
    std::vector<offer> offers;
    bool moving = false;
    /// Set for a run, whose lease is the caller's.
    bool is_run = false;
    bool chained = true;
    /// The offer that is fetched from, and the most keys to fetch.
    offer source;
    std::uint32_t limit = 0;
    std::vector<rank_progress> ranks;
    std::size_t calls = 0;
  };
  struct waiting {
    prefix_fetch_request wanted;
    std::uint32_t have = 0;
    timestamp until;
    /// The keys that it waits for: `count` keys of the round, from position `first` on.
    round_number round = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    /// Peers known not to have the next key, since they have been fetched from up to there.
    std::vector<peer_number> used;
    /// Where the source is known: it, the round that is its own, whether that brought less than it should, and what it
    /// has made pages of.
    struct known_source {
      peer_number peer = 0;
      bool chained = true;
      round_number own = 0;
      bool failed = false;
      std::vector<key_digest> made;
    };
    std::optional<known_source> source;
  };
  struct call {
    round_number round = 0;
    namespace_id ns;
    peer_number peer = 0;
    std::uint32_t rank = 0;
    std::uint32_t first = 0;
    std::vector<std::uint32_t> blocks;
  };

  /// Continues with the keys that are missing, or answers.
  void go_on(prefix_fetch_number requester, timestamp now);
  prefix_fetch_number wait(waiting x, timestamp now);
  /// False if there is no peer to ask.
  bool begin_round(waiting& x, timestamp now);
  /// False if the source has failed already.
  bool begin_run(waiting& x, timestamp now);
  round& new_round(waiting& requester, timestamp now);
  void begin_moving(round& x, std::uint32_t limit);
  void wait_for(waiting& x, const place& where);
  void choose(round_number number, timestamp now);
  /// Starts as many chunks as there are free blocks.
  void pump(const namespace_id& ns, timestamp now);
  void move(round_number number, round& x, std::uint32_t rank, std::vector<std::uint32_t> blocks, timestamp now);
  void cut(round& x, std::uint32_t limit);
  /// Answers the callers whose keys of the round are all here, and ends the round if nothing more arrives.
  void look_after(round_number number, timestamp now);
  void end_round(round_number number, timestamp now);
  void answer(prefix_fetch_number requester, std::uint32_t keys);
  /// The keys whose pages the round made in all ranks.
  static std::vector<key_digest> made_by(const round& x);
  static std::uint32_t here(const round& x);
  static std::uint32_t reached(const round& x, const waiting& requester);
  /// How many more blocks of the rank the peer may hold now, where `shared` with other peers.
  static std::size_t blocks_for(const namespace_entry& ns, std::uint32_t rank, peer_number peer, bool shared);
  std::size_t pages_of_chunk(const namespace_entry& ns, std::size_t blocks, std::uint32_t pages) const;
  bool is_dead(peer_number peer) const noexcept { return peer >= options_.first_dead; }

  fetching_options options_;
  std::map<namespace_id, namespace_entry> namespaces_;
  std::map<round_number, round> rounds_;
  std::map<prefix_fetch_number, waiting> waiting_;
  std::unordered_map<fetch_call, call> calls_;
  std::map<peer_number, fetch_counts> counts_;
  fetch_counts unknown_;
  std::vector<fetch_effect> outbox_;
  /// No limit runs out before it. Limits that were ended by an event are only noticed by `on_tick`.
  timestamp next_event_ = timestamp::max();
  round_number last_round_ = 0;
  prefix_fetch_number last_waiting_ = 0;
  fetch_call last_call_ = 0;
};

} // namespace troupe::cluster
