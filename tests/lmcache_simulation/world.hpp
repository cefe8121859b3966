#pragma once

#include "lmcache/server_rules.hpp"
#include "tests/lmcache_simulation/defect.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Workers of LMCache at one node, whose lanes copy to and from their memory: a real `lmcache::server_rules`, and
/// around it processes, connections whose end is noticed late, attachments that fail or end, and lanes that take their
/// time. All of it in virtual time, from one seed.

namespace troupe::lmcache_simulation {

using lmcache::change_number;
using lmcache::client_number;
using lmcache::instance_name;
using lmcache::server_rules;
using sim_main::outcome;

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using action = std::function<void()>;
  using worker_number = std::uint64_t;

  /// A worker process with its present connection.
  struct worker {
    worker_number number = 0;
    /// The process that the kernel would report for its connections, if it does.
    std::int32_t process = 0;
    /// It may be unknown: then the instance number stays.
    bool sometimes_unknown = false;
    lmcache::instance_id instance = 0;
    client_number client = 0;
    /// The process of this connection; 0 where it is not known.
    std::int32_t notified_process = 0;
    /// Its KV cache now; null if it copies itself.
    std::shared_ptr<const remote_layout> memory;
    /// Its last registration or unregistration on this connection.
    change_number last_change = 0;
    bool dead = false;
    std::optional<bool> last_ping;
  };
  struct change {
    worker_number of = 0;
    instance_name name;
    /// As the rules received it, and as the worker has sent it.
    std::shared_ptr<const remote_layout> memory;
    std::shared_ptr<const remote_layout> sent;
    bool registers = false;
    bool invalid = false;
    bool settled = false;
    /// It came while a lane was at work for the process.
    bool under_work = false;
  };
  /// A registration that was prepared.
  struct made {
    worker_number of = 0;
    bool ended = false;
    bool released = false;
    /// The node has ended its attachment.
    bool lost = false;
    std::size_t copies = 0;
    /// Lanes at work.
    std::size_t work = 0;
  };

  // time
  void at(timestamp when, action what) { agenda_.emplace(std::pair(when, ++sequence_), std::move(what)); }
  void after(duration time, action what) { at(later(now_, time), std::move(what)); }
  void count(std::string_view what) { ++out_.counts[std::string(what)]; }
  void broken(std::string_view property, std::string what);
  bool has(defect x) const noexcept { return defect_ == x; }
  void trace(std::uint64_t x) { out_.trace_hash = (out_.trace_hash ^ x) * 0x100000001b3ULL; }

  // workers
  void start();
  void connect(worker& x);
  /// The end of this connection is noticed some time later.
  void disconnect(const worker& x);
  /// Pings and waits for no answer.
  void ping_at_the_end(const worker& x);
  void reconnect(worker& x);
  void die(worker& x);
  void new_memory(worker& x);
  void enroll(worker& x, bool anew);
  void unregister(worker& x);
  void copy(const worker& x);
  void begin_work(change_number of, unsigned pieces);
  void ping(worker& x);
  worker* pick();
  std::int32_t notified(const worker& x) const;

  // the server
  void flush();
  void perform(const server_rules::prepare& x);
  void perform(const server_rules::settle& x);
  void perform(const server_rules::end& x);
  void perform(const server_rules::release& x);
  void check_settled(change_number number, bool accepted);
  void plan_tick();
  void send_away();
  bool lanes_work_for(worker_number x) const;

  void step();
  void finish();
  void check_in_the_end();

  simulation::random_source random_;
  const std::uint64_t steps_;
  const defect defect_;
  timestamp now_{std::chrono::hours(1000)};
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
  server_rules rules_;
  std::map<worker_number, worker> workers_;
  std::map<change_number, change> changes_;
  /// Registrations and unregistrations by their number, and pings.
  sim_main::asked_requests<std::pair<std::string_view, std::uint64_t>> requests_{
      [this](const std::string& name) { count(name); }};
  std::uint64_t last_ping_ = 0;
  std::map<change_number, made> made_;
  worker_number last_worker_ = 0;
  client_number last_client_ = 0;
  std::uint64_t last_memory_ = 0;
  timestamp tick_at_ = timestamp::max();
  bool is_calm_ = false;
  bool stopped_ = false;
  outcome out_;
};

} // namespace troupe::lmcache_simulation
