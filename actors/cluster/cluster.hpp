#pragma once

#include "actors/client/node_client.hpp"
#include "actors/cluster/adopted_reads.hpp"
#include "actors/cluster/adopter.hpp"
#include "actors/cluster/arrivals.hpp"
#include "actors/cluster/etcd_channel.hpp"
#include "actors/cluster/etcd_rules.hpp"
#include "actors/cluster/fetching.hpp"
#include "actors/cluster/idle_pool.hpp"
#include "actors/cluster/in_turn.hpp"
#include "actors/cluster/membership.hpp"
#include "actors/cluster/peer_line.hpp"
#include "actors/cluster/shared_learning.hpp"
#include "actors/cluster/tie_opener.hpp"
#include "actors/cluster/tie_rules.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "base/next_tick.hpp"
#include "base/node_condition.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster {

/// What other nodes, and its own, are to it.
struct cluster_parts {
  std::shared_ptr<const config::node_config> options;
  cluster_card self;
  reception_actor reception;
  /// Of this node.
  std::vector<registry_actor> shards;
  /// The actor system in which this node is a client of others: connections of its own, under a name of its own.
  caf::actor_system* outside = nullptr;
  /// Makes one more of those who connect; called by the opener.
  std::function<result<caf::io::middleman_actor>()> make_entrance;
  /// Ends one of these, with its thread and all connections that it has made; called by the opener.
  std::function<void(const caf::io::middleman_actor&)> end_entrance;
  std::shared_ptr<tie_opener> opener;
  /// Told of peers that are away; may be null.
  std::shared_ptr<node_condition> condition{};
  /// By which slab files of peers are read; without a reader they are not.
  io::foreign_storage storage{};
  /// For what is known of nodes that are dead.
  shared_budget memory{};
};

using cluster_self = cluster_actor::extend<caf::reacts_to<in_turn>>;

/// What a node is towards the others of its cluster: says hello to them, attaches to the namespaces of those that have
/// the same, as a client does, and fetches pages of theirs, which it saves at its own node, as a client of that.
///
/// The rules are in `membership`, `tie_rules`, `fetching` and `shared_learning`, and in `etcd_rules` where the list of
/// nodes is in etcd.
/// What happens in the other actor system, or in the opener's thread, is told back by `in_turn`: an actor is never
/// scheduled by another system than its own.
class cluster : public cluster_self::base {
public:
  cluster(caf::actor_config& config, cluster_parts parts);

  const char* name() const override { return "cluster"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// A namespace of this node, as a client has it that saves what comes from others.
  struct own_space {
    std::shared_ptr<node_client> client{};
    kv_geometry geometry{};
    std::vector<std::shared_ptr<passing_memory>> memory{};
    /// Of each rank.
    std::vector<std::shared_ptr<arrivals>> coming{};
  };
  /// A namespace of a peer, as a client has it that loads from there.
  struct tie {
    std::shared_ptr<node_client> client{};
    client_limits limits{};
    /// Of the namespace here, through which its pages pass.
    std::vector<std::shared_ptr<passing_memory>> memory{};
    /// Which run of the peer it is to.
    std::uint64_t incarnation = 0;
    std::vector<client_shard_actor> shards{};
  };

  /// Who says hello to a peer, and who connects for it: one that is not reached keeps no other waiting.
  struct line {
    peer_line_actor actor{};
    caf::io::middleman_actor entrance{};
  };

  /// A dead node is a peer with a number from here on: of those that live there are never so many.
  static constexpr peer_number first_adopted = peer_number{1} << 40U;

  /// Pages that are to come into blocks of passing memory.
  struct load_from_peer {
    namespace_id space;
    std::uint32_t rank = 0;
    std::shared_ptr<passing_memory> memory;
    transfer_task work;
    arrivals::receiver then;
  };

  timestamp now() const { return clock().now(); }
  /// Has it done in this actor's turn, from wherever it is called.
  std::function<void(std::function<void()>)> poster();

  caf::result<bring_reply> bring(const bring_request& wanted);
  cluster_stats stats() const;
  /// Has one spawned, then says hello.
  void make_line(const say_hello& first);
  void greet(const say_hello& x);
  /// Of peers that are left out.
  void drop_lines();
  void end_idle_entrances();
  void begin_etcd();
  void on_tick();
  void flush();
  void plan_tick();

  void perform(const say_hello& x);
  void perform(const peer_news& x);
  void perform(const peer_came& x);
  void perform(const peer_went& x);
  void perform(const etcd_request& x);
  void perform(const etcd_login& x);
  void perform(const etcd_watch& x);
  void perform(const etcd_members& x);
  void perform(const etcd_told& x);
  void perform(const open_space& x);
  void perform(const leave_space& x);
  void perform(const open_tie& x);
  void perform(const leave_tie& x);
  void perform(fetch_ask& x);
  void perform(fetch_release& x);
  void perform(fetch_move& x);
  void perform(const fetch_answer& x);
  void perform(const fetch_late& x);
  void perform(const ask_shard& x);
  void perform(const give_up_shard& x);
  void perform(const teach_shard& x);

  /// Asks this node which namespaces it has, and has ties follow.
  void look_at_own_spaces();
  /// Has the node's condition say which peers are away.
  void tell_condition();
  void load(peer_number peer, load_from_peer x);
  /// Where storage is shared: dead nodes, which are asked as peers are (cluster_adopted.cpp).
  void begin_adopting();
  void look_at_adopted();
  const adopted_node* adopted(peer_number peer) const;
  void ask_adopted(const adopted_node& of, const fetch_ask& x);
  void load_adopted(peer_number peer, const adopted_node& of, load_from_peer x);
  void add_adopted(const namespace_id& space, std::vector<peer_number>& to) const;
  void add_adopted(cluster_stats& to) const;
  void follow();
  /// Has shards of this node learn from those of peers there are ties to.
  void follow_learning();
  /// The memory of its ranks stays until nothing of it writes there any more.
  void close_client(std::shared_ptr<node_client> client, std::vector<std::shared_ptr<passing_memory>> memory);
  const tie* ready_tie(peer_number peer, const namespace_id& space) const;
  std::vector<peer_number> peers_for(const namespace_id& space) const;
  node_client::options client_options() const;

  cluster_parts parts_;
  membership members_;
  fetching fetching_;
  tie_rules rules_;
  shared_learning learning_;
  std::map<peer_number, line> lines_;
  /// Those of peers that were left out, for the next peers. Each has a thread.
  idle_pool<caf::io::middleman_actor> idle_entrances_;
  /// Where the config names an etcd.
  std::optional<etcd_rules> etcd_;
  std::shared_ptr<etcd_channel> channel_;
  /// Where storage is shared.
  std::unique_ptr<adopter> adopter_;
  std::unique_ptr<adopted_reads> adopted_reads_;
  /// By numbers that no peer has, another one for each time that one is adopted.
  std::map<peer_number, adopted_node> adopted_;
  peer_number next_adopted_ = 0;
  /// Pages of those that are let go of.
  std::uint64_t adopted_pages_ = 0;
  std::uint64_t adopted_failed_ = 0;
  /// Of this node, by their names here.
  std::map<namespace_id, std::string> here_;
  /// Those that are open.
  std::map<namespace_id, own_space> spaces_;
  std::map<tie_name, tie> ties_;
  std::map<bring_number, caf::response_promise> waiting_;
  /// Questions that a shard has not answered.
  std::map<reuse_call, give_up_function> asked_shards_;
  timestamp next_look_{};
  next_tick tick_;
};

} // namespace troupe::cluster
