#pragma once

#include "actors/cluster/cluster.hpp"
#include "actors/support/node_condition.hpp"
#include "tests/cluster_actors/fabric.hpp"
#include "tests/cluster_actors/node_pages.hpp"
#include "tests/cluster_actors/stub.hpp"
#include "tests/simulation/process.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster_actors {

class network;

/// An answer of a host to an attach request.
struct attached {
  owner_id owner = 0;
  std::string node;
};

/// A host with a node: its `cluster` actor as it ships, in a process of its own, and a model of everything else. The
/// model outlives runs of the node.
class host {
public:
  host(fabric& in, std::size_t number, std::string name, std::string of_cluster);
  host(const host&) = delete;
  host& operator=(const host&) = delete;
  ~host();

  // -- life
  void start();
  /// kill -9.
  void kill();
  /// Ends the actor, and waits for what it has left behind; `kill` when that is done.
  void leave();
  bool runs() const noexcept { return in_ != nullptr; }
  bool is_leaving() const noexcept { return leaving_; }
  simulation::process* in() noexcept { return in_.get(); }
  /// What a node that leaves has left behind: empty when it is done.
  std::string left_behind() const;
  std::uint64_t run() const noexcept { return run_; }
  /// Since when it does not run.
  timestamp ended() const noexcept { return ended_; }
  /// The latest time at which it began, or went on after a pause.
  timestamp undisturbed_since() const;

  std::size_t number() const noexcept { return number_; }
  const std::string& of_cluster() const noexcept { return of_cluster_; }
  std::string address() const;
  std::string ip() const;
  fabric& world() noexcept { return world_; }
  cluster_actor actor() const { return actor_; }
  const node_condition& condition() const { return *condition_; }
  node_pages& pages() noexcept { return pages_; }
  const node_pages& pages() const noexcept { return pages_; }
  network& reach() { return *network_; }

  // -- namespaces
  bool has(const namespace_id& ns) const { return open_.contains(ns); }
  const namespace_spec& spec_of(const namespace_id& ns) const;
  void remove_namespace(const namespace_id& ns);
  void make_namespace(const namespace_id& ns) { open_.insert(ns); }

  // -- what others ask of it
  result<cluster_welcome> meet(const cluster_hello& other) const;
  result<attached> attach(std::size_t from, std::uint64_t run, std::uint64_t connection, const namespace_id& ns,
                          const std::string& cluster);
  void detach(owner_id owner);
  result<lookup_result> look_up(owner_id owner, const lookup_task& wanted);
  /// The pages of these keys, empty where there is none.
  result<std::vector<page_bytes>> read(owner_id owner, rank_number rank, const std::vector<key_digest>& keys) const;
  result<reuse_reply> learned(owner_id owner) const;
  /// The clients of other hosts that are attached.
  std::size_t attachments() const noexcept { return attachments_.size(); }
  std::size_t attachments(std::size_t from, const namespace_id& ns) const;

  // -- time and messages of this run
  void later(duration time, std::function<void()> what);
  /// Runs `there` at another host, and `then` here with what it has returned, or with `unreachable` when the loss of
  /// the connection is noticed. `name`: of the request, for the counts of the world.
  template <class T>
  void ask(std::size_t to, const char* name, std::function<result<T>(host&)> there,
           std::function<void(const result<T>&)> then) {
    const auto call = open_call(
        to, [then](const void* answer) { then(*static_cast<const result<T>*>(answer)); },
        [then](const error& why) { then(tl::unexpected<error>(why)); });
    if (!call)
      return;
    world_.send(
        number_, to, call->second,
        [&world = world_, to, name, from = number_, of = run_, call = *call, there = std::move(there)](host& x) {
          world.requests.asked({from, call.first}, name);
          if (world.hosts[from]->run() != of)
            world.requests.abandoned({from, call.first});
          world.send(to, from, call.second, [of, id = call.first, answer = there(x)](host& asked) {
            if (asked.run() == of)
              asked.end_call(id, &answer);
          });
        });
  }
  /// A message that is not answered.
  void tell(std::size_t to, std::function<void(host&)> what);
  void notice_loss(std::size_t of, std::uint64_t connection);
  bool is_reachable(std::size_t to) const;

private:
  struct attachment {
    std::size_t from = 0;
    std::uint64_t run = 0;
    std::uint64_t connection = 0;
    namespace_id ns;
  };
  struct open_request {
    std::size_t to = 0;
    std::uint64_t connection = 0;
    std::function<void(const void*)> answered;
    std::function<void(const error&)> failed;
  };

  /// The number of the call and of the connection. Nothing where the host cannot be reached: then the call fails later.
  std::optional<std::pair<std::uint64_t, std::uint64_t>>
  open_call(std::size_t to, std::function<void(const void*)> answered, std::function<void(const error&)> failed);
  void end_call(std::uint64_t number, const void* answer);
  config::node_config options() const;
  void spawn_cluster();
  std::vector<registry_actor> spawn_shards();

  fabric& world_;
  const std::size_t number_;
  const std::string name_;
  const std::string of_cluster_;
  node_pages pages_;
  std::set<namespace_id> open_;
  std::map<owner_id, attachment> attachments_;
  std::uint64_t run_ = 0;
  std::uint64_t incarnation_ = 0;
  timestamp begun_{};
  timestamp ended_{};
  bool leaving_ = false;
  std::unique_ptr<simulation::process> in_;
  std::shared_ptr<network> network_;
  cluster_actor actor_;
  std::vector<caf::strong_actor_ptr> stubs_;
  std::shared_ptr<node_condition> condition_;
  std::map<std::uint64_t, std::function<void()>> planned_;
  std::map<std::uint64_t, open_request> calls_;
  std::uint64_t last_number_ = 0;
};

} // namespace troupe::cluster_actors
