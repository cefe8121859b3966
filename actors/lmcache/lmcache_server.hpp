#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "actors/lmcache/arena_users.hpp"
#include "actors/lmcache/grouped_lookup.hpp"
#include "actors/lmcache/page_lane.hpp"
#include "actors/lmcache/remote_mover.hpp"
#include "actors/support/prefix_fetch.hpp"
#include "actors/support/request_deadlines.hpp"
#include "base/next_tick.hpp"
#include "events/page_log.hpp"
#include "gpu/remote_layout.hpp"
#include "io/memory/extent_source.hpp"
#include "lmcache/context.hpp"
#include "lmcache/event_streams.hpp"
#include "lmcache/group_chunks.hpp"
#include "lmcache/open_requests.hpp"
#include "lmcache/request_listener.hpp"
#include "lmcache/server_rules.hpp"
#include "lmcache/session_table.hpp"
#include "lmcache/transfer_rules.hpp"
#include "messages/messages.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe {

/// The queue of events from the listener for the actor. The sender that puts something into an empty queue notifies the
/// actor.
class lmcache_inbox {
public:
  /// A request, or the number of a client that has disconnected.
  using event = std::variant<std::shared_ptr<lmcache::incoming>, lmcache::client_number>;

  /// Returns whether the queue was empty.
  bool put(event x);
  std::deque<event> take();

private:
  std::mutex mutex_;
  std::deque<event> events_;
};

namespace lmcache_lookups {

/// How long pages stay locked without renewal.
inline constexpr duration lease_time = std::chrono::minutes(5);
/// Additional time for other nodes beyond a lookup's own, as the cluster part of the node should end it: it knows what
/// has arrived until then.
inline constexpr duration fetch_grace = std::chrono::seconds(1);

} // namespace lmcache_lookups

struct lmcache_server_parts {
  /// As `lmcache::listener::answer`.
  std::function<void(const lmcache::incoming& to, std::optional<std::string> frame)> answer;
  /// As `lmcache::listener::answer_again` and `forget`.
  std::function<void(const lmcache::incoming& to, std::string frame)> answer_again{};
  std::function<void(const lmcache::incoming& x)> forget{};
  /// The changes that subscribers get; null if the node publishes no events.
  std::shared_ptr<events::page_log> log{};
  std::shared_ptr<lmcache_inbox> inbox;
  std::shared_ptr<lmcache::counters> counters;
  node_actor node;
  /// For `clear`, which no client may do.
  std::vector<registry_actor> shards;
  std::shared_ptr<io::extent_source> extents;
  /// Threads that use the same arena: lanes and the like. Null if their end is not waited for.
  std::shared_ptr<arena_users> users{};
  /// The name by which clients open the arena.
  std::string shared_name;
  std::uint32_t chunk_tokens = 256;
  /// Threads that seal and verify pages of workers that copy themselves.
  std::uint32_t lanes = 1;
  /// The node's time limit for one lookup to fetch pages of other nodes; and the limit of lookups that fetch at once.
  /// Others find only local pages.
  duration fetch_time{};
  std::size_t asking_max = 4096;
};

/// The inbox has events; time has passed. For the coordinators of its workers this actor is a copy engine, which is
/// bound to nothing.
using lmcache_actor = copy_engine_actor::extend<caf::reacts_to<caf::update_atom>, caf::reacts_to<caf::tick_atom>,
                                                /// Rejects everything from now on. Answers when every request was
                                                /// answered and no lane is at work.
                                                caf::replies_to<drain_atom>::with<void>>;

/// The server for clients of LMCache's multi-process mode: an ordinary client of the node in the place of each worker
/// that registers, which attaches to the worker's namespace, and one more per namespace, which holds the leases of
/// lookups.
///
/// Stores and retrieves are executed by a save and a load coordinator for each worker, as for Troupe's own engines.
/// Either the worker copies itself: a slot in its answer is the payload of a page in its frame, which is pinned for the
/// worker's attachment, until it commits, registers anew, unregisters, or its process ends; for its coordinators this
/// actor is the copy engine. Or the node copies, in memory that the worker has named, by an ordinary copy engine: then
/// only this process accesses the frames, and an attachment ends when the last copy of its worker has.
///
/// Every request is answered in time, with the rejection of its operation if nothing better is possible: the protocol
/// has no errors. `lmcache::server_rules` decides about registrations, `lmcache::transfer_rules` about stores and
/// retrieves, `lmcache::open_requests` when requests are answered, `lmcache::session_table` about locks.
class lmcache_server : public lmcache_actor::base {
public:
  lmcache_server(caf::actor_config& config, lmcache_server_parts parts);

  const char* name() const override { return "lmcache_server"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using request_ptr = std::shared_ptr<const lmcache::incoming>;
  using client_number = lmcache::client_number;
  using instance_id = lmcache::instance_id;
  using instance_name = lmcache::instance_name;
  using change_number = lmcache::change_number;
  using server_rules = lmcache::server_rules;

  /// The identity of this actor at the node for one attachment.
  struct attachment {
    attach_reply node;
    caf::actor link;
    std::uint64_t last_ticket = 0;
    /// The node detects the end of the client's process; otherwise nothing does.
    bool watched = false;
    /// Ended by the node, as when the namespace is removed.
    bool lost = false;

    ticket new_ticket() { return {node.owner, ++last_ticket}; }
  };
  using attachment_ptr = std::shared_ptr<attachment>;

  using chunk_run = lmcache::transfer_rules::chunk_run;

  /// The executors of transfers for a rank of a worker.
  struct worker_rank {
    transfer_actor save;
    transfer_actor load;
    /// Null if the worker copies itself.
    copy_engine_actor engine;
  };

  /// Layers of a worker with a namespace of their own; most workers have one group.
  struct instance_group {
    namespace_spec spec;
    namespace_id ns;
    lmcache::protocol::slot_shape shape{};
    lmcache::group_needs needs{};
    attachment_ptr node{};
    /// Counts in `served_namespace::instances`.
    bool counted = false;
    /// Created with the first transfer of each rank.
    std::map<rank_number, worker_rank> ranks{};
  };
  /// A registration, from its preparation until its last copy has ended.
  struct instance {
    /// The number of the registration in `rules_`.
    change_number number = 0;
    instance_id id = 0;
    client_number client = 0;
    /// In the worker's order, at least one.
    std::vector<instance_group> groups;
    /// Layout of its blocks, and the mover that copies them: null if the worker copies itself.
    std::shared_ptr<const remote_layout> memory;
    std::shared_ptr<remote_events> events;
    std::shared_ptr<page_mover> mover;
    /// Block 0 stands for blocks that the engine has freed.
    bool sliding = false;

    const instance_group& first() const noexcept { return groups.front(); }
    bool has(const attachment_ptr& x) const {
      return std::ranges::any_of(groups, [&](const instance_group& y) { return y.node == x; });
    }
  };
  using instance_ptr = std::shared_ptr<instance>;

  struct served_namespace {
    namespace_spec spec;
    /// Holds the leases of lookups; null while it attaches.
    attachment_ptr node;
    std::size_t instances = 0;
    lmcache::group_needs needs{};
    /// The number of groups of its workers: each has a namespace, all with the same `group_of`.
    std::size_t groups = 1;
    /// Called when it is attached.
    std::vector<std::function<void(const result<void>&)>> waiting{};
  };
  /// An unanswered registration or unregistration.
  struct open_change {
    request_ptr request;
    /// Why its last attempt failed.
    error why;
  };

  /// A lease of one namespace.
  struct held_keys {
    attachment_ptr node;
    ticket name;
    std::vector<std::uint32_t> shards;
  };
  /// The lease of a lookup, until its session does not need it any more. It is renewed regularly: after the end of this
  /// actor it expires.
  struct held_lease {
    std::vector<held_keys> keys;
    duration lasts{};
    timestamp renewed_at;
  };
  struct lookup_run;
  using lookup_ptr = std::shared_ptr<lookup_run>;
  struct waiting_status {
    request_ptr request;
    timestamp until;
  };

  /// How long a status request waits for a result, so that a client need not poll.
  static constexpr duration status_patience = std::chrono::milliseconds(20);

  /// For requests whose failure can be answered with a rejection of the worker's request.
  static constexpr duration request_time = std::chrono::seconds(30);
  /// Creating a namespace takes as long as its files do.
  static constexpr duration attach_time = std::chrono::minutes(1);
  /// For lanes of this process: only the answer shows that no thread accesses the memory any more. The deadline of the
  /// worker's request is kept by `open_requests_`, that of a registration by `rules_`. A lane answers, or has ended,
  /// which ends the request too.
  static constexpr auto until_answered = caf::infinite;

  /// Sends a request that fails after `request_time`.
  template <class Handle, class... Args>
  auto ask(const Handle& to, Args&&... args) {
    return deadlines_.watch(request(to, caf::infinite, std::forward<Args>(args)...), now());
  }
  /// The same, with the answer ignored.
  template <class Handle, class... Args>
  void tell(const Handle& to, Args&&... args) {
    ask(to, std::forward<Args>(args)...).then([] {}, [](const caf::error&) {});
  }

  timestamp now() const { return clock().now(); }
  /// The arena, held for a thread.
  std::shared_ptr<io::extent_source> held_arena() const { return parts_.users ? parts_.users->hold() : parts_.extents; }

  // -- lmcache_server.cpp: requests --
  void look_into_inbox();
  void tick();
  void plan_tick(duration in);
  void begin(const request_ptr& x);
  void client_disconnected(client_number client);
  /// Answers the request, unless it was answered already.
  void answer(const request_ptr& x, std::optional<std::string> frame);
  void refuse(const request_ptr& x);
  /// The rejection of its kind, if it has one.
  std::optional<std::string> refusal_of(const lmcache::incoming& x) const;
  std::string answer_of_registration() const;
  /// Rejects requests whose deadline has passed.
  void refuse_late(timestamp time);
  caf::result<void> drain();
  void answer_drain();
  void clear(const request_ptr& x);
  void clear_some(const request_ptr& x, const registry_actor& shard, const namespace_id& ns, std::uint32_t from,
                  std::function<void()> then);
  void report_counters();

  // -- lmcache_instances.cpp: registered workers --
  void change_registration(const request_ptr& x);
  /// Executes the outbox of the rules.
  void flush();
  void perform(const server_rules::prepare& x);
  void perform(const server_rules::settle& x);
  void perform(const server_rules::end& x);
  void perform(const server_rules::release& x);
  void attach(const namespace_spec& ns, std::int32_t process, const std::string& name,
              std::function<void(result<attachment_ptr>)> then);
  /// `quiesced`: the client has confirmed that it does not access the memory any more.
  void detach(const attachment_ptr& x, bool quiesced);
  /// No process accesses the node's memory in its name any more.
  void rest(const attachment_ptr& x);
  void shard_lost(const caf::down_msg& down);
  void namespace_lost(const namespace_id& ns);
  /// Reports to the rules that the attachments of these instances have ended. `flush` executes what follows.
  template <class Predicate>
  void send_away(Predicate is_meant);
  /// Opens the memory of a worker.
  void open_memory(const instance_ptr& made, const request_ptr& x);
  /// Attaches for its next group, or reports it as prepared.
  void attach_next(const instance_ptr& made, const request_ptr& asked);
  /// Waits until lookups can find keys in the group's namespace.
  void join_namespace(const instance_ptr& made, std::size_t group, std::function<void(const result<void>&)> then);
  void leave_namespace(const instance_ptr& made);
  void prepared(const instance_ptr& made, const result<void>& outcome);
  /// Ends its attachment, and the executors of its transfers.
  void let_go(const instance_ptr& x, server_rules::end_reason why);
  /// A commit for a registration that the node has ended: the worker does not access these pages any more.
  void end_job_of_lost(const request_ptr& x);
  instance_ptr find(const request_ptr& x) const;
  /// Whether its registration is still in force.
  bool is_known(const instance& x) const { return rules_.is_current(x.number); }
  /// Whether the request fits the instance's namespaces.
  bool fits(const instance& of, const lmcache::chunk_range& chunks) const;

  // -- lmcache_events.cpp --
  void subscribe(const request_ptr& x);
  /// Sends changes to the subscribers that have confirmed the last ones.
  void send_events();
  bool send_events(lmcache::event_streams::stream& to, bool is_first);
  /// Describes the chunks that a worker has stored to the shards, for events about them.
  void describe(const lmcache::transfer_rules::done& x);
  void describe(const lmcache::incoming& x, const instance& of, std::uint32_t group,
                const std::vector<std::uint32_t>& chunks);

  // -- lmcache_lookups.cpp --
  void look_up(const request_ptr& x);
  /// The namespaces of all workers that the request may be of.
  std::vector<namespace_id> namespaces_of(const lmcache::chunk_range& chunks) const;
  /// Sends the next requests of the lookup in that namespace.
  void go_on(const lookup_ptr& run, std::size_t finder);
  /// Fetches from other nodes.
  void wanted_prefix(const lookup_ptr& run, std::size_t finder, prefix_fetch_request wanted);
  /// Answers the lookup if it has ended in all namespaces.
  void end_lookup(const lookup_ptr& run);
  /// Abandons a lookup whose result is not needed any more.
  void cancel(const lookup_ptr& run);
  /// Ends the fetches that have reached their time limit.
  void limit_lookups(timestamp time);
  // lmcache_group_lookups.cpp
  /// Looks up in namespaces of which some belong together.
  void look_up_groups(const lookup_ptr& run, const std::vector<namespace_id>& all);
  void go_on_with_groups(const lookup_ptr& run);
  void end_with_groups(const lookup_ptr& run);
  /// Searches other nodes, or fetches from them.
  template <class Reply, class Request, class Answered>
  void ask_peers(const lookup_ptr& run, std::uint32_t group, Request wanted, Answered answered);
  void cancel_groups(const lookup_ptr& run);
  void perform(const lookup_ptr& run, lmcache::grouped_lookup::match& x);
  void perform(const lookup_ptr& run, lmcache::grouped_lookup::release& x);
  void perform(const lookup_ptr& run, lmcache::grouped_lookup::search& x);
  void perform(const lookup_ptr& run, lmcache::grouped_lookup::fetch& x);
  /// Reports to the session of a lookup the length of its hit, and what is held for it; `found`: chunks that count as
  /// found.
  void lookup_done(const lookup_run& run, std::uint32_t chunks, std::uint32_t found, held_lease held);
  void answer_status(const request_ptr& x, duration patience);
  void settle_waiting();
  /// Ends what sessions do not need any more: leases, and running lookups.
  void end_unneeded();
  void renew_leases(timestamp time);
  void release(const held_keys& x);

  // -- lmcache_transfers.cpp: stores and retrieves --
  void begin_transfer(const request_ptr& x);
  void commit_transfer(const request_ptr& x);
  void refuse_transfer(const request_ptr& x);
  /// Ends the locks of a retrieve, which is not repeated.
  void end_locks(const lmcache::incoming& x);
  void perform(lmcache::transfer_rules::start& x);
  void perform(lmcache::transfer_rules::cancel& x);
  void perform(lmcache::transfer_rules::check& x);
  void perform(lmcache::transfer_rules::end_order& x);
  void perform(lmcache::transfer_rules::refuse& x);
  void perform(lmcache::transfer_rules::prepared& x);
  void perform(lmcache::transfer_rules::done& x);
  void begin_own_copy(const request_ptr& x, const instance& of);
  static transfer_task task_of(const instance& of, const lmcache::transfer_rules::start& x);
  static bool blocks_fit(const instance& of, const lmcache::incoming& x);
  /// The parts of the request that the node copies.
  static std::deque<chunk_run> runs_of(const instance& of, const lmcache::incoming& x);

  // -- lmcache_copiers.cpp: coordinators and copy engines --
  static client_worker_actor worker_of(const instance_group& of, rank_number rank);
  static lmcache::transfer_rules::terms terms_of(const instance_group& of);
  coordinator_binding binding_of(const instance& of, const instance_group& group, rank_number rank, bool stores) const;
  /// Created on first use; null if that fails.
  const worker_rank* rank_of(const instance_ptr& of, std::uint32_t group, rank_number rank);
  result<copy_engine_actor> make_engine(const instance& of, rank_number rank);
  void end_ranks(instance& of);
  /// An order of a coordinator.
  caf::result<copy_reply> carry_out(bool gathers, const copy_order& order);
  caf::result<copy_reply> copy(const instance_ptr& of, const copy_engine_actor& engine, bool gathers,
                               const copy_order& order);

  lmcache_server_parts parts_;
  lmcache::session_table sessions_;
  struct served_events {
    lmcache::event_streams streams{};
    /// Descriptions that shards have not answered.
    std::size_t describing = 0;
  };
  served_events events_;
  /// Created for the first page that is sealed or verified.
  struct lane_pool {
    std::vector<page_lane_actor> all{};
    std::size_t next = 0;
  };
  lane_pool lanes_;
  request_deadlines deadlines_{request_time};
  lmcache::server_rules rules_;
  bool flushing_ = false;
  lmcache::open_requests open_requests_;
  lmcache::transfer_rules transfers_{rules_, open_requests_};
  /// Unanswered orders of coordinators.
  std::map<lmcache::order_number, caf::response_promise> orders_;
  lmcache::order_number last_order_ = 0;
  std::map<change_number, open_change> changes_;
  std::map<change_number, instance_ptr> instances_;
  /// The attachments that have not ended.
  std::set<attachment_ptr> attachments_;
  /// Registrations that the node has ended while their workers may still access pages: the pages of these jobs.
  struct lost_instance {
    std::vector<attachment_ptr> nodes;
    std::set<lmcache::transfer_rules::job_name> jobs;
  };
  std::map<instance_name, lost_instance> lost_;
  bool stopping_ = false;
  std::vector<caf::response_promise> drains_;
  std::unordered_map<namespace_id, served_namespace> namespaces_;
  std::unordered_map<lmcache::session_table::lease_number, held_lease> leases_;
  /// Running lookups, by their number in `sessions_`; and the number of namespaces in which other nodes are queried.
  std::map<std::uint64_t, lookup_ptr> lookups_;
  std::size_t asking_ = 0;
  std::deque<waiting_status> waiting_;
  /// Attachments of disconnected clients without a watched process: when they may be considered drained.
  std::deque<std::pair<timestamp, owner_id>> quiescing_;
  lmcache::session_table::lease_number last_lease_ = 0;
  next_tick tick_;
  /// The shortest lease, of those that exist or existed since the last tick.
  duration shortest_lease_ = duration::max();
};

} // namespace troupe
