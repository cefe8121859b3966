#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::transfer {

/// The rules of one lookup that may ask peers: it finds which leading keys of a run are complete on this node, after
/// the node has fetched from its peers what they have of the rest. Time and answers are arguments; messages to send are
/// in the outbox.
///
/// Each shard reports and leases the leading complete keys of its own part. The prefix ends at the first key that any
/// shard misses, and leases beyond it are released.
///
/// Where the node has peers and the prefix ends before the keys do, the peers are asked to provide the rest, while what
/// was found stays leased. If a fetch copied keys, all keys are matched again, under a new lease; the new match is what
/// counts. The match may reach further than the fetch, because later keys were on this node already. If it does and is
/// not complete, the peers are asked for what follows. This repeats a bounded number of times, and within the node's
/// time limit for one lookup. Each request says how long the lookup has waited so far. If the fetch copied nothing,
/// failed or was not answered, the first match is the answer; its lease is then shorter by the time of the fetch.
class prefix_fetch {
public:
  struct terms {
    namespace_id ns;
    std::uint32_t shard_count = 0;
    /// The length of a lease.
    duration lease_for{};
    /// As in `match_request`.
    bool report_on_disk = false;
    /// Whether there are peers to ask for missing keys.
    bool has_peers = false;
    /// The lookup ends at `deadline` at the latest, and no later than `peers_limit` after peers were first asked.
    timestamp deadline = timestamp::max();
    duration peers_limit = duration::max();
    /// As in `match_request`.
    std::string request{};
  };

  /// Match the keys of one part. Answered by `on_match`, with the part.
  struct match {
    std::size_t part = 0;
    std::uint32_t shard = 0;
    match_request request;
  };
  /// Release leases. No answer is needed.
  struct release {
    std::uint32_t shard = 0;
    release_request request;
  };
  /// Fetch missing keys from other nodes. Answered by `on_prefix_fetch`.
  struct wanted_prefix {
    prefix_fetch_request request;
  };
  using effect = std::variant<match, release, wanted_prefix>;

  /// The leading keys that are complete on this node and leased.
  struct finding {
    std::uint32_t matched = 0;
    /// Null where nothing is leased.
    ticket lease;
    /// The shards at which keys are leased.
    std::vector<std::uint32_t> shards;
    timestamp expires;
    /// As in `lookup_result`.
    packed<std::uint8_t> on_disk{};
  };

  /// The most fetches from peers for one lookup.
  static constexpr std::uint32_t prefix_fetches_max = 4;

  prefix_fetch(const terms& how, std::vector<key_digest> keys);

  /// Starts the lookup; called once. `lease` must be a ticket that was never used for a lease before.
  void start(const ticket& lease, timestamp now);
  void on_match(std::size_t part, result<match_reply> reply, timestamp now);
  /// `lease` is for the second match.
  void on_prefix_fetch(const result<prefix_fetch_reply>& reply, const ticket& lease);
  void on_tick(timestamp now);

  /// Cancels the lookup: leases are released, and the outcome is the error `cancelled`. Has no effect after the lookup
  /// has ended.
  void cancel();
  /// Keeps the first `count` keys of the outcome and releases the rest. Has no effect where nothing was found.
  void keep(std::uint32_t count);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Set when the lookup has ended; later answers are ignored. An error where the shards did not answer and nothing had
  /// been found before.
  const std::optional<result<finding>>& outcome() const noexcept { return outcome_; }
  /// Whether a fetch from peers is in progress.
  bool is_asking() const noexcept { return at_ == phase::prefix_fetch; }
  timestamp deadline() const noexcept { return how_.deadline; }
  /// The length of the lease on what is found.
  duration lease_for() const noexcept { return how_.lease_for; }

private:
  struct part {
    std::uint32_t shard = 0;
    std::vector<std::uint32_t> positions;
    std::uint32_t matched = 0;
    /// As in `match_reply`.
    std::uint32_t uses = 0;
    std::vector<std::uint8_t> on_disk;
    bool answered = false;
  };
  enum class phase : std::uint8_t {
    matching,
    /// A fetch from peers is in progress.
    prefix_fetch,
    /// The fetch has copied keys, and all parts are matched again.
    matching_again,
    ended,
  };

  /// Matches all parts under a new lease.
  void send_matches(const ticket& lease);
  void send_match(std::size_t index);
  void send_prefix_fetch(timestamp now);
  /// Called when all parts have been answered.
  void matched_all(timestamp now);
  /// Releases what was leased beyond the prefix.
  finding settle(timestamp now);
  void give_back(const finding& x);
  /// Releases whatever the shards have leased under the lease of the match in progress.
  void release_everywhere();
  void end(result<finding> with);
  /// The tiers of the leading `matched` keys; empty unless all parts have reported them.
  packed<std::uint8_t> joined_on_disk(std::uint32_t matched) const;

  terms how_;
  std::vector<key_digest> keys_;
  phase at_ = phase::matching;
  /// The lease of the match in progress, or of the last one.
  ticket lease_;
  std::vector<part> parts_;
  std::size_t waiting_ = 0;
  error failure_{errc::ok, {}};
  /// The result of the previous match.
  finding before_;
  /// The number of leading keys that are present according to the last fetch; the number of fetches; the time of the
  /// first one.
  std::uint32_t brought_ = 0;
  std::uint32_t asked_ = 0;
  timestamp asked_at_{};
  std::optional<result<finding>> outcome_;
  std::vector<effect> outbox_;
};

} // namespace troupe::transfer
