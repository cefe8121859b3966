#pragma once

#include "actors/node/namespaces/namespaces.hpp"
#include "actors/node/registry/registry_options.hpp"
#include "actors/node/supervisor/index_restore.hpp"
#include "actors/node/supervisor/node.hpp"
#include "base/memory_budget.hpp"
#include "io/slab/disk_budget.hpp"
#include "tests/simulation/namespace_folder.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/process_table.hpp"
#include "tests/simulation/slot_store.hpp"
#include "tests/simulation/tap.hpp"
#include "tests/unit/io_support.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The process of a node on which clients create namespaces: shards, the namespaces actor, the keeper of such
/// namespaces with the io workers and allocators that it spawns, the memory broker and the supervisor, started over the
/// content of its store and its folder, as `troupe serve` does. It tracks from the answers which namespaces exist, and
/// which pages each of them can have.
class namespace_node {
public:
  namespace_node(environment& world, const namespace_parameters& p);
  ~namespace_node();

  void start();
  /// kill -9.
  void kill();
  bool running() const noexcept { return serving_; }
  process* in() noexcept { return in_.get(); }
  /// Counts starts.
  std::uint64_t life() const noexcept { return life_; }

  process_table& processes() noexcept { return processes_; }
  namespace_folder& folder() noexcept { return folder_; }
  const std::shared_ptr<namespace_memory>& memory() const noexcept { return memory_; }
  const node_actor& supervisor() const noexcept { return node_; }
  caf::strong_actor_ptr new_asker();

  /// Asks in the name of that actor, which is this run's. What is not answered when the node ends never is.
  void ask(const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message what, asker::then done);
  std::uint64_t open_asks() const noexcept { return open_asks_; }

  // -- the possible state, from requests and answers --

  /// A client requests its creation, and receives the result.
  void making(const namespace_id& ns);
  void asked_to_make(const namespace_id& ns);
  /// It exists: a client has attached to it.
  void attached(const namespace_id& ns);
  /// A writer is about to commit pages.
  void committing(const namespace_id& ns, rank_number rank, incarnation_number of, const page_ref& page);
  /// A reader gets the location of a page.
  void notified(const namespace_id& ns, rank_number rank, incarnation_number of, const page_ref& page);
  /// Its pages may have been lost since it was made: the node was killed since.
  bool may_have_lost(const namespace_id& ns, rank_number rank, incarnation_number of) const;

  /// Removes one, as the HTTP server does.
  void remove(const namespace_spec& ns, bool force, std::function<void(errc)> done = {});

  /// Nothing is left of any namespace; asks the actors and waits.
  std::string check_empty();
  /// Slots add up, all extents are assigned, and no more disk space is used than there is.
  void check_counts();

private:
  enum class presence : std::uint8_t {
    /// It was never requested, or was removed.
    absent,
    present,
    /// Being made, or removed, or either did not end well.
    unknown,
  };

  registry_options options_of_shard(std::uint32_t i) const;
  bool begin();
  void end();
  void supervise(const known_namespaces& known, const metrics_actor& meters);
  void check_restored(const known_namespaces& known);
  bool to_shard(std::uint32_t i, passing& x);
  void end_waiting();
  bool from_keeper(const passing& asked, caf::message& answer);
  result<std::unique_ptr<watched_process>> watch(std::int32_t number);
  template <class T, class Handle, class... Ts>
  result<T> ask_now(const Handle& to, Ts... xs);

  environment& world_;
  const namespace_parameters& p_;
  random_source random_;
  slot_store store_;
  namespace_folder folder_;
  test::scratch_directory directory_;
  config::node_config options_;
  process_table processes_;
  std::uint64_t life_ = 0;
  bool serving_ = false;

  std::unique_ptr<process> in_;
  std::shared_ptr<namespace_memory> memory_;
  shared_budget budget_;
  std::shared_ptr<io::disk_budget> disk_;
  std::shared_ptr<namespace_names> names_;
  std::vector<caf::strong_actor_ptr> taps_;
  std::vector<caf::strong_actor_ptr> askers_;
  std::vector<registry_actor> shards_;
  namespace_manager_actor keeper_;
  memory_broker_actor broker_;
  namespaces_actor namespaces_;
  node_actor node_;
  caf::strong_actor_ptr admin_;
  std::uint64_t open_asks_ = 0;
  std::map<std::pair<caf::actor_id, std::uint64_t>, passing> waiting_;

  std::map<namespace_id, presence> presence_;
  /// Requests to make it that are not answered.
  std::map<namespace_id, std::uint64_t> making_;
  /// Requests to remove it that are not answered.
  std::map<namespace_id, std::uint64_t> removing_;
  /// Pages that were about to be committed, by what they lie in.
  std::set<std::tuple<namespace_id, rank_number, incarnation_number, key_digest>> committed_;
  /// The life of the node in which it was first opened.
  std::map<std::tuple<namespace_id, rank_number, incarnation_number>, std::uint64_t> since_;
};

} // namespace troupe::simulation
