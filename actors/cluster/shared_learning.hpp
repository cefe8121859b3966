#pragma once

#include "actors/cluster/membership.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/reuse_counts.hpp"
#include "messages/registry_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// One question to a shard; never used twice.
using reuse_call = std::uint64_t;

/// A shard of this node, or of a peer.
struct learning_shard {
  /// Nothing: of this node.
  std::optional<peer_number> peer;
  std::uint32_t shard = 0;

  friend auto operator<=>(const learning_shard&, const learning_shard&) = default;
};

/// What has the shard seen of a namespace? Every such call is answered, by `on_told`, or given up.
struct ask_shard {
  reuse_call call = 0;
  namespace_id space;
  learning_shard who;
};
/// Nobody waits for the answer any more.
struct give_up_shard {
  reuse_call call = 0;
};
/// To a shard of this node: what the others have seen.
struct teach_shard {
  namespace_id space;
  std::uint32_t shard = 0;
  reuse_counts counts;
};

using learning_effect = std::variant<ask_shard, give_up_shard, teach_shard>;

struct learning_options {
  /// Between two rounds, at least; and for each shard that is asked.
  duration pause = std::chrono::milliseconds(500);
  duration pause_per_shard = std::chrono::milliseconds(10);
  /// Questions under way at once.
  std::size_t asked_at_once = 16;
  /// For the answers of a round. None is waited for any longer.
  duration limit = std::chrono::seconds(10);
};

/// What shards learn from each other: plain rules.
///
/// Each shard sees when those keys are used again that come to it, and learns from that which to let go
/// (`reuse_policy`). Where requests of one conversation go to several nodes in turn, each sees a part of all uses. So
/// in rounds, a namespace at a time, all shards of this node and of its peers are asked what they have seen, and each
/// shard of this node is told the sum of what the others have. What is told is what a shard has seen itself, never what
/// it was told: so nothing counts twice, however often it is told.
///
/// Ages are numbers of keys that came in at a shard, and a shard that is given more keys is faster. So what another one
/// has seen is moved to the ages that it would have here: by how many keys came in there and here meanwhile, of late.
///
/// A shard that does not answer is left out until it does; what is told is advice on the order of eviction. When the
/// last peer of a namespace is gone, its shards are told nothing, so that they forget what others have seen. One whose
/// own shards learn nothing, as their policy says, is not asked about again.
class shared_learning {
public:
  explicit shared_learning(learning_options options = {}) : options_(options) {}

  /// Which shards there are now for a namespace: `own` of this node, and of each peer so many. One without peers is not
  /// asked about. A peer that is given with another `incarnation` is another one.
  struct peer_shards {
    peer_number peer = 0;
    std::uint64_t incarnation = 0;
    std::uint32_t shards = 0;
  };
  void follow(const namespace_id& space, std::uint32_t own, const std::vector<peer_shards>& peers);
  void forget(const namespace_id& space);

  void on_time(timestamp now);
  void on_told(reuse_call call, const result<reuse_reply>& told);
  /// When `on_time` has something to do.
  timestamp next_event() const;

  /// Of keys that the peer has seen, so many count here now, over all namespaces, about.
  std::uint64_t learned_from(peer_number peer) const;

  std::vector<learning_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  struct known_shard {
    std::uint64_t incarnation = 0;
    /// In this round.
    bool told = false;
    std::uint64_t clock = 0;
    /// How far the clock went on between rounds, the latest counting most.
    double advance = 0;
    bool has_clock = false;
    reuse_counts counts;
  };
  struct space_entry {
    std::uint32_t own = 0;
    std::map<learning_shard, known_shard> shards;
    /// Those of this round that have not been asked, or have not answered.
    std::deque<learning_shard> to_ask;
    std::map<reuse_call, learning_shard> asked;
    bool in_round = false;
    /// Its own shards have not said otherwise.
    bool learns = true;
    timestamp until;
    timestamp next;

    /// There is nobody else to learn from otherwise.
    bool has_others() const noexcept { return shards.size() > own; }
  };

  void begin(space_entry& x, timestamp now) const;
  void ask_more(const namespace_id& space, space_entry& x);
  void end(const namespace_id& space, space_entry& x);
  /// Without anything having come of it.
  void break_off(space_entry& x);
  static bool is_over(const space_entry& x) { return x.to_ask.empty() && x.asked.empty(); }

  learning_options options_;
  std::map<namespace_id, space_entry> spaces_;
  reuse_call last_call_ = 0;
  std::vector<learning_effect> outbox_;
};

} // namespace troupe::cluster
