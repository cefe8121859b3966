#pragma once

#include "actors/node/remote/remote_totals.hpp"
#include "actors/node/supervisor/client_proxies.hpp"
#include "actors/node/supervisor/node_children.hpp"
#include "actors/node/supervisor/node_state.hpp"
#include "actors/node/supervisor/node_watch.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/connected_peers.hpp"
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

/// The supervisor of a node. It attaches clients through the reception, gives each of them its own proxies to shards
/// and workers, and notifies the actors that serve clients when one disconnects (the rules: `node_state`). It watches
/// its children, and ends with an error when one of them dies, because a registry shard or slab cannot be replaced
/// while its pages are in use. It drains before the node stops.
class node : public node_actor::base {
public:
  /// `processes`: watches the process for which an actor of this process attaches. `watch`: empty if the node's
  /// condition is not needed. `peers`: the processes that are connected by the node's Unix socket; null: none.
  node(caf::actor_config& config, std::shared_ptr<const config::node_config> options, node_children children,
       process_watcher processes = watch_process, std::optional<node_watch> watch = std::nullopt,
       std::shared_ptr<const connected_peers> peers = nullptr);

  const char* name() const override { return "node"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using link_number = node_state::link_number;

  /// An attached client: its link, and its proxies for shards and workers, which end with it. The state knows the link
  /// by `number`; both have the same clients except while `release_disconnected` runs.
  struct client {
    caf::actor handle;
    link_number number = 0;
    /// Null if the client itself has to report that it is quiesced.
    std::unique_ptr<watched_process> process;
    client_proxies proxies{};
    std::size_t ns = 0;
    /// As in `client_proxies::client_terms`.
    bool elsewhere = false;
    /// An actor of this process moves the client's pages, and ends the attachment when the client's process has ended.
    bool ends_itself = false;
    /// Another node of the cluster, not an engine.
    bool is_node = false;
    /// For log lines and listings.
    std::string name{};
    std::int32_t process_id = 0;
    timestamp since{};
  };

  /// A disconnected client that is not quiesced.
  struct disconnected_client {
    std::unique_ptr<watched_process> process;
    std::size_t ns = 0;
    /// The time by which it should have been quiesced has passed. Requests that wait only for it continue; the memory
    /// that it may access stays reserved for it.
    bool overdue = false;
    /// The client is remote: its own reports are ignored, because the node itself moves its pages.
    bool elsewhere = false;
    /// Kept until they are quiesced, because an actor without handles is destroyed, whatever it waits for.
    std::vector<remote_worker_actor> remotes{};
    /// For log lines and listings.
    std::string name{};
    std::int32_t process_id = 0;
  };

  /// A namespace that is being removed, with the request that is answered when nothing of it is in use.
  struct closing_namespace {
    std::size_t ns = 0;
    namespace_id id;
    caf::response_promise promise;
  };

  /// The process of a client, as its connection proves, and the client's access to the arena.
  struct origin {
    /// Null if the client itself has to report that it is quiesced, or if it cannot map the arena.
    std::unique_ptr<watched_process> process{};
    /// For log lines and listings.
    std::int32_t number = 0;
    /// The client cannot map the arena, because it attaches over TCP or from another host.
    bool elsewhere = false;
    /// An actor of this process moves the client's pages, and ends the attachment when the client's process has ended.
    bool ends_itself = false;
    /// Null where the client has the arena's descriptors already.
    std::shared_ptr<descriptor_handover> handover{};
    /// The descriptors that it receives when it attaches.
    std::vector<unique_descriptor> arena{};
  };

  node_state::options state_options();
  /// Errors: those of the process watch, and `unsupported` where the client's process cannot be watched.
  result<origin> origin_of(const attach_request& wanted, const caf::actor& link) const;
  /// The number of an attached link, or a new one.
  link_number number_of(const caf::actor_addr& link);
  caf::result<attach_reply> attach(const attach_request& wanted, const caf::actor& link);
  /// Attaches a client whose namespace exists, or cannot be created.
  result<attach_reply> admit(const attach_request& wanted, const caf::actor& link, origin from);
  /// Creates the namespace first, then attaches the client.
  caf::result<attach_reply> make_and_admit(const attach_request& wanted, const caf::actor& link, origin from);
  /// Logs what this host lacks for a client; otherwise only the client would know.
  void note_failed(const attach_request& wanted, const error& why);
  void adopt(const served_namespace& made);
  caf::result<void> leave_namespace(const leave_namespace_request& x);
  caf::result<void> unbind_namespace(const namespace_id& ns);
  /// Ends what serves removed namespaces, as soon as no client that was attached to them accesses their memory, or the
  /// remaining such clients are overdue.
  void let_go();
  caf::result<cluster_welcome> meet(const cluster_hello& other);
  caf::result<void> leave(owner_id owner, const caf::actor& link);
  /// Handles a remote client whose memory cannot be reached any more.
  void lose(owner_id owner);
  caf::result<void> owner_quiesced(owner_id owner);
  /// Ends the proxies of clients that the state has released, and notifies the actors that served them; then processes
  /// quiesced clients.
  void release_disconnected();
  /// Marks disconnected clients whose process has ended as quiesced.
  void look_at_disconnected(timestamp now);
  /// Ends the links of attached clients whose process has ended, also where a child process keeps the connection open.
  void look_at_attached(timestamp now);
  void on_down(const caf::down_msg& down);
  caf::result<void> drain();
  void part_quiesced();
  void answer_drains();
  caf::result<node_stats> collect();
  /// Requests the statistics of all children and calls `on_done` once, with the result or the first error.
  void collect_stats(std::function<void(const result<node_stats>&)> on_done);
  void log_statistics(const node_stats& stats) const;
  void tick();
  /// The client slots, for `node_watch`.
  node_watch::places places_of_clients() const;
  void plan_look_at_disconnected(timestamp now);

  std::shared_ptr<const config::node_config> options_;
  node_children children_;
  std::shared_ptr<remote_totals> remote_totals_ = std::make_shared<remote_totals>();
  /// The source of owner ids, which cannot be guessed.
  std::random_device entropy_;
  node_state state_;
  std::unordered_map<owner_id, client> clients_;
  process_watcher processes_;
  std::shared_ptr<const connected_peers> local_peers_;
  /// Disconnected clients that are not quiesced.
  std::unordered_map<owner_id, disconnected_client> disconnected_;
  std::vector<closing_namespace> closing_namespaces_;
  /// Attachments that wait for the creation of their namespace.
  open_promises making_;
  /// The time of the next check of disconnected clients, if one is scheduled.
  std::optional<timestamp> next_look_;
  link_number last_link_ = 0;
  std::vector<caf::response_promise> drains_;
  open_promises counting_;
  std::optional<node_watch> watch_;
  /// This node's identity in the cluster, and the actor that knows the peers; null until it is set.
  cluster_card card_;
  cluster_actor peers_;
  /// Clusters of nodes that were rejected as peers: each is logged once.
  std::set<std::string> strange_clusters_;
  /// Rate limit of log lines about failed attachments, because a failing client retries.
  log_limit failed_attachments_{5, std::chrono::minutes(1)};
  /// The next times of the watch and of the statistics.
  timestamp next_turn_{};
  timestamp next_statistics_{};
};

} // namespace troupe
