#pragma once

#include "actors/cluster/pages/fetching.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// The number of a search; never reused, and not 0.
using search_number = std::uint64_t;

/// A lookup of each key at a peer. Every such call is answered, by `on_found`.
struct search_ask {
  fetch_call call = 0;
  peer_number peer = 0;
  namespace_id ns;
  std::vector<key_digest> keys;
};
/// Keep the lease on these keys only, which will be fetched.
struct search_retain {
  peer_number peer = 0;
  namespace_id ns;
  ticket lease;
  std::vector<key_digest> keys;
};
/// The answer to a search.
struct search_found {
  search_number search = 0;
  search_peers_reply reply;
};
/// The answer to a fetch: the number of keys that were fetched.
struct search_fetched {
  search_number search = 0;
  std::uint32_t keys = 0;
};

using search_effect = std::variant<search_ask, search_retain, fetch_release, search_found, search_fetched, fetch_late>;

struct searching_options {
  /// For peers to answer a search.
  duration ask_limit{};
  /// For a caller to wait, for its searches and fetches together.
  duration wait_limit{};
  /// The most searches; one more is answered at once that there is nothing.
  std::size_t searches_max = 4096;
  /// The most searches of a namespace that peers are asked about at one time; others wait for these. Below the lookups
  /// that a session with a peer may have in progress.
  std::size_t asking_max = 64;
  /// Returns the peers to ask for pages of a namespace now.
  std::function<std::vector<peer_number>(const namespace_id&)> peers;
  /// As in `fetching_options`.
  bool keep_copies = true;
  /// As in `fetching_options`. A dead node gives no leases; pages come from it where no live peer has them.
  peer_number first_dead = ~peer_number{0};
};

/// Searches of pages at peers, and fetches of what they found: plain rules. For models with several KV cache groups, of
/// which a hit needs all pages of some and the last ones of others. Each group has a namespace and searches of its
/// own; only the caller knows all of them, and names the pages to fetch.
///
///     queued ──▶ asking ──all answered, or late──▶ held ──fetch──▶ fetching ──all runs ended──▶ end
///                                                    └──time limit, or fetch of nothing──────────▲
///
/// - All peers are asked at once which of the keys they have, and lease these. So a page that the answer names is there
///   until the fetch, unless the peer ends or the lease expires.
/// - A fetch names keys. Each is fetched from one peer that has it, as few peers as possible, and the leases on all
///   others are released before. No page moves that was not named.
/// - What was fetched is counted, and the caller looks it up at this node. So a peer that fails costs pages of the hit,
///   and never makes one that is not there.
/// - No caller waits longer than `wait_limit`, from its first search on, and no lease stays longer than that plus the
///   time of a fetch.
class searching {
public:
  searching(searching_options options, fetching& pages) : options_(std::move(options)), pages_(pages) {}

  /// Answered by `search_found`, with this number.
  search_number search(const search_peers_request& wanted, timestamp now);
  /// Answered by `search_fetched`, with this number, which is not that of the search.
  search_number fetch(const fetch_pages_request& wanted, timestamp now);

  void on_found(fetch_call call, const result<lookup_result>& found, timestamp now);
  /// An answer of `fetching`. Returns false if it is not to a run of these fetches.
  bool on_run(const fetch_answer& answer);
  void on_tick(timestamp now);

  /// The time of the next `on_tick`, or a little before; `timestamp::max()` if there is no limit.
  timestamp next_event() const noexcept { return searches_.empty() ? timestamp::max() : next_event_; }
  std::size_t searches() const noexcept { return searches_.size(); }
  std::size_t calls_under_way() const noexcept { return calls_.size() + runs_.size(); }

  std::vector<search_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t { queued, asking, held, fetching };

  struct offer {
    peer_number peer = 0;
    ticket lease;
    /// By key of the search.
    std::vector<std::uint8_t> found;
    std::vector<key_digest> made{};
  };
  struct entry {
    namespace_id ns;
    std::vector<key_digest> keys;
    phase at = phase::queued;
    /// The end of the present phase, and the caller's time.
    timestamp next;
    timestamp until;
    timestamp late_at;
    /// Peers that have not answered yet.
    std::set<peer_number> asked;
    std::vector<offer> offers;
    /// Of a fetch: its number, the runs that have not ended, and what the others brought.
    search_number fetch = 0;
    std::size_t runs = 0;
    std::uint32_t fetched = 0;
  };
  struct call {
    search_number search = 0;
    namespace_id ns;
    peer_number peer = 0;
  };
  struct run {
    search_number search = 0;
    peer_number peer = 0;
  };

  void ask(search_number number, entry& x, timestamp now);
  /// Answers what the peers have.
  void answer(search_number number, entry& x);
  /// Asks for searches that wait, as far as others have ended.
  void ask_queued(const namespace_id& ns, timestamp now);
  void set_next(entry& x, timestamp next);
  /// Releases all leases, with what was made of the pages.
  void release(entry& x);
  void end(search_number number);
  /// For each position of the fetch, the index of its offer, or `no_offer`.
  std::vector<std::size_t> assign(const entry& x, std::span<const key_digest> keys) const;
  void start_runs(search_number number, entry& x, const fetch_pages_request& wanted,
                  const std::vector<std::size_t>& from, timestamp now);

  static constexpr std::size_t no_offer = ~std::size_t{0};

  searching_options options_;
  fetching& pages_;
  std::map<search_number, entry> searches_;
  /// By namespace: searches that wait until fewer are asked about, and the number of those.
  struct asking_count {
    std::size_t now = 0;
    std::deque<search_number> queue;
  };
  std::map<namespace_id, asking_count> asking_;
  std::unordered_map<fetch_call, call> calls_;
  std::unordered_map<prefix_fetch_number, run> runs_;
  std::vector<search_effect> outbox_;
  /// No limit runs out before it.
  timestamp next_event_ = timestamp::max();
  search_number last_search_ = 0;
  fetch_call last_call_ = 0;
};

} // namespace troupe::cluster
