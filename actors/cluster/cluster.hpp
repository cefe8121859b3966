#pragma once

#include "actors/client/node_client.hpp"
#include "actors/cluster/cluster_events.hpp"
#include "actors/cluster/etcd/etcd_channel.hpp"
#include "actors/cluster/etcd/etcd_rules.hpp"
#include "actors/cluster/learning/shared_learning.hpp"
#include "actors/cluster/pages/fetching.hpp"
#include "actors/cluster/pages/inbound_transfers.hpp"
#include "actors/cluster/pages/searching.hpp"
#include "actors/cluster/pages/session_rules.hpp"
#include "actors/cluster/peer_network.hpp"
#include "actors/cluster/peers/idle_pool.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "actors/cluster/takeover/adopted_reads.hpp"
#include "actors/cluster/takeover/adopter.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "actors/support/node_condition.hpp"
#include "base/next_tick.hpp"
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

/// What a `cluster` needs of its own node and of its surroundings.
struct cluster_parts {
  std::shared_ptr<const config::node_config> options;
  cluster_card self;
  reception_actor reception;
  /// The shards of this node.
  std::vector<registry_actor> shards;
  /// How nodes are reached. Ends after the actor.
  std::shared_ptr<peer_network> network;
  /// Is notified of unreachable peers; may be null.
  std::shared_ptr<node_condition> condition{};
  /// Reads slab files of peers. Without a reader they are not read.
  io::foreign_storage storage{};
  /// The budget for the indexes of dead nodes.
  shared_budget memory{};
};

using cluster_self = cluster_actor::extend<caf::reacts_to<posted_event>>;

/// A node's side of its cluster. Sends hellos to the other nodes, attaches as a client to the namespaces that both
/// have, fetches pages from them, and saves these at its own node as a client of it.
///
/// The rules are in `membership`, `session_rules`, `fetching`, `searching` and `shared_learning`, and in `etcd_rules`
/// where etcd has the list of nodes. Events of the network and of other threads arrive as `cluster_event`s,
/// because only an actor's own system may schedule it.
class cluster : public cluster_self::base {
public:
  cluster(caf::actor_config& config, cluster_parts parts);

  const char* name() const override { return "cluster"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// A session with a peer: a namespace of the peer, with the client that loads from it. Its pages pass through the
  /// staging buffers of the namespace here.
  struct session {
    opened_client client;
    /// The run of the peer that the session belongs to.
    std::uint64_t incarnation = 0;
  };

  /// The numbers of dead nodes start here; live peers never reach so high a number.
  static constexpr peer_number first_adopted = peer_number{1} << 40U;

  timestamp now() const { return clock().now(); }
  /// Returns a function that sends this actor an event. Any thread may call it, also after the actor has ended.
  std::function<void(cluster_event)> poster();

  /// A caller that waits: for a prefix of `fetching`, or for a search or a fetch of `searching`.
  enum class caller_of : std::uint8_t { fetching, searching };
  using caller = std::pair<caller_of, std::uint64_t>;

  template <class Reply>
  caf::result<Reply> wait_as(const caller& who);
  template <class Reply>
  void answer(const caller& who, Reply with);
  cluster_stats stats() const;
  /// Has the line spawned, then sends the hello.
  void make_connection(const say_hello& first);
  void send_hello(const say_hello& x);
  /// Drops the lines of peers that were left out.
  void drop_lines();
  void end_idle_dialers();
  void begin_etcd();
  /// Has the names of seeds resolved again, unless that is in progress.
  void resolve_seeds();
  void on_tick();
  /// Performs the effects of all rules, then plans the next tick.
  void flush();
  void perform_effects();
  void plan_tick();

  // Events, each of which is followed by `flush`.
  void on(const hello_answered& x);
  void on(const line_made& x);
  void on(const line_lost& x);
  void on(const seeds_resolved& x);
  void on(const namespace_opened& x);
  void on(const session_opened& x);
  void on(const peer_answered& x);
  void on(const peer_searched& x);
  void on(pages_requested& x);
  void on(const pages_moved& x);
  void on(const shard_answered& x);
  void on(const adopted_changed& x);
  void on(const adopted_unreadable& x);
  void on(const etcd_answered& x);
  void on(const etcd_watch_line& x);
  void on(const etcd_watch_ended& x);

  void perform(const say_hello& x);
  void perform(const peer_news& x);
  void perform(const peer_came& x);
  void perform(const peer_went& x);
  void perform(const etcd_request& x);
  void perform(const etcd_login& x);
  void perform(const etcd_watch& x);
  void perform(const etcd_members& x);
  void perform(const etcd_notified& x);
  void perform(const open_namespace& x);
  void perform(const leave_namespace& x);
  void perform(const open_session& x);
  void perform(const leave_session& x);
  /// Passes the outcome of an attempt on to the rules, and logs a failure that is new.
  void on_session_opened(const session_name& name, const result<void>& outcome);
  void perform(fetch_ask& x);
  void perform(fetch_release& x);
  void perform(fetch_move& x);
  void perform(const fetch_answer& x);
  void perform(const fetch_late& x);
  void perform(search_ask& x);
  void perform(search_retain& x);
  void perform(search_found& x);
  void perform(const search_fetched& x);
  void perform(const ask_shard& x);
  void perform(const cancel_shard& x);
  void perform(const teach_shard& x);

  /// Requests the list of namespaces from this node, and updates the peer sessions.
  void look_at_own_namespaces();
  /// Why the peer's pages cannot be reached: because it does not answer, or because no session with it can be opened.
  /// Empty where they can, and before the first attempt has ended.
  std::string trouble_of(peer_number peer) const;
  /// Updates the node's condition with the peers that are unreachable.
  void report_condition();
  /// Looks up keys at a peer, from the first one on or each. The answer is an event of this type. False if there is no
  /// session with the peer.
  template <class Answer>
  bool look_up_at(fetch_call call, const session_name& name, std::vector<key_digest> keys, bool each);
  /// Dead nodes, where storage is shared; they are asked as peers are (cluster_adopted.cpp).
  void begin_adopting();
  const adopted_node* adopted(peer_number peer) const;
  void ask_adopted(const adopted_node& of, const fetch_ask& x);
  void ask_adopted(const adopted_node& of, const search_ask& x);
  void load_adopted(const adopted_node& of, pages_requested& x);
  void add_adopted(const namespace_id& ns, std::vector<peer_number>& to) const;
  void add_adopted(cluster_stats& to) const;
  void follow();
  /// Makes shards of this node learn from those of peers with which there is a session.
  void follow_learning();
  const session* ready_session(peer_number peer, const namespace_id& ns) const;
  std::vector<peer_number> peers_for(const namespace_id& ns) const;
  node_client::options client_options() const;

  cluster_parts parts_;
  membership members_;
  fetching fetching_;
  searching searching_;
  session_rules rules_;
  shared_learning learning_;
  std::map<peer_number, connected_peer> lines_;
  /// Dialers of peers that were left out, kept for the next peers. Each has a thread.
  idle_pool<caf::io::middleman_actor> idle_dialers_;
  /// Set where the config names an etcd.
  std::optional<etcd_rules> etcd_;
  std::shared_ptr<etcd_channel> channel_;
  /// Set where storage is shared.
  std::unique_ptr<adopter> adopter_;
  std::unique_ptr<adopted_reads> adopted_reads_;
  /// By numbers that no peer has. A node gets a new number each time it is adopted.
  std::map<peer_number, adopted_node> adopted_;
  peer_number next_adopted_ = 0;
  /// Pages fetched from adopted nodes that have been released since, and those that failed.
  std::uint64_t adopted_pages_ = 0;
  std::uint64_t adopted_failed_ = 0;
  /// The namespaces of this node, with their names here.
  std::map<namespace_id, std::string> here_;
  /// The namespaces of this node that are open for fetched pages, with the clients that save them.
  std::map<namespace_id, opened_client> namespaces_;
  std::map<session_name, session> sessions_;
  std::map<caller, caf::response_promise> waiting_;
  /// Requests that a shard has not answered yet.
  std::map<reuse_call, cancel_function> asked_shards_;
  timestamp next_look_{};
  timestamp next_resolving_{};
  bool resolving_ = false;
  next_tick tick_;
};

} // namespace troupe::cluster
