#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "actors/node/remote/remote_totals.hpp"
#include "actors/node/supervisor/node_children.hpp"
#include "actors/node/supervisor/node_state.hpp"
#include "actors/node/supervisor/node_watch.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/doors/connected_peers.hpp"
#include "base/log_limit.hpp"
#include "base/process_watch.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The supervisor of a node. Lets clients attach, through the reception, gives each of them handles of its own to what
/// serves it, and tells everybody when one of them dies (the rules: `node_state`); watches its children, and ends with
/// an error when one of them dies, because a registry shard or a slab that is gone cannot be replaced while its pages
/// are in use; drains before the node stops.
class node : public node_actor::base {
public:
  /// `processes`: how to know that a process is gone for which an actor of this process attaches. `watch`: nothing if
  /// nobody asks for the node's condition. `peers`: who has come by the node's Unix socket; null: nobody.
  node(caf::actor_config& config, std::shared_ptr<const config::node_config> options, node_children children,
       process_watcher processes = watch_process, std::optional<node_watch> watch = std::nullopt,
       std::shared_ptr<const connected_peers> peers = nullptr);

  const char* name() const override { return "node"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using link_number = node_state::link_number;

  /// What a client attached with, and what it has in place of shards and workers, which ends with it. The state knows
  /// the link by `number`; both have the same clients but while `release_departed` runs.
  struct client {
    caf::actor handle;
    link_number number = 0;
    std::shared_ptr<client_rights> rights;
    /// Null if the client itself has to say that it is at rest.
    std::unique_ptr<watched_process> process;
    std::vector<client_shard_actor> shards;
    std::vector<client_worker_actor> workers;
    std::size_t space = 0;
    /// It cannot map the arena; with these then, one for each rank.
    bool elsewhere = false;
    /// Of the cluster, and no engine.
    bool is_node = false;
    std::vector<remote_worker_actor> remotes{};
    /// For people.
    std::string name{};
    std::int32_t process_id = 0;
    timestamp since{};
    /// Null where there are no other nodes, or it is one.
    client_cluster_actor cluster{};
  };

  /// A client that is not attached any more, and not at rest.
  struct departed_client {
    std::unique_ptr<watched_process> process;
    std::size_t space = 0;
    /// It should be at rest by now. Whoever waits for nothing else waits no longer: what it may touch stays its own.
    bool overdue = false;
    /// What it says of itself does not count: the node itself moves its pages.
    bool elsewhere = false;
    /// Until they are at rest: an actor to which nobody has a handle is gone, whatever it waits for.
    std::vector<remote_worker_actor> remotes{};
    /// For people.
    std::string name{};
    std::int32_t process_id = 0;
  };

  /// A namespace that is removed, and who waits until nothing of it is in use.
  struct departing_space {
    std::size_t space = 0;
    namespace_id id;
    caf::response_promise promise;
  };

  /// Whose process a client is, as its connection proves, and how it gets at the arena.
  struct origin {
    /// Null if the client itself has to say that it is at rest, or if it is elsewhere.
    std::unique_ptr<watched_process> process{};
    /// For people.
    std::int32_t number = 0;
    /// It cannot map the arena.
    bool elsewhere = false;
    /// Null where it has the arena's descriptors already.
    std::shared_ptr<descriptor_handover> handover{};
    /// What it is handed as it attaches.
    std::vector<unique_descriptor> arena{};
  };

  node_state::options state_options();
  /// Errors: those of the watch of processes, and `unsupported` where its process cannot be watched.
  result<origin> origin_of(const attach_request& wanted, const caf::actor& link) const;
  /// The number of a link that is attached, or a new one.
  link_number number_of(const caf::actor_addr& link);
  caf::result<attach_reply> attach(const attach_request& wanted, const caf::actor& link);
  /// The same when its namespace is there, or cannot be made.
  result<attach_reply> admit(const attach_request& wanted, const caf::actor& link, origin from);
  /// The namespace is made first.
  caf::result<attach_reply> make_and_admit(const attach_request& wanted, const caf::actor& link, origin from);
  /// Logs what this host lacks for a client, which would else be known to the client alone.
  void note_failed(const attach_request& wanted, const error& why);
  void adopt(const served_space& made);
  caf::result<void> leave_space(const leave_space_request& x);
  caf::result<void> unbind_space(const namespace_id& space);
  /// Lets go of what serves namespaces that are removed, as soon as no client that was attached touches its memory, or
  /// those that may are overdue.
  void let_go();
  /// Spawns what serves this client alone, and names it in the reply.
  void welcome(client& x, std::size_t space, attach_reply& reply);
  /// As a client that is not on this host has it.
  void welcome_elsewhere(client& x, std::size_t space, attach_reply& reply);
  caf::result<cluster_welcome> meet(const cluster_hello& other);
  caf::result<void> leave(owner_id owner, const caf::actor& link);
  /// Its memory cannot be reached any more.
  void lose(owner_id owner);
  caf::result<void> owner_at_rest(owner_id owner);
  void end_fronts(const client& x);
  /// Ends what the clients had that the state has let go, and tells those who served them; then, who is at rest.
  void release_departed();
  /// Whose process is gone is at rest.
  void look_at_departed(timestamp now);
  /// Whose process is gone has no link any more, also where a child of it keeps the connection open.
  void look_at_attached(timestamp now);
  void on_down(const caf::down_msg& down);
  caf::result<void> drain();
  void part_at_rest();
  void answer_drains();
  caf::result<node_stats> collect();
  /// Asks all children and calls `on_done` once, with their statistics or the first error.
  void collect_stats(std::function<void(const result<node_stats>&)> on_done);
  void log_statistics(const node_stats& stats) const;
  void tick();
  /// For `node_watch`.
  node_watch::places places_of_clients() const;
  void plan_look_at_departed(timestamp now);

  std::shared_ptr<const config::node_config> options_;
  node_children children_;
  std::shared_ptr<remote_totals> remote_totals_ = std::make_shared<remote_totals>();
  /// Nobody can tell one owner id from another.
  std::random_device entropy_;
  node_state state_;
  std::unordered_map<owner_id, client> clients_;
  process_watcher processes_;
  std::shared_ptr<const connected_peers> local_peers_;
  /// Of those who have departed and are not at rest.
  std::unordered_map<owner_id, departed_client> departed_;
  std::vector<departing_space> departing_spaces_;
  /// Attachments that wait for their namespace.
  open_promises making_;
  /// When to look at these, if a look is planned.
  std::optional<timestamp> next_look_;
  link_number last_link_ = 0;
  std::vector<caf::response_promise> drains_;
  open_promises counting_;
  std::optional<node_watch> watch_;
  /// Who this node is towards others, and who knows these; null before it is said.
  cluster_card card_;
  cluster_actor peers_;
  /// Clusters that others are of who wanted to be peers: each is told of once.
  std::set<std::string> strange_clusters_;
  /// A client that fails tries again and again.
  log_limit failed_attachments_{5, std::chrono::minutes(1)};
  /// When the watch and the statistics have their turn.
  timestamp next_turn_{};
  timestamp next_statistics_{};
};

} // namespace troupe
