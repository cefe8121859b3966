#pragma once

#include "actors/support/shard_batches.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstdint>
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
/// `call` 0: nobody waits for the answer.
struct lookup_release {
  std::uint64_t call = 0;
  std::uint32_t shard = 0;
  release_request request;
};
struct lookup_finished {
  lookup_id lookup = 0;
  result<lookup_result> answer;
};

/// Keys that are not here, for other nodes to be asked.
struct lookup_bring {
  std::uint64_t call = 0;
  bring_request request;
};

using lookup_effect = std::variant<lookup_match, lookup_release, lookup_bring, lookup_finished>;

/// Finds the longest complete prefix of a run of keys over all shards. Each shard reports and leases the leading
/// complete keys of its own part; the prefix ends at the first key that any shard misses, and what was leased beyond
/// that is given back. Plain state, driven like the load and save coordinators.
///
/// Where the node has peers and the prefix ends before the keys do, they are asked to bring the rest. If they have
/// brought something, all is matched again, under a lease of its own: what counts is what is here then. If that is more
/// than was brought, since what follows was here already, and not all, they are asked for what follows that, a bounded
/// number of times, and within the time that the node gives one lookup for that. If they have brought nothing, or do
/// not answer, or that fails, what was found before is the answer; its lease is shorter by what asking took.
class lookup_state {
public:
  struct binding {
    owner_id owner = 0;
    std::uint32_t ticket_stream = 0;
    namespace_id space;
    std::uint32_t shard_count = 0;
    std::uint32_t batch_keys_max = 0;
    duration lease_max{};
    /// Other nodes can be asked for what is not here.
    bool has_peers = false;
  };

  /// At most `lookups_max` under way; each ends after `time_limit` at the latest.
  lookup_state(std::uint32_t lookups_max, duration time_limit) : lookups_max_(lookups_max), time_limit_(time_limit) {}

  bool bound() const noexcept { return binding_.owner != 0; }
  std::size_t under_way() const noexcept { return lookups_.size(); }
  /// Leases held for callers, which have to be released.
  std::size_t held() const noexcept { return held_.size(); }
  /// Whether something may run out.
  bool needs_ticks() const noexcept { return !lookups_.empty() || !held_.empty(); }

  void bind(const binding& node) { binding_ = node; }
  void unbind(errc status);

  result<lookup_id> start(const lookup_task& work, timestamp now);

  /// Gives back what a lookup holds; not_found for a lease this lookup coordinator does not know. `kept_there` is as in
  /// `release_request`; limit_exceeded for more than a batch.
  result<void> release(const ticket& lease, timestamp now, const std::vector<key_digest>& kept_there = {});

  void on_match(std::uint64_t call, result<match_reply> reply, timestamp now);
  void on_bring(std::uint64_t call, result<bring_reply> reply, timestamp now);
  void on_tick(timestamp now);

  std::vector<lookup_effect> take_outbox();

private:
  struct part {
    std::uint32_t shard = 0;
    std::vector<std::uint32_t> positions;
    std::uint32_t matched = 0;
    std::vector<std::uint8_t> on_disk;
    bool answered = false;
  };
  struct lease_record {
    std::vector<std::uint32_t> shards;
    timestamp expires;
  };
  /// What is complete here, and held.
  struct finding {
    std::uint32_t matched = 0;
    ticket lease;
    lease_record record;
    packed<std::uint8_t> on_disk{};
  };
  enum class phase : std::uint8_t {
    matching,
    /// Other nodes are asked.
    bringing,
    /// And have brought something.
    matching_again,
  };
  struct lookup {
    lookup_task work;
    phase at = phase::matching;
    /// Behind the first match.
    finding before{};
    /// As far as peers have said that it is here; how often they were asked.
    std::uint32_t brought = 0;
    std::uint32_t asked = 0;
    /// When they were asked first.
    timestamp asked_at{};
    /// Of the match under way.
    ticket lease;
    timestamp deadline;
    std::vector<part> parts;
    std::size_t waiting = 0;
    error failure{errc::ok, {}};
  };
  struct call {
    lookup_id owner = 0;
    std::size_t part = 0;
  };

  /// All parts, under a new lease.
  void send_matches(lookup_id id, lookup& x);
  void send_match(lookup_id id, lookup& x, std::size_t part_index);
  void finish(lookup_id id, lookup& x, timestamp now);
  /// Gives back what was leased beyond the prefix.
  finding settle(const lookup& x, timestamp now);
  void send_bring(lookup_id id, lookup& x, timestamp now);
  void answer(lookup_id id, finding found);
  void release_finding(const finding& x);
  /// Of the leading `matched` keys, where all parts have said so.
  static packed<std::uint8_t> joined_on_disk(const lookup& x, std::uint32_t matched);
  void release_everywhere(const lookup& x);

  /// For one lookup.
  static constexpr std::uint32_t brings_max = 4;

  std::uint32_t lookups_max_;
  duration time_limit_;
  binding binding_;
  std::unordered_map<lookup_id, lookup> lookups_;
  std::unordered_map<std::uint64_t, call> calls_;
  std::unordered_map<ticket, lease_record> held_;
  std::vector<lookup_effect> outbox_;
  std::uint64_t last_id_ = 0;
  std::uint64_t last_call_ = 0;
  std::uint64_t last_lease_ = 0;
};

} // namespace troupe::transfer
