#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/registry/journal.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "actors/node/supervisor/restore_plan.hpp"
#include "tests/simulation/foreign_disk.hpp"
#include "tests/simulation/foreign_parameters.hpp"
#include "tests/simulation/foreign_store.hpp"
#include "tests/simulation/network.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The part of a node that serves clients without tokens: registry shards with a journal each, allocators that nobody
/// fences, and a store, run as actors/node/registry/registry.cpp and actors/node/allocator/allocator.cpp run them. The
/// store outlives it, as do the slab files, which it never touches.
class foreign_node {
public:
  foreign_node(environment& world, network& net, const foreign_parameters& p);

  static constexpr address shard(std::uint32_t i) { return {node_process, role::shard, i}; }
  static constexpr address allocator(rank_number rank) { return {node_process, role::allocator, rank}; }

  /// Over what is in the store.
  void start();
  /// kill -9.
  void kill();
  bool running() const noexcept { return parts_ != nullptr; }
  /// How often it was started.
  std::uint64_t life() const noexcept { return life_; }

  // -- what clients ask; each is called when the message has arrived -------------------------------------------------

  void allocate(std::uint32_t shard, const allocate_request& x, const promise<reserve_reply>& answer);
  void confirm(std::uint32_t shard, const confirm_request& x, const promise<result_codes>& answer);
  void reclaim(std::uint32_t shard, const reclaim_request& x, const promise<result_codes>& answer);
  void erase(std::uint32_t shard, const erase_request& x, const promise<result_codes>& answer);
  void exists(std::uint32_t shard, const exists_request& x, const promise<result_codes>& answer);
  void protect(std::uint32_t shard, const protect_request& x, const promise<locate_reply>& answer);

  // -- what the checks look at ---------------------------------------------------------------------------------------

  foreign_disk& disk(rank_number rank) { return disks_[rank]; }
  bool is_live(const key_digest& key, rank_number rank, slot_number slot) const;
  std::vector<key_digest> keys() const;
  std::string check_counts() const;
  std::string check_all() const;
  /// Nothing is promised to anybody, nothing is under way.
  std::string check_at_rest() const;

private:
  struct waiting_allocate {
    allocate_request wanted;
    promise<reserve_reply> answer;
    int waits = 0;
  };

  struct shard_parts {
    std::unique_ptr<registry_state> state;
    journal log;
    std::map<plan_id, promise<reserve_reply>> plans;
    std::map<plan_id, std::vector<waiting_allocate>> waiting;
  };

  struct rank_parts {
    std::unique_ptr<allocator_state> allocator;
    std::map<std::uint64_t, promise<take_reply>> takes;
    std::uint64_t last_take = 0;
    /// To the shards, out of the store.
    bool known = false;
    /// While pages are restored.
    std::vector<slot_ref> refused;
  };

  struct parts {
    std::vector<shard_parts> shards;
    std::vector<rank_parts> ranks;
  };

  using page_name = std::pair<key_digest, rank_number>;

  /// What a run makes of the index.
  enum class run_kind : std::uint8_t {
    durable,
    /// Registry durability `none`: serves the same engines, and leaves the index as it is.
    without_index,
    /// Durable, but the namespace could not be restored, since something was in the way; then engines made it again.
    taken_name,
  };

  registry_state& registry(std::uint32_t i) { return *parts_->shards[i].state; }
  bool keeps_index() const noexcept { return kind_ != run_kind::without_index; }
  /// False if it was killed before it served.
  bool begin();
  bool restore();
  bool dies_now();
  void make_parts();
  void make_known(rank_number rank, incarnation_number incarnation);
  bool read_store(restore_plan& plan);
  void give_back(const stored_page& page);
  void end_restoring();
  /// Makes its changes durable, as a start waits for them.
  void settle_shard(std::uint32_t i);
  void check_restored() const;
  void keep_ticking_shard(std::uint32_t i);
  void tick_shard(std::uint32_t i);
  void keep_ticking_allocator(rank_number rank);
  /// Answers when all changes so far are durable.
  template <class Reply>
  void answer_durably(std::uint32_t i, result<Reply> reply, const promise<Reply>& answer,
                      std::function<void()> before = {});
  void go_on(std::uint32_t i, result<reserve_plan> plan, waiting_allocate x);
  void granted(std::uint32_t i, plan_id plan, const std::vector<slot_ref>& slots);
  void flush_shard(std::uint32_t i);
  void write_changes(std::uint32_t i);
  void tell_allocator(std::uint32_t i, const slots_to_allocator& batch);
  void say(std::uint32_t i, rank_number rank, std::string_view what,
           std::function<std::vector<errc>(allocator_state&)> word);
  void flush_allocator(rank_number rank);
  void ask_to_evict(rank_number rank, std::uint32_t wanted);
  void evict(std::uint32_t i, const evict_request& x, const promise<evict_reply>& answer);
  void note_confirmed(std::uint32_t i, const confirm_request& x, const result_codes& reply);

  environment& world_;
  network& net_;
  const foreign_parameters& p_;
  random_source random_;
  namespace_id space_;
  foreign_store store_;
  /// Of the data directory.
  std::optional<incarnation_number> epoch_;
  run_kind kind_ = run_kind::durable;
  std::vector<foreign_disk> disks_;
  /// Pages whose confirmation was answered with ok, and that nothing has unpublished since.
  std::map<page_name, slot_number> answered_;
  std::unique_ptr<parts> parts_;
  std::uint64_t life_ = 0;
};

} // namespace troupe::simulation
