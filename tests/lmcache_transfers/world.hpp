#pragma once

#include "actors/client/transfer/load_state.hpp"
#include "actors/client/transfer/save_state.hpp"
#include "actors/lmcache/grouped_lookup.hpp"
#include "lmcache/group_chunks.hpp"
#include "lmcache/open_requests.hpp"
#include "lmcache/server_rules.hpp"
#include "lmcache/session_table.hpp"
#include "lmcache/transfer_rules.hpp"
#include "tests/lmcache_transfers/defect.hpp"
#include "tests/lmcache_transfers/node_model.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// Stores and retrieves of LMCache's workers at one node: real `transfer_rules`, `server_rules` and `open_requests`,
/// real coordinators, and around them workers that copy or are copied for, are slow, commit twice or never, register
/// again, reconnect and die in any phase; lanes that take their time, and a node whose answers get lost. Some workers
/// have several groups of layers, whose pages are evicted apart; their engines look up, with real `grouped_lookup` and
/// `session_table`, load what was found, and store what they have computed, of some chunks without all blocks. All of
/// it in virtual time, from one seed.

namespace troupe::lmcache_transfers {

using lmcache::change_number;
using lmcache::client_number;
using lmcache::open_requests;
using lmcache::server_rules;
using lmcache::transfer_rules;
using lmcache::protocol::operation;
using sim_main::outcome;
using request_ptr = transfer_rules::request_ptr;

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using action = std::function<void()>;
  using worker_number = std::uint64_t;

  struct worker {
    worker_number number = 0;
    bool by_node = false;
    client_number client = 0;
    /// One, or several.
    std::vector<lmcache::group_needs> groups{{}};
    std::vector<content> blocks;
    /// Blocks of requests that were not answered, by request.
    std::map<const lmcache::incoming*, std::vector<std::uint32_t>> busy;
    /// Grows when the worker drops what it has under way: what it was about to do it does no more.
    std::uint64_t life = 0;
    bool dead = false;
    change_number last_change = 0;
    /// That was answered.
    bool is_settled = false;
  };
  struct made_group {
    std::size_t node = 0;
    transfer::save_state save;
    transfer::load_state load;
    std::map<transfer::task_id, lmcache::part_number> saves{};
    std::map<transfer::task_id, lmcache::part_number> loads{};
  };
  /// A registration that was prepared, with its attachments and coordinators.
  struct made {
    worker_number of = 0;
    client_number client = 0;
    bool by_node = false;
    std::vector<made_group> groups{};
    /// Its coordinators have ended.
    bool over = false;
    /// Its attachment has, and nothing touches its frames.
    bool rests = false;
    timestamp busy_until{};
  };
  struct sent_request {
    request_ptr what;
    timestamp due{};
    bool answered = false;
  };
  /// An order that was not answered.
  struct open_order {
    change_number of = 0;
    std::uint32_t group = 0;
    bool saves = false;
    transfer::call_id call = 0;
    std::size_t pages = 0;
  };

  // time
  void at(timestamp when, action what) { agenda_.emplace(std::pair(when, ++sequence_), std::move(what)); }
  void after(duration time, action what) { at(later(now_, time), std::move(what)); }
  /// After the earlier messages for this registration.
  void send(change_number of, action what);
  void count(std::string_view what) { ++out_.counts[std::string(what)]; }
  void broken(std::string_view property, std::string what);
  bool has(defect x) const noexcept { return defect_ == x; }
  bool rarely(std::uint64_t n) { return !is_calm_ && random_.one_in(n); }

  // workers: workers.cpp
  void start();
  void enroll(worker& x);
  void unregister(worker& x);
  void reconnect(worker& x);
  void die(worker& x);
  /// Its engine gives all blocks to other requests, and it touches no frame any more.
  void drop_all(worker& x);
  /// The worker accesses no frame of a registration that the node has ended.
  void rest_lost(const worker& x);
  void transfer(worker& x);
  void copy_by_node(worker& x, bool stores);
  void prepare(worker& x, bool stores);
  void notified(const transfer_rules::prepared& x);
  /// One page after the other, from this one on, as long as the worker wants that.
  void write(worker_number who, const transfer_rules::prepared& x, std::size_t next);
  void read(worker_number who, const transfer_rules::prepared& x, std::size_t next);
  void commit(worker_number who, const request_ptr& prepared, bool with_tensors);
  request_ptr make_request(const worker& x, operation what, std::uint64_t document, std::uint32_t chunks);
  /// What the page of a key holds.
  content meaning(std::size_t node, const key_digest& key) const { return meant_.at(key) + 1'000'000'000 * node; }
  node_model& node_of(change_number of, std::uint32_t group) { return nodes_[made_.at(of).groups[group].node]; }

  // engines whose workers have several groups: engines.cpp
  /// A request of an engine, from its lookup until it ends.
  struct engine_request {
    worker_number who = 0;
    std::uint64_t life = 0;
    std::string name;
    std::uint64_t document = 0;
    std::uint32_t chunks = 0;
    /// Tokens that the engine has itself, and whether the lookup says so.
    std::uint32_t computed = 0;
    bool says = true;
    client_number scheduler = 0;
    std::uint64_t lookup = 0;
    std::optional<lmcache::grouped_lookup> rules{};
    std::vector<ticket> leases{};
  };
  using engine_request_ptr = std::shared_ptr<engine_request>;
  void run_request(worker& x);
  void go_on(const engine_request_ptr& x);
  void looked_up(const engine_request_ptr& x);
  void check_hit(const engine_request& x);
  /// The engine has the answer.
  void schedule(const engine_request_ptr& x, std::uint32_t hit);
  void load(const engine_request_ptr& x, std::uint32_t hit);
  void store(const engine_request_ptr& x, std::uint32_t first);
  void end_unneeded();
  request_ptr make_part(const engine_request& x, operation what, std::uint32_t begin, std::uint32_t end);
  /// What a worker writes of a chunk: rubbish where it has only some of its blocks.
  content written_by(const lmcache::incoming& request, std::uint32_t group, std::uint32_t chunk,
                     const key_digest& key) const;
  /// Whether the frames are of exactly those pages that the blocks of the worker need.
  void check_loaded(const transfer_rules::prepared& x);
  void evict();
  /// What follows a request of an engine happens.
  void fire(const request_ptr& x, bool done);
  request_ptr ask(const worker& x, lmcache::incoming what);
  /// The connection of the worker ends, and with it what waits for answers on it.
  void leave(const worker& x);
  worker* pick();
  worker* alive(worker_number who, std::uint64_t life);

  // the server: world.cpp
  void begin(const request_ptr& x);
  void prepare_frames(const request_ptr& x, change_number of);
  void damage();
  /// The node ends the attachment of a registration; later the worker's pings make it register again.
  void send_away();
  void end_job_of_lost(const request_ptr& x);
  void stop();
  bool answer(const request_ptr& x, bool done);
  void flush();
  void perform(const server_rules::prepare& x);
  void perform(const server_rules::settle& x);
  void perform(const server_rules::end& x);
  void perform(const server_rules::release& x);
  void perform(const transfer_rules::start& x);
  void perform(const transfer_rules::cancel& x);
  void perform(const transfer_rules::check& x);
  void perform(const transfer_rules::end_order& x);
  void perform(const transfer_rules::refuse& x);
  void perform(const transfer_rules::prepared& x);
  void perform(const transfer_rules::done& x);
  void end_coordinators(change_number of);
  void end_attachment(change_number of, bool quiesced);
  void tick();

  // coordinators, and what they ask: carriers.cpp
  void pump(change_number of);
  /// A request of a coordinator, which is answered later, or whose answer is lost.
  template <class State, class Reply, class Work>
  void ask_node(change_number of, std::uint32_t group, State made_group::*state,
                void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp), transfer::call_id call,
                bool may_be_lost, Work work);
  finish_reply publish(std::size_t node, const finish_request& x);
  void perform(change_number of, std::uint32_t group, transfer::save_reserve& x);
  void perform(change_number of, std::uint32_t group, transfer::save_place& x);
  void perform(change_number of, std::uint32_t group, transfer::save_gather& x);
  void perform(change_number of, std::uint32_t group, transfer::save_fill& x);
  void perform(change_number of, std::uint32_t group, transfer::save_commit& x);
  void perform(change_number of, std::uint32_t group, transfer::save_abort& x);
  void perform(change_number of, std::uint32_t group, transfer::load_locate& x);
  void perform(change_number of, std::uint32_t group, transfer::load_fetch& x);
  void perform(change_number of, std::uint32_t group, transfer::load_scatter& x);
  void perform(change_number of, std::uint32_t group, transfer::load_unpin& x);
  void perform(change_number of, std::uint32_t group, transfer::load_invalidate& x);
  void perform(change_number of, std::uint32_t group, transfer::load_release& x);
  void perform(change_number, std::uint32_t, transfer::load_read&) {}
  void finished(change_number of, std::uint32_t group, bool saves, const transfer::task_finished& x);
  void order(change_number of, std::uint32_t group, bool saves, transfer::call_id call, const copy_order& what);
  void move(change_number of, bool saves, lmcache::order_number number, const copy_order& what);
  copy_reply carry_out(change_number of, bool saves, const copy_order& what);
  void answer_order(lmcache::order_number number, result<copy_reply> reply);

  void step();
  void finish();
  void check_in_the_end();

  simulation::random_source random_;
  const std::uint64_t steps_;
  const defect defect_;
  timestamp now_{std::chrono::hours(1000)};
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
  /// The namespace of workers with one group, and those of the groups of others.
  std::vector<node_model> nodes_{node_model(24), node_model(40), node_model(40), node_model(40)};
  lmcache::session_table sessions_{lmcache::session_table::options{}};
  std::map<lmcache::session_table::lease_number, engine_request_ptr> leases_;
  std::map<std::uint64_t, engine_request_ptr> lookups_;
  /// What follows a request of an engine: called with whether it was done.
  std::map<const lmcache::incoming*, std::function<void(bool)>> then_;
  /// Blocks that the worker of a store has: tokens before this one are missing in windows, and these chunks have
  /// states.
  struct stored_blocks {
    std::uint32_t first_live = 0;
    std::set<std::uint32_t> states;
  };
  std::map<std::string, stored_blocks> blocks_of_;
  server_rules rules_;
  open_requests open_;
  transfer_rules transfers_{rules_, open_};
  std::map<worker_number, worker> workers_;
  std::map<change_number, std::pair<worker_number, client_number>> changes_;
  std::map<change_number, made> made_;
  /// Registrations that the node has ended while their workers had frames, by worker, with the jobs that still have
  /// them.
  struct lost_frames {
    change_number of = 0;
    std::set<transfer_rules::job_name> jobs;
  };
  std::map<lmcache::instance_name, lost_frames> lost_;
  std::map<lmcache::order_number, open_order> orders_;
  /// Every request that a worker has sent.
  std::map<const lmcache::incoming*, sent_request> asked_;
  sim_main::asked_requests<const lmcache::incoming*> waited_for_{[this](const std::string& name) { count(name); }};
  /// Stores that a worker has abandoned by repeating them.
  std::set<const lmcache::incoming*> dropped_;
  /// The meaning of each key.
  std::map<key_digest, content> meant_;
  worker_number last_worker_ = 0;
  client_number last_client_ = 0;
  lmcache::order_number last_order_ = 0;
  std::uint64_t last_request_ = 0;
  content last_junk_ = 1'000'000;
  bool flushing_ = false;
  bool is_calm_ = false;
  bool stopped_ = false;
  outcome out_;
};

} // namespace troupe::lmcache_transfers
