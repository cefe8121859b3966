#pragma once

#include "actors/node/namespaces/namespace_making.hpp"
#include "actors/node/namespaces/namespaces_state.hpp"
#include "actors/support/actor_support.hpp"
#include "base/memory_budget.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

/// A rank that is already registered when the actor starts.
struct known_rank {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  allocator_actor allocator;
  incarnation_number incarnation = 0;
};

struct namespaces_config {
  /// All shards of the node.
  std::vector<registry_actor> shards;
  /// The most slots that a rank may register.
  std::uint32_t max_slots = 1U << 28U;
  /// Fractions of a rank's slots, as in `config::storage_config`.
  double low_watermark = 0.0;
  double high_watermark = 0.0;
  /// As in `allocator_options`.
  duration rest = std::chrono::seconds(10);
  /// The longest time for which writers and readers are promised a slot. If some old slots of a rank were not free when
  /// it is registered again, it grants no slot for this time plus `rest`.
  duration longest_promise = std::chrono::minutes(10);
  /// Memory budget of all ranks; null for none. `bytes_of_slots` gives the memory of one.
  shared_budget memory;
  /// Namespaces of the config and their ranks, whose slots are in the node's own slab files. They cannot be changed,
  /// and the node ends their allocators.
  std::vector<namespace_spec> own;
  std::vector<known_rank> own_ranks;
  /// As in `namespaces_state::options`.
  std::shared_ptr<namespace_names> names = std::make_shared<namespace_names>();
  /// Opens namespaces that clients make. Null if none can be made.
  namespace_manager_actor keeper{};
  /// As in `namespace_making::options`.
  std::function<result<void>(const namespace_spec&)> judge{};
  /// Namespaces that clients have made and that are served from the start.
  std::vector<served_namespace> made{};
};

/// The memory of a rank with `slots` slots: its allocator, and the index from slots to keys on each of `shards` shards.
std::uint64_t bytes_of_slots(std::uint64_t slots, std::size_t shards) noexcept;

/// Spawns the allocator of a rank whose slab file belongs to clients, bound to the shards. no_memory if the memory does
/// not suffice. `first_slot` as in `allocator_options`.
result<allocator_actor> spawn_unfenced_allocator(caf::actor_system& system, const namespaces_config& options,
                                                 const rank_order& rank, const std::string& namespace_name,
                                                 slot_number first_slot = 0);

/// The actor that adds and removes namespaces and ranks while the node runs; `namespaces_state` has the rules. It
/// spawns an allocator for each rank, notifies all shards, and answers when all have answered, so a successful change
/// is known everywhere. Namespaces whose pages the node keeps are made and removed by the rules of `namespace_making`.
/// A failed request can be repeated, because shards accept the same change twice. Ends with an error when an allocator
/// dies that this actor has not ended.
class namespaces : public namespaces_actor::base {
public:
  namespaces(caf::actor_config& config, namespaces_config options, const std::vector<add_namespace_request>& known,
             const std::vector<known_rank>& ranks);

  const char* name() const override { return "namespaces"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using allocator_number = namespaces_state::allocator_number;
  using outcome_function = std::function<void(error)>;
  using outcomes_function = std::function<void(const std::vector<error>&)>;

  namespaces_state::options state_options();
  allocator_number remember(allocator_actor allocator);
  void know(const known_rank& x);

  /// Passes `request` to the state; its answer comes from the outbox.
  template <class Decide>
  caf::result<void> decide(Decide decide) {
    auto promise = make_response_promise();
    decide(promises_.add(promise));
    flush();
    return promise;
  }

  void perform(namespaces_state::report_namespace& x);
  void perform(namespaces_state::report_rank& x);
  void perform(namespaces_state::order_retirement& x);
  void perform(namespaces_state::order_removal& x);
  void perform(namespaces_state::count_slots& x);
  void perform(namespaces_state::rest_allocator& x);
  void perform(namespaces_state::end_allocator& x);
  void perform(namespaces_state::answer& x);
  void perform(namespaces_state::note& x);
  void flush();

  // -- namespaces whose pages the node keeps --

  using making = namespace_making;
  static namespace_making::options making_options(const namespaces_config& options);
  caf::result<served_namespace> make(const make_namespace_request& x);
  /// Checks whether a namespace that a client has made is the same. It keeps that client's origin.
  caf::result<void> add_again(const add_namespace_request& x);
  caf::result<void> remove(const remove_namespace_request& x);
  void perform(making::report_namespace& x);
  void perform(making::open_namespace& x);
  void perform(making::report_ranks& x);
  void perform(making::leave_namespace& x);
  void perform(making::order_removal& x);
  void perform(making::keep_namespace& x);
  void perform(making::close_namespace& x);
  void perform(making::served& x);
  void perform(making::answer& x);
  void perform(making::note& x);
  /// Sends all of these to each shard, and passes the outcome of each shard to `then`.
  template <class Request>
  void ask_shards(const std::vector<Request>& wanted, outcomes_function then);
  void made_notified(making::order_number number, const std::vector<error>& outcomes);
  void made_done(making::order_number number, const result<void>& outcome);

  /// Sends the same to all shards, and reports their outcomes to the state.
  template <class Request>
  void notify_shards(namespaces_state::order_number number, const Request& request);
  /// Removes a namespace from all shards; without force from none, if a shard has leases or reservations in it.
  void remove_everywhere(const remove_namespace_request& wanted, outcomes_function then);
  /// Calls `then` once: when nothing is left on this shard, or with the reason of a failure.
  void remove_from(const registry_actor& shard, const remove_namespace_request& wanted, outcome_function then);
  void on_down(const caf::down_msg& down);

  namespaces_config options_;
  /// The allocators of all ranks, by the numbers that the state uses, except those of the config.
  std::unordered_map<allocator_number, allocator_actor> allocators_;
  allocator_number last_allocator_ = 0;
  namespaces_state state_;
  open_promises promises_;
  namespace_making making_;
  /// The parts that serve open namespaces.
  std::map<namespace_id, served_namespace> made_;
  /// Requests that wait until a namespace is made.
  std::unordered_set<open_promises::number> makers_;
  node_actor node_;
};

} // namespace troupe
