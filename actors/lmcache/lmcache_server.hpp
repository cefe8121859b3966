#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "actors/lmcache/arena_users.hpp"
#include "actors/lmcache/remote_mover.hpp"
#include "actors/support/bringing.hpp"
#include "actors/support/request_deadlines.hpp"
#include "base/next_tick.hpp"
#include "gpu/remote_layout.hpp"
#include "io/extent_source.hpp"
#include "lmcache/door.hpp"
#include "lmcache/open_requests.hpp"
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

/// What the door has for the actor. Whoever puts something in where nothing was tells the actor.
class lmcache_inbox {
public:
  /// A request, or the number of a client that is gone.
  using event = std::variant<std::shared_ptr<lmcache::incoming>, lmcache::client_number>;

  /// Whether it was empty.
  bool put(event x);
  std::deque<event> take();

private:
  std::mutex mutex_;
  std::deque<event> events_;
};

struct lmcache_server_parts {
  /// As `lmcache::door::answer`.
  std::function<void(const lmcache::incoming& to, std::optional<std::string> frame)> answer;
  std::shared_ptr<lmcache_inbox> inbox;
  std::shared_ptr<lmcache::counters> counters;
  node_actor node;
  /// For what no client may do: `clear`.
  std::vector<registry_actor> shards;
  std::shared_ptr<io::extent_source> extents;
  /// Of the same arena: lanes and their like. Null if nobody waits for their end.
  std::shared_ptr<arena_users> users{};
  /// By which clients find the arena.
  std::string shared_name;
  std::uint32_t chunk_tokens = 256;
  /// Threads that seal and verify pages of workers that copy themselves.
  std::uint32_t lanes = 1;
  /// What the node gives one lookup to bring pages of other nodes here; and how many ask for some at once. One more
  /// finds what is here.
  duration fetch_time{};
  std::size_t asking_max = 4096;
};

/// There is something in the inbox; time has passed.
/// Towards the coordinators of its workers it is a copy engine, which is bound to nothing.
using lmcache_actor = copy_engine_actor::extend<caf::reacts_to<caf::update_atom>, caf::reacts_to<caf::tick_atom>,
                                                /// From now on everything is rejected. Answers when every request was
                                                /// answered and no lane is at work.
                                                caf::replies_to<drain_atom>::with<void>>;

/// Serves the clients of LMCache's multi-process mode: an ordinary client of the node in the place of each worker that
/// registers, which attaches to the worker's namespace, and one more per namespace, in whose name lookups lease keys.
///
/// Stores and retrieves are carried out by a save and a load coordinator for each worker, as those of Troupe's own
/// engines are. Either the worker copies itself: a slot that it is told of is the payload of a page in its frame, which
/// is pinned for the worker's attachment, until it commits, registers anew, unregisters, or its process is gone; for
/// its coordinators this actor is the copy engine. Or the node copies, in memory that the worker has named, by an
/// ordinary copy engine: then frames are this process' alone, and an attachment ends when the last copy of its worker
/// has.
///
/// Every request is answered in time, with what its operation has for "no" where nothing better can be said: there are
/// no errors on this wire. `lmcache::server_rules` decides about registrations, `lmcache::transfer_rules` about
/// stores and retrieves, `lmcache::open_requests` when requests are answered, `lmcache::session_table` about locks.
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

  /// As which this actor asks the node.
  struct attachment {
    attach_reply node;
    caf::actor link;
    std::uint64_t last_ticket = 0;
    /// The node sees the end of the client's process; else nobody does.
    bool watched = false;
    /// It is over: by the node, as when the namespace is removed.
    bool lost = false;

    ticket new_ticket() { return {node.owner, ++last_ticket}; }
  };
  using attachment_ptr = std::shared_ptr<attachment>;

  using chunk_run = lmcache::transfer_rules::chunk_run;

  /// What carries out the transfers of a rank of a worker.
  struct worker_rank {
    transfer_actor save;
    transfer_actor load;
    /// Null where the worker copies itself.
    copy_engine_actor engine;
  };

  /// A registration, from when it is prepared until its last copy has ended.
  struct instance {
    /// Of the registration in `rules_`.
    change_number number = 0;
    instance_id id = 0;
    client_number client = 0;
    namespace_id space;
    lmcache::wire::slot_shape shape;
    attachment_ptr node;
    /// Counts in `served_namespace::instances`.
    bool counted = false;
    /// Where its blocks lie, and what copies them: null where the worker copies itself.
    std::shared_ptr<const remote_layout> memory;
    std::shared_ptr<remote_events> events;
    std::shared_ptr<page_mover> mover;
    /// Block 0 stands for what the engine has given back.
    bool sliding = false;
    /// From the first transfer of each on.
    std::map<rank_number, worker_rank> ranks;
  };
  using instance_ptr = std::shared_ptr<instance>;

  struct served_namespace {
    namespace_spec spec;
    /// In whose name lookups lease keys; null while it attaches.
    attachment_ptr node;
    std::size_t instances = 0;
    /// For that.
    std::vector<instance_ptr> waiting{};
  };
  /// A registration or unregistration that was not answered.
  struct open_change {
    request_ptr request;
    /// Why its last try has failed.
    error why;
  };

  /// A lease of one namespace.
  struct held_keys {
    attachment_ptr node;
    ticket name;
    std::vector<std::uint32_t> shards;
  };
  /// Of a lookup, until its session needs it no more. It is renewed in time: nobody else would end it, were this actor
  /// gone.
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

  /// A status that is not there yet is waited for this long, so that a client need not ask again.
  static constexpr duration status_patience = std::chrono::milliseconds(20);

  /// For requests whose loss a worker's "no" makes good.
  static constexpr duration request_time = std::chrono::seconds(30);
  /// Making a namespace takes as long as its files do.
  static constexpr duration attach_time = std::chrono::minutes(1);
  /// For lanes of this process: only the answer says that nothing touches the memory any more. The time of the worker's
  /// request is kept by `open_requests_`, that of a registration by `rules_`. A lane answers, or is gone, which ends
  /// the request too.
  static constexpr auto until_answered = caf::infinite;

  /// Sends a request that fails after `request_time`.
  template <class Handle, class... Args>
  auto ask(const Handle& to, Args&&... args) {
    return deadlines_.watch(request(to, caf::infinite, std::forward<Args>(args)...), now());
  }
  /// The same; nobody waits for the answer.
  template <class Handle, class... Args>
  void tell(const Handle& to, Args&&... args) {
    ask(to, std::forward<Args>(args)...).then([] {}, [](const caf::error&) {});
  }

  timestamp now() const { return clock().now(); }
  /// For a thread.
  std::shared_ptr<io::extent_source> held_arena() const { return parts_.users ? parts_.users->hold() : parts_.extents; }

  // -- lmcache_server.cpp: requests --
  void look_into_inbox();
  void tick();
  void plan_tick(duration in);
  void begin(const request_ptr& x);
  void client_gone(client_number client);
  /// Unless it was answered already.
  void answer(const request_ptr& x, std::optional<std::string> frame);
  void refuse(const request_ptr& x);
  /// The "no" of its kind, as far as it has one.
  std::optional<std::string> refusal_of(const lmcache::incoming& x) const;
  std::string answer_of_registration() const;
  /// Those whose time is over.
  void refuse_late(timestamp time);
  caf::result<void> drain();
  void answer_drain();
  void clear(const request_ptr& x);
  void clear_some(const request_ptr& x, const registry_actor& shard, const namespace_id& space, std::uint32_t from,
                  std::function<void()> then);
  void tell_counters();

  // -- lmcache_instances.cpp: workers that are registered --
  void change_registration(const request_ptr& x);
  /// Carries out what the rules want.
  void flush();
  void perform(const server_rules::prepare& x);
  void perform(const server_rules::settle& x);
  void perform(const server_rules::end& x);
  void perform(const server_rules::release& x);
  void attach(const namespace_spec& space, std::int32_t process, const std::string& name,
              std::function<void(result<attachment_ptr>)> then);
  /// `at_rest`: the client has said that it touches nothing any more.
  void detach(const attachment_ptr& x, bool at_rest);
  /// Nothing of it touches the node's memory any more.
  void rest(const attachment_ptr& x);
  void shard_gone(const caf::down_msg& down);
  void space_gone(const namespace_id& space);
  /// The rules are told that the attachments of these instances have ended. `flush` carries out what follows.
  template <class Predicate>
  void send_away(Predicate is_meant);
  /// Opens the memory of a worker.
  void open_memory(const instance_ptr& made, const request_ptr& x);
  /// Waits until lookups find something in its namespace.
  void join_space(const instance_ptr& made, const namespace_spec& spec);
  void leave_space(const instance_ptr& made);
  void prepared(const instance_ptr& made, const result<void>& outcome);
  /// Its attachment, and what has carried out its transfers.
  void let_go(const instance_ptr& x, server_rules::end_reason why);
  /// A commit for a registration that the node has ended: the worker does not touch these pages any more.
  void end_job_of_lost(const request_ptr& x);
  instance_ptr find(const request_ptr& x) const;
  /// Whether its registration has not ended.
  bool is_known(const instance& x) const { return rules_.is_current(x.number); }
  /// Whether the request fits the instance's namespace.
  bool fits(const instance& of, const lmcache::chunk_range& chunks) const;

  // -- lmcache_lookups.cpp --
  void look_up(const request_ptr& x);
  /// Sends what the lookup wants sent in that namespace.
  void go_on(const lookup_ptr& run, std::size_t finder);
  /// Asks other nodes.
  void bring(const lookup_ptr& run, std::size_t finder, bring_request wanted);
  /// If it has ended in all of them, says so.
  void end_lookup(const lookup_ptr& run);
  /// Nobody waits for it any more.
  void give_up(lookup_run& run);
  /// Those that have waited for other nodes as long as one may.
  void limit_lookups(timestamp time);
  void answer_status(const request_ptr& x, duration patience);
  void settle_waiting();
  /// What sessions need no more: leases, and lookups under way.
  void end_unneeded();
  void renew_leases(timestamp time);
  void release(const held_keys& x);

  // -- lmcache_transfers.cpp: stores and retrieves --
  void begin_transfer(const request_ptr& x);
  void commit_transfer(const request_ptr& x);
  void refuse_transfer(const request_ptr& x);
  /// Of a retrieve: it does not come again.
  void end_locks(const lmcache::incoming& x);
  void perform(lmcache::transfer_rules::start& x);
  void perform(lmcache::transfer_rules::cancel& x);
  void perform(lmcache::transfer_rules::check& x);
  void perform(lmcache::transfer_rules::end_order& x);
  void perform(lmcache::transfer_rules::refuse& x);
  void perform(lmcache::transfer_rules::prepared& x);
  void perform(lmcache::transfer_rules::done& x);
  static transfer_task task_of(const instance& of, const lmcache::transfer_rules::start& x);
  static bool blocks_fit(const instance& of, const lmcache::incoming& x);
  /// What the node is to copy of the request.
  static std::deque<chunk_run> runs_of(const instance& of, const lmcache::incoming& x);

  // -- lmcache_copiers.cpp: coordinators and copy engines --
  static client_worker_actor worker_of(const instance& of, rank_number rank);
  lmcache::transfer_rules::terms terms_of(const instance& of) const;
  coordinator_binding binding_of(const instance& of, rank_number rank, bool stores) const;
  /// Made when it is first asked for; null where that cannot be.
  const worker_rank* rank_of(const instance_ptr& of, rank_number rank);
  result<copy_engine_actor> make_engine(const instance& of, rank_number rank);
  void end_ranks(instance& of);
  /// An order of a coordinator.
  caf::result<copy_reply> carry_out(bool gathers, const copy_order& order);
  caf::result<copy_reply> copy(const instance_ptr& of, const copy_engine_actor& engine, bool gathers,
                               const copy_order& order);

  lmcache_server_parts parts_;
  lmcache::session_table sessions_;
  /// From the first page on that is sealed or verified.
  std::vector<caf::actor> lanes_;
  std::size_t next_lane_ = 0;
  request_deadlines deadlines_{request_time};
  lmcache::server_rules rules_;
  bool flushing_ = false;
  lmcache::open_requests open_requests_;
  lmcache::transfer_rules transfers_{rules_, open_requests_};
  /// Those of coordinators that were not answered.
  std::map<lmcache::order_number, caf::response_promise> orders_;
  lmcache::order_number last_order_ = 0;
  std::map<change_number, open_change> changes_;
  std::map<change_number, instance_ptr> instances_;
  /// The attachments that have not ended.
  std::set<attachment_ptr> attachments_;
  /// Registrations that the node has ended while their workers may have been touching pages: those of these jobs.
  struct lost_instance {
    attachment_ptr node;
    std::set<lmcache::transfer_rules::job_name> jobs;
  };
  std::map<instance_name, lost_instance> lost_;
  bool stopping_ = false;
  std::vector<caf::response_promise> drains_;
  std::unordered_map<namespace_id, served_namespace> spaces_;
  std::unordered_map<lmcache::session_table::lease_number, held_lease> leases_;
  /// Under way, by their number in `sessions_`; and in how many namespaces others are asked.
  std::map<std::uint64_t, lookup_ptr> lookups_;
  std::size_t asking_ = 0;
  std::deque<waiting_status> waiting_;
  /// Attachments without a process to be watched, whose client is gone without a word: when they may be at rest.
  std::deque<std::pair<timestamp, owner_id>> resting_;
  lmcache::session_table::lease_number last_lease_ = 0;
  next_tick tick_;
  /// Of the leases that there are, or were since the last tick.
  duration shortest_lease_ = duration::max();
};

} // namespace troupe
