#pragma once

#include "actors/cluster/membership.hpp"
#include "actors/cluster/passing_memory.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// One request under way to somebody else; never used twice.
using fetch_call = std::uint64_t;
/// One who waits for pages.
using bring_number = std::uint64_t;

/// A lookup at a peer. Every such call is answered, by `on_found`.
struct fetch_ask {
  fetch_call call = 0;
  peer_number peer = 0;
  namespace_id space;
  std::vector<key_digest> keys;
};
struct fetch_release {
  peer_number peer = 0;
  namespace_id space;
  ticket lease;
  /// Of these keys this node has made pages from those under the lease, and keeps them.
  std::vector<key_digest> kept_here{};
};
/// Pages of a rank, from a peer to this node, as pages that are saved: from blocks of passing memory, which are this
/// call's until it is answered, by `on_moved`.
struct fetch_move {
  fetch_call call = 0;
  peer_number peer = 0;
  namespace_id space;
  std::uint32_t rank = 0;
  transfer_task work;
};
/// So many keys are here, from the first one on.
struct fetch_answer {
  bring_number who = 0;
  std::uint32_t keys = 0;
};
/// It has not answered in time.
struct fetch_late {
  peer_number peer = 0;
};

using fetch_effect = std::variant<fetch_ask, fetch_release, fetch_move, fetch_answer, fetch_late>;

/// Of pages that a peer was to send.
struct sending_counts {
  std::uint64_t failed = 0;
  /// Of what was sent, what came from its slab files; and what was to, and did not.
  std::uint64_t from_files = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;

  /// What came of a load of so many pages.
  void add(const result<transfer_result>& outcome, std::size_t pages);
};

struct fetch_counts {
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  std::uint64_t late = 0;
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;
  /// Of what was loaded, what came from its slab files; and what was to, and did not.
  std::uint64_t file_pages = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
};

struct fetching_options {
  /// For peers to say what they have.
  duration ask_limit{};
  /// For whoever waits.
  duration wait_limit{};
  /// For the pages of one round.
  duration move_limit{};
  /// Pages that move together, at most; no more than keys that the node takes in one request.
  std::uint32_t chunk_pages = 32;
  /// Rounds under way, and who waits for them: one more is told at once that there is nothing.
  std::size_t rounds_max = 256;
  std::size_t waiting_max = 4096;
  /// Who is to be asked for pages of a namespace now.
  std::function<std::vector<peer_number>(const namespace_id&)> peers;
  /// What is fetched stays here, and the peer may let its own go first; else this node does so.
  bool keep_copies = true;
  /// Peers from this number on are dead: they say at once what they have, and are fetched from where no other one has
  /// as much. To read what they have left may take as long as a file system likes.
  peer_number first_dead = ~peer_number{0};
  /// A round is cut into a chunk for each copy that a rank can have under way, as far as these are neither so small
  /// that their messages cost more than copying side by side gains, nor so large that whoever copies waits for messages
  /// between one and the next. A page is never cut.
  std::uint64_t chunk_bytes_min = std::uint64_t{2} << 20U;
  std::uint64_t chunk_bytes_max = std::uint64_t{16} << 20U;
};

/// Brings pages of other nodes here: plain rules.
///
/// Whoever misses keys waits for a *round*: all peers are asked at once how many of the keys they have, from the first
/// one on, and lease these. The one that has most of them is fetched from, one that lives before one that is dead; the
/// others give their leases back. Its pages come in chunks, rank by rank, verified as those of any load are, and are
/// saved as any page is. So what comes of a round is either pages of this node, or nothing.
///
/// A key is in one round at most: whoever misses what is on its way waits for the same. If keys are left when a round
/// has ended, the next one asks all peers but the one that was fetched from, since one may have what follows: parts of
/// a prefix may lie in turn at several nodes.
///
/// So that a cluster does not fill with copies, one of the two nodes that have a page after a fetch lets its own go
/// before others. Either the peer does, which is told what has been kept here, or this node does, whose pages are
/// guests then. A peer is told only of pages that were made here under the lease that it has given: not of what was
/// here before. So of all copies of a page the one that was made last is told of by nobody, whoever copies from whom at
/// the same time.
///
/// Nobody waits longer than `wait_limit`, what it has waited before included; a round goes on without whoever waited
/// for it. A peer that is late, or dies, costs the round, and makes nothing wrong: what counts is what the shards of
/// this node have in the end.
class fetching {
public:
  explicit fetching(fetching_options options) : options_(std::move(options)) {}

  /// Passing memory of a namespace is there, of so many blocks for each of its ranks, of which so many chunks are
  /// copied at the same time.
  void add_space(const namespace_id& space, std::uint64_t page_bytes, std::uint32_t ranks, std::uint32_t blocks,
                 std::uint32_t copies_at_once = 1);
  /// It is not to be used any more: rounds end when what is under way has come back, and `is_in_use` until then.
  void remove_space(const namespace_id& space);
  bool is_in_use(const namespace_id& space) const { return spaces_.contains(space); }

  bring_number bring(const bring_request& wanted, timestamp now);

  void on_found(fetch_call call, const result<lookup_result>& found, timestamp now);
  /// `outcome`: as of a save. Nothing of the call touches its blocks any more.
  void on_moved(fetch_call call, const result<transfer_result>& outcome, const sending_counts& sent, timestamp now);
  void on_tick(timestamp now);

  /// Something may run out.
  bool needs_ticks() const noexcept { return !rounds_.empty() || !waiting_.empty(); }
  std::size_t rounds() const noexcept { return rounds_.size(); }
  std::size_t calls_under_way() const noexcept { return calls_.size(); }
  /// Of passing memory, in all.
  std::size_t blocks_in_use() const;

  fetch_counts counts(peer_number peer) const;
  /// Of a peer that is left out.
  void forget(peer_number peer) { counts_.erase(peer); }

  std::vector<fetch_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  using round_number = std::uint64_t;

  struct place {
    round_number round = 0;
    std::uint32_t position = 0;
  };
  struct space_entry {
    std::uint64_t page_bytes = 0;
    std::uint32_t copies_at_once = 1;
    bool removed = false;
    /// Of each rank.
    std::vector<block_shelf> shelves;
    std::unordered_map<key_digest, place> on_their_way;
  };
  struct rank_progress {
    /// The first page that has not been begun with.
    std::uint32_t next = 0;
    /// Leading pages that are here.
    std::uint32_t here = 0;
    std::vector<std::uint8_t> done;
    /// Those of them that were not here before.
    std::vector<std::uint8_t> made;
  };
  struct offer {
    peer_number peer = 0;
    std::uint32_t keys = 0;
    ticket lease;
  };
  struct round {
    namespace_id space;
    key_digest parent;
    std::vector<key_digest> keys;
    timestamp ask_until;
    timestamp until;
    /// Peers that have not answered; then what the others offer.
    std::vector<peer_number> asked;
    std::vector<offer> offers;
    bool moving = false;
    /// What is fetched from, and how many keys at most.
    offer source;
    std::uint32_t limit = 0;
    std::vector<rank_progress> ranks;
    std::size_t calls = 0;
  };
  struct waiting {
    bring_request wanted;
    std::uint32_t have = 0;
    timestamp until;
    /// What it waits for: so many keys of the round, from that position on.
    round_number round = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    /// Peers that do not have the next key, as far as is known: they have been fetched from up to there.
    std::vector<peer_number> used;
  };
  struct call {
    round_number round = 0;
    namespace_id space;
    peer_number peer = 0;
    std::uint32_t rank = 0;
    std::uint32_t first = 0;
    std::vector<std::uint32_t> blocks;
  };

  /// Goes on with what is missing, or answers.
  void go_on(bring_number who, timestamp now);
  /// False if there is nobody to ask.
  bool begin_round(waiting& x, timestamp now);
  void wait_for(waiting& x, const place& where);
  void choose(round_number number, timestamp now);
  /// Begins with as many chunks as there are blocks for.
  void pump(const namespace_id& space, timestamp now);
  void move(round_number number, round& x, std::uint32_t rank, std::vector<std::uint32_t> blocks, timestamp now);
  void cut(round& x, std::uint32_t limit);
  /// Lets those go on who have all that they wait for of it, and ends the round if nothing more comes.
  void look_after(round_number number, timestamp now);
  void end_round(round_number number, timestamp now);
  void answer(bring_number who, std::uint32_t keys);
  /// Keys whose pages were all made by the round.
  static std::vector<key_digest> made_by(const round& x);
  static std::uint32_t here(const round& x);
  static std::uint32_t reached(const round& x, const waiting& who);
  std::size_t moving_from(peer_number peer) const;
  /// Of a peer that was asked; nobody's if it was left out meanwhile.
  fetch_counts& counts_for(peer_number peer);
  std::size_t pages_of_chunk(const space_entry& space, std::size_t blocks, std::uint32_t pages) const;
  bool is_dead(peer_number peer) const noexcept { return peer >= options_.first_dead; }

  fetching_options options_;
  std::map<namespace_id, space_entry> spaces_;
  std::map<round_number, round> rounds_;
  std::map<bring_number, waiting> waiting_;
  std::unordered_map<fetch_call, call> calls_;
  std::map<peer_number, fetch_counts> counts_;
  fetch_counts nobodys_;
  std::vector<fetch_effect> outbox_;
  round_number last_round_ = 0;
  bring_number last_waiting_ = 0;
  fetch_call last_call_ = 0;
};

} // namespace troupe::cluster
