#pragma once

#include "actors/node/lmcache/arena_users.hpp"
#include "actors/support/bringing.hpp"
#include "base/next_tick.hpp"
#include "gpu/remote_layout.hpp"
#include "io/extent_source.hpp"
#include "lmcache/door.hpp"
#include "lmcache/session_table.hpp"
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
#include <unordered_set>
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
using lmcache_actor = caf::typed_actor<caf::reacts_to<caf::update_atom>, caf::reacts_to<caf::tick_atom>>;

/// Serves the clients of LMCache's multi-process mode: an ordinary client of the node in the place of each worker that
/// registers, which attaches to the worker's namespace, and one more per namespace, in whose name lookups lease keys.
///
/// Either a worker copies itself: a slot that it is told of is the payload of a page in its frame, which is pinned for
/// the worker's attachment, until it commits, registers anew, unregisters, or its process is gone. Or the node copies,
/// in memory that the worker has named: then frames are this process' alone, and an attachment ends when the last copy
/// of its worker has.
///
/// Every request is answered, by what its operation has for no where nothing better can be said: there are no errors on
/// this wire. Rules of locks are in `lmcache::session_table`.
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
  using instance_id = std::int64_t;
  /// Numbers of instances are their workers' own, and two workers may have the same one: it says nothing without the
  /// connection. Who connects anew is not known by it, is told so at its next pings, and registers again.
  using instance_name = std::pair<client_number, instance_id>;

  /// As which this actor asks the node.
  struct attachment {
    attach_reply node;
    caf::actor link;
    std::uint64_t last_ticket = 0;
    /// The node sees the end of the client's process; else nobody does.
    bool watched = false;

    ticket new_ticket() { return {node.owner, ++last_ticket}; }
  };
  using attachment_ptr = std::shared_ptr<attachment>;

  /// Pages that a worker has been told where to find, until it commits.
  struct open_pages {
    ticket name;
    std::vector<page_ref> pages;
    std::vector<std::uint64_t> offsets;
    /// Of `pages`, in their order: so many in each request for frames.
    struct batch {
      pin_number pin = 0;
      /// One per page that was asked for: its position in `pages`, or none.
      std::vector<std::optional<std::size_t>> asked;
    };
    std::vector<batch> batches;
    /// Of a retrieve: where its lease is.
    std::vector<std::uint32_t> leased_shards;
  };

  /// Stores, or retrieves, of a worker, from their prepare to their commit.
  class open_jobs {
  public:
    /// Takes the place of what has the same name, which its worker has given up: if that was prepared, its pages.
    std::optional<open_pages> begin(const request_ptr& x);
    /// It is not being prepared any more. False if nobody waits for it: what it has got is to be given back.
    bool end_preparing(const request_ptr& x);
    void prepared(const lmcache::incoming& x, open_pages pages) { prepared_[name_of(x)] = std::move(pages); }
    /// Its worker is done with it: its pages, if it was prepared.
    std::optional<open_pages> end(const lmcache::incoming& x);

    std::size_t size() const noexcept { return preparing_.size() + prepared_.size(); }

  private:
    /// Request, worker, first chunk and the one behind the last.
    using job_name = std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint32_t>;

    static job_name name_of(const lmcache::incoming& x);

    /// The request that asked last. No name is in both.
    std::map<job_name, request_ptr> preparing_;
    std::map<job_name, open_pages> prepared_;
  };

  struct instance {
    instance_id id = 0;
    client_number client = 0;
    namespace_id space;
    lmcache::wire::slot_shape shape;
    attachment_ptr node;
    /// Where its blocks lie, and who copies them: null where the worker copies itself.
    std::shared_ptr<const remote_layout> memory;
    caf::actor gathers;
    caf::actor scatters;
    /// Block 0 stands for what the engine has given back.
    bool sliding = false;
    /// Requests of one direction, in the order in which they came.
    struct line {
      std::deque<request_ptr> waiting;
      std::size_t under_way = 0;
    };
    line waiting_stores;
    line waiting_retrieves;
    /// Those that wait are being begun: what ends at once does not begin the next ones.
    bool beginning = false;
    /// Of both, all that were not answered. Where the worker copies itself, what lanes have been told to do with its
    /// pages. Frames may be another one's when there is none.
    std::size_t copies = 0;
    /// Nobody knows it any more, and it is given up with the last copy: not before, as the node watches the processes
    /// of those that are.
    bool ended = false;
    /// It was told that the worker touches nothing any more.
    bool at_rest = false;
    /// What waits for that, or nothing.
    std::function<void()> then{};
    open_jobs stores;
    open_jobs retrieves;
  };
  using instance_ptr = std::shared_ptr<instance>;

  struct served_namespace {
    namespace_spec spec;
    /// In whose name lookups lease keys; null while it attaches.
    attachment_ptr node;
    std::size_t instances = 0;
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
  struct store_copy;
  struct store_run;
  struct retrieve_run;
  struct waiting_status {
    request_ptr request;
    timestamp until;
  };

  /// A status that is not there yet is waited for this long, so that a client need not ask again.
  static constexpr duration status_patience = std::chrono::milliseconds(20);

  timestamp now() const { return clock().now(); }
  /// For a thread.
  std::shared_ptr<io::extent_source> held_arena() const { return parts_.users ? parts_.users->hold() : parts_.extents; }

  // -- lmcache_server.cpp: who is there --
  void look_into_inbox();
  void tick();
  void plan_tick(duration in);
  void begin(const request_ptr& x);
  void client_gone(client_number client);
  void answer(const request_ptr& x, std::optional<std::string> frame) { parts_.answer(*x, std::move(frame)); }
  void refuse(const request_ptr& x);
  bool answer_ping(const lmcache::incoming& x);
  void register_instance(const request_ptr& x);
  void attached(const request_ptr& x, const instance_ptr& made);
  void attach(const namespace_spec& space, std::int32_t process, const std::string& name,
              std::function<void(result<attachment_ptr>)> then);
  /// `at_rest`: the client has said that it touches nothing any more.
  void detach(const attachment_ptr& x, bool at_rest);
  void drop(const instance_name& which, bool at_rest);
  instance_ptr find(const request_ptr& x) const;
  /// Has not been given up meanwhile.
  bool is_known(const instance& x) const;
  /// Whether the request fits the instance's namespace.
  bool fits(const instance& of, const lmcache::chunk_range& chunks) const;
  void clear(const request_ptr& x);
  void clear_some(const registry_actor& shard, const namespace_id& space, std::uint32_t from,
                  std::function<void()> then);
  void tell_counters();

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

  // -- lmcache_transfers.cpp --
  void prepare_store(const request_ptr& x);
  /// Of the chunks of the request, these, counted from the first.
  void reserve(const std::shared_ptr<store_run>& run, const std::vector<std::uint32_t>& which);
  void place(const std::shared_ptr<store_run>& run);
  void placed(const std::shared_ptr<store_run>& run);
  void end_store(const std::shared_ptr<store_run>& run, bool stored);
  void commit_store(const request_ptr& x);
  void sealed(const std::shared_ptr<store_run>& run);
  void commit_pages(const std::shared_ptr<store_run>& run, const std::vector<errc>& filled);
  void give_up(const instance& of, rank_number rank, open_pages& pages);
  void abort_pages(const instance& of, rank_number rank, const ticket& name, const std::vector<page_ref>& pages);
  void prepare_retrieve(const request_ptr& x);
  void locate(const std::shared_ptr<retrieve_run>& run);
  void fetch(const std::shared_ptr<retrieve_run>& run);
  void verify(const std::shared_ptr<retrieve_run>& run);
  void end_retrieve(const instance& of, rank_number rank, const open_pages& pages);
  void refuse_retrieve(const std::shared_ptr<retrieve_run>& run);
  /// Those whose reason says so are found no more when `then` is called.
  void invalidate(const instance& of, rank_number rank, const std::vector<page_ref>& pages,
                  const std::vector<errc>& reasons, const std::vector<page_tier>& tiers, std::function<void()> then);
  void commit_retrieve(const request_ptr& x);
  /// Gives pages to the lanes; `then` gets a code for each.
  void work_on_pages(bool seal, const instance_ptr& of, rank_number rank, const open_pages& pages,
                     std::function<void(std::vector<errc>)> then);
  static client_worker_actor worker_of(const instance& of, rank_number rank);
  std::vector<lmcache::wire::slot_place> places_of(const instance& of, const open_pages& pages) const;

  // -- lmcache_copies.cpp: workers whose blocks the node copies --
  void register_memory(const request_ptr& x);
  void open_memory(const request_ptr& x, const attachment_ptr& as);
  void refuse_memory(const request_ptr& x, const error& why);
  void queue_copy(const request_ptr& x);
  void begin_copies(const instance_ptr& of);
  void begin_store(const request_ptr& x, const instance_ptr& of);
  void go_on(const std::shared_ptr<store_copy>& copy, bool stored);
  void gather(const std::shared_ptr<store_run>& run);
  void fetch_some(const std::shared_ptr<retrieve_run>& run);
  void scatter(const std::shared_ptr<retrieve_run>& run, std::size_t count);
  /// Those of the request that the page of its i-th chunk has.
  std::vector<std::uint32_t> blocks_of(const instance& of, const lmcache::incoming& x, std::uint32_t chunk) const;
  bool copies_fit(const instance& of, const lmcache::incoming& x) const;
  void end_copy(const request_ptr& x, const instance_ptr& of, bool copied);
  /// Pages that one request may have pinned at once, and requests of one direction that may have.
  std::pair<std::size_t, std::size_t> share_of_pins(const instance& of) const;
  /// Nothing of it is under way.
  void let_go(const instance& x);
  void end_if_done(const instance_ptr& x);

  lmcache_server_parts parts_;
  lmcache::session_table sessions_;
  /// From the first page on that is sealed or verified.
  std::vector<caf::actor> lanes_;
  std::size_t next_lane_ = 0;
  /// Those that open a worker's memory.
  std::set<caf::actor> opening_;
  std::unordered_set<client_number> clients_;
  /// Instances of these clients that they were told are unknown: the next ping of each is answered with yes, and then
  /// it registers.
  std::set<instance_name> told_unknown_;
  /// Whose memory cannot be used: they are told no for good, and then they ask for nothing.
  std::set<instance_name> refused_;
  std::map<instance_name, instance_ptr> instances_;
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
