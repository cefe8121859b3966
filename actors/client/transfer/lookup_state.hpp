#pragma once

#include "actors/client/transfer/key_lookup.hpp"
#include "actors/client/transfer/peer_lookup.hpp"
#include "actors/support/prefix_fetch.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::transfer {

using lookup_id = std::uint64_t;

struct lookup_match {
  std::uint64_t call = 0;
  std::uint32_t shard = 0;
  match_request request;
};
/// `call` 0: the answer is ignored.
struct lookup_release {
  std::uint64_t call = 0;
  std::uint32_t shard = 0;
  release_request request;
};
struct lookup_finished {
  lookup_id lookup = 0;
  result<lookup_result> answer;
};

/// Keys that are missing here, to be fetched from other nodes.
struct lookup_prefix_fetch {
  std::uint64_t call = 0;
  prefix_fetch_request request;
};

/// Keys that are missing here, to be searched at other nodes.
struct lookup_search {
  std::uint64_t call = 0;
  search_peers_request request;
};
/// Pages that a search found, to be fetched. `call` 0: the answer is ignored.
struct lookup_fetch {
  std::uint64_t call = 0;
  fetch_pages_request request;
};

using lookup_effect =
    std::variant<lookup_match, lookup_release, lookup_prefix_fetch, lookup_search, lookup_fetch, lookup_finished>;

/// The lookups of a client: each is a `prefix_fetch`, or for `lookup_task::each` a `key_lookup`, or a `peer_lookup` if
/// it concerns other nodes. Tracks which are in progress, which answer belongs to which of them, and what is leased for
/// callers. Plain state, driven like the load and save coordinators.
class lookup_state {
public:
  struct binding {
    owner_id owner = 0;
    std::uint32_t ticket_stream = 0;
    namespace_id ns;
    std::uint32_t shard_count = 0;
    std::uint32_t batch_keys_max = 0;
    duration lease_max{};
    /// Whether missing keys can be fetched from other nodes.
    bool has_peers = false;
  };

  /// At most `lookups_max` in progress; each ends within `time_limit`.
  lookup_state(std::uint32_t lookups_max, duration time_limit) : lookups_max_(lookups_max), time_limit_(time_limit) {}

  bool bound() const noexcept { return binding_.owner != 0; }
  std::size_t under_way() const noexcept { return lookups_.size(); }
  /// Leases that callers hold and have to release.
  std::size_t held() const noexcept { return held_.size(); }
  /// Whether there is a deadline.
  bool needs_ticks() const noexcept { return !lookups_.empty() || !held_.empty(); }

  void bind(const binding& node) { binding_ = node; }
  void unbind(errc status);

  /// A node may have come back with lower limits than the caller knows: only as many leading keys are looked up as it
  /// accepts at once, and the lease is no longer than its maximum.
  result<lookup_id> start(const lookup_task& work, timestamp now);

  /// Releases what a lookup holds; not_found for a lease that this coordinator does not know. `kept_there` is as in
  /// `release_request`; limit_exceeded for more than a batch.
  result<void> release(const ticket& lease, timestamp now, const std::vector<key_digest>& kept_there = {});

  /// Keeps these keys of what an `each` lookup has found, as used, and releases the rest; all of it where there are no
  /// keys. not_found for a lease that this coordinator does not know.
  result<void> retain(const ticket& lease, const std::vector<key_digest>& keys);

  void on_match(std::uint64_t call, result<match_reply> reply, timestamp now);
  /// The answer to a `lookup_prefix_fetch` or a `lookup_fetch`.
  void on_prefix_fetch(std::uint64_t call, result<prefix_fetch_reply> reply, timestamp now);
  void on_search(std::uint64_t call, result<search_peers_reply> reply, timestamp now);
  void on_tick(timestamp now);

  std::vector<lookup_effect> take_outbox();

private:
  struct lease_record {
    std::vector<std::uint32_t> shards;
    timestamp expires;
  };
  struct call {
    lookup_id owner = 0;
    std::size_t part = 0;
  };
  /// What a lookup has had from other nodes, and since when it waits for them, if it does.
  struct asked_peers {
    peers_share share;
    std::optional<timestamp> since;

    void asked(timestamp now) {
      ++share.requests;
      since = now;
    }
    void answered(std::uint32_t keys, timestamp now) {
      if (since)
        share += {0, keys, now - *since};
      since.reset();
    }
  };

  using any_lookup = std::variant<prefix_fetch, key_lookup, peer_lookup>;

  /// Sends the requests of the lookup, and answers it if it has ended.
  void go_on(lookup_id id, any_lookup& x, timestamp now);
  void send_requests(lookup_id id, prefix_fetch& x, timestamp now);
  void send_requests(lookup_id id, key_lookup& x, timestamp now);
  void send_requests(lookup_id id, peer_lookup& x, timestamp now);
  /// The number of a new call to other nodes, which the lookup waits for from now on.
  std::uint64_t call_peers(lookup_id id, timestamp now);
  void finish(lookup_id id, result<lookup_result> answer);
  void send(lookup_id id, key_lookup::effects effects);
  void answer(lookup_id id, const prefix_fetch& x);
  void answer(lookup_id id, const key_lookup& x);
  void answer(lookup_id id, const peer_lookup& x);
  void answer(lookup_id id, const key_lookup& x, const result<key_lookup::finding>& found);
  static bool has_ended(const prefix_fetch& x) noexcept { return x.outcome().has_value(); }
  static bool has_ended(const key_lookup& x) noexcept { return x.outcome().has_value(); }
  static bool has_ended(const peer_lookup& x) noexcept { return x.ended(); }
  /// Releases what a search holds at other nodes.
  void end_search(std::uint64_t search);
  ticket new_lease();

  std::uint32_t lookups_max_;
  duration time_limit_;
  binding binding_;
  std::unordered_map<lookup_id, any_lookup> lookups_;
  std::unordered_map<std::uint64_t, call> calls_;
  /// Of lookups in progress for which other nodes were asked.
  std::unordered_map<lookup_id, asked_peers> peers_;
  std::unordered_map<ticket, lease_record> held_;
  std::vector<lookup_effect> outbox_;
  std::uint64_t last_id_ = 0;
  std::uint64_t last_call_ = 0;
  std::uint64_t last_lease_ = 0;
};

} // namespace troupe::transfer
