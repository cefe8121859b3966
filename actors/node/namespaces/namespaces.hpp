#pragma once

#include "actors/support/actor_support.hpp"
#include "base/memory_budget.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// A rank that is known already when the actor starts.
struct known_rank {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  allocator_actor allocator;
  incarnation_number incarnation = 0;
};

struct namespaces_config {
  /// All shards of the node.
  std::vector<registry_actor> shards;
  /// A rank may register with so many slots.
  std::uint32_t max_slots = 1U << 28U;
  /// Fractions of a rank's slots, as in `config::storage_config`.
  double low_watermark = 0.0;
  double high_watermark = 0.0;
  /// As in `allocator_options`.
  duration rest = std::chrono::seconds(10);
  /// Of all ranks; null for none. `bytes_of_slots` says what one takes.
  shared_budget memory;
  /// Namespaces of the config and their ranks, whose slots the node's own slab files have: they cannot be changed, and
  /// others end their allocators.
  std::vector<namespace_spec> own;
  std::vector<known_rank> own_ranks;
};

/// The memory of a rank that registers with so many slots: its allocator, and what each of so many shards may need to
/// find keys by slots.
std::uint64_t bytes_of_slots(std::uint64_t slots, std::size_t shards) noexcept;

/// The allocator of a rank whose slab file is its clients'. Knows the shards. no_space if the memory does not suffice.
result<allocator_actor> spawn_foreign_allocator(caf::actor_system& system, const namespaces_config& options,
                                                const register_rank_request& rank);

/// Namespaces and ranks that come and go while the node runs. Spawns an allocator for each rank, tells all shards, and
/// answers when all have answered; so what is answered is known everywhere. A request that fails on the way can be
/// repeated: shards take the same thing twice. Ends with an error when an allocator dies that it has not ended.
class namespaces : public namespaces_actor::base {
public:
  namespaces(caf::actor_config& config, namespaces_config options, const std::vector<add_namespace_request>& known,
             const std::vector<known_rank>& ranks);

  const char* name() const override { return "namespaces"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// A registration: what all shards are being told, or know.
  struct rank_entry {
    std::uint32_t slots = 0;
    allocator_actor allocator;
    incarnation_number incarnation = 0;
    enum class phase : std::uint8_t {
      registered,
      /// Shards are being told.
      under_way,
      /// It is given another number of slots.
      replacing,
      /// Some shards know it, and some do not: it is told to all again, as it is, when somebody registers it again.
      half_known,
    } state = phase::under_way;
    std::vector<caf::response_promise> waiting;
  };
  struct space_entry {
    std::string name;
    std::map<rank_number, rank_entry> ranks;
    /// Of the config.
    bool own = false;
    /// Being removed: this answers who asked.
    std::vector<caf::response_promise> removing;
  };
  using outcome_function = std::function<void(const error&)>;
  /// With how many shards said yes.
  using answers_function = std::function<void(const error&, std::size_t)>;

  caf::result<void> add(const add_namespace_request& wanted);
  caf::result<void> remove(const remove_namespace_request& wanted);
  caf::result<void> register_rank(const register_rank_request& wanted);
  caf::result<void> register_own(const space_entry& space, const register_rank_request& wanted) const;
  caf::result<void> register_again(space_entry& space, const register_rank_request& wanted);

  void remove_from(const registry_actor& shard, const remove_namespace_request& wanted, outcome_function then);
  void removal_ended(const namespace_id& space, const error& outcome);

  /// Tells all shards of the rank as its entry has it.
  void tell_shards(const register_rank_request& wanted, answers_function then);
  void register_at_shards(const register_rank_request& wanted);
  void registered(const register_rank_request& wanted, const error& outcome, std::size_t accepted);
  /// Gives a rank that holds nothing another number of slots. Shards forget the old ones first.
  void replace(const register_rank_request& wanted, const allocator_actor& fresh);
  void retired(const register_rank_request& wanted, const allocator_actor& fresh);
  void keep_old(const register_rank_request& wanted, const allocator_actor& fresh, const error& why);

  result<allocator_actor> make_allocator(const register_rank_request& wanted);
  void end_allocator(const allocator_actor& which);
  rank_entry& entry_of(const register_rank_request& x) { return spaces_.at(x.space).ranks.at(x.rank); }
  void on_down(const caf::down_msg& down);

  namespaces_config options_;
  std::map<namespace_id, space_entry> spaces_;
  open_promises promises_;
};

} // namespace troupe
