#pragma once

#include "actors/cluster/peers/membership.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/reuse_counts.hpp"
#include "messages/registry_admin_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// The number of a request to a shard; never reused.
using reuse_call = std::uint64_t;

/// A shard of this node, or of a peer.
struct learning_shard {
  /// Empty for a shard of this node.
  std::optional<peer_number> peer;
  std::uint32_t shard = 0;

  friend auto operator<=>(const learning_shard&, const learning_shard&) = default;
};

/// Asks the shard for its reuse statistics of a namespace. Every such call is answered by `on_notified`, or cancelled.
struct ask_shard {
  reuse_call call = 0;
  namespace_id ns;
  learning_shard who;
};
/// Cancels a call: its answer is not needed any more.
struct cancel_shard {
  reuse_call call = 0;
};
/// Sends a shard of this node the statistics of the others.
struct teach_shard {
  namespace_id ns;
  std::uint32_t shard = 0;
  reuse_counts counts;
};

using learning_effect = std::variant<ask_shard, cancel_shard, teach_shard>;

struct learning_options {
  /// The pause between two rounds, at least, and the addition for each shard that is asked.
  duration pause = std::chrono::milliseconds(500);
  duration pause_per_shard = std::chrono::milliseconds(10);
  /// The most requests in progress at once.
  std::size_t asked_at_once = 16;
  /// The time for the answers of a round. Later answers are ignored.
  duration limit = std::chrono::seconds(10);
};

/// Shares reuse statistics between shards: plain rules.
///
/// Each shard sees when its keys are used again, and learns from that which to evict (`reuse_policy`). Where requests
/// of one conversation go to several nodes in turn, each sees a part of all uses. So in rounds, a namespace at a time,
/// all shards of this node and of its peers are asked for their statistics, and each shard of this node receives the
/// sum of those of the others. A shard reports only its own observations, never what it received, so nothing is counted
/// twice, however often it is sent.
///
/// Ages are counted in keys that were added to a shard, so a shard that receives more keys ages faster. The statistics
/// of another shard are scaled to the ages here, by the ratio of keys that were recently added there and here.
///
/// A shard that does not answer is left out until it does; the statistics only influence the order of eviction. When
/// the last peer of a namespace has disconnected, its shards receive an empty sum, so that they forget what others have
/// seen. A namespace whose own shards do not learn, as their policy says, is not asked about again.
class shared_learning {
public:
  explicit shared_learning(learning_options options = {}) : options_(options) {}

  /// The shards of a namespace: `own` of this node, and a number of each peer. A namespace without peers is not asked
  /// about. A peer with another `incarnation` counts as another peer.
  struct peer_shards {
    peer_number peer = 0;
    std::uint64_t incarnation = 0;
    std::uint32_t shards = 0;
  };
  void follow(const namespace_id& ns, std::uint32_t own, const std::vector<peer_shards>& peers);
  void forget(const namespace_id& ns);

  void on_time(timestamp now);
  void on_notified(reuse_call call, const result<reuse_reply>& notified);
  /// When `on_time` has something to do.
  timestamp next_event() const;

  /// About how many keys that the peer has seen count here now, over all namespaces.
  std::uint64_t learned_from(peer_number peer) const;

  std::vector<learning_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  struct known_shard {
    std::uint64_t incarnation = 0;
    /// Whether it has answered in this round.
    bool notified = false;
    std::uint64_t clock = 0;
    /// How far the clock advanced between rounds, weighted towards the latest.
    double advance = 0;
    bool has_clock = false;
    reuse_counts counts;
  };
  struct namespace_entry {
    std::uint32_t own = 0;
    std::map<learning_shard, known_shard> shards;
    /// Shards of this round that have not been asked; then those that have not answered.
    std::deque<learning_shard> to_ask;
    std::map<reuse_call, learning_shard> asked;
    bool in_round = false;
    /// False once its own shards have said that they do not learn.
    bool learns = true;
    timestamp until;
    timestamp next;

    /// Whether there are shards of peers to learn from.
    bool has_others() const noexcept { return shards.size() > own; }
  };

  void begin(namespace_entry& x, timestamp now) const;
  void ask_more(const namespace_id& ns, namespace_entry& x);
  void end(const namespace_id& ns, namespace_entry& x);
  /// Ends the round without a result.
  void break_off(namespace_entry& x);
  static bool is_over(const namespace_entry& x) { return x.to_ask.empty() && x.asked.empty(); }

  learning_options options_;
  std::map<namespace_id, namespace_entry> namespaces_;
  reuse_call last_call_ = 0;
  std::vector<learning_effect> outbox_;
};

} // namespace troupe::cluster
