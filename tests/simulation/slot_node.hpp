#pragma once

#include "actors/node/registry/registry_options.hpp"
#include "actors/node/supervisor/index_restore.hpp"
#include "actors/node/supervisor/node.hpp"
#include "http/registry/metadata_service.hpp"
#include "tests/simulation/page_ledger.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/slot_disk.hpp"
#include "tests/simulation/slot_parameters.hpp"
#include "tests/simulation/slot_promises.hpp"
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
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The process of a node that serves slot clients: shards with a journal each, the namespaces actor with the allocators
/// that it makes, the supervisor, and what the HTTP server asks all of them through. It starts over what its store and
/// its data directory have, as `troupe serve` does. Both outlive it, as do the slab files, which it never touches.
class slot_node {
public:
  slot_node(environment& world, const slot_parameters& p);
  ~slot_node();

  void start();
  /// kill -9.
  void kill();
  bool running() const noexcept { return serving_; }
  process* in() noexcept { return in_.get(); }
  /// How often it was started.
  std::uint64_t life() const noexcept { return life_; }

  template <class T>
  using callback = metadata_service::callback<T>;
  template <class T>
  using call = std::function<void(const metadata_service& service, callback<T> then)>;

  /// A request as the HTTP server makes it. `then` is called in the turn in which the answer is known, unless the node
  /// has ended by then.
  template <class T>
  void serve(const call<T>& what, callback<T> then) {
    ++open_calls_;
    what(*service_, [this, life = life_, then = std::move(then)](result<T> answer) {
      if (!running() || life != life_)
        return;
      --open_calls_;
      then(std::move(answer));
    });
  }

  /// An engine gets this answer to a confirmation.
  void confirmed(rank_number rank, const std::vector<page_ref>& pages, const std::vector<std::uint8_t>& codes);

  slot_disk& disk(rank_number rank) { return disks_[rank]; }
  /// The number of slots of the rank's last registration.
  std::uint32_t slots(rank_number rank) const { return slots_[rank]; }

  // -- what the checks look at; all of it asks the actors, and waits -------------------------------------------------

  bool is_live(const slot_page& page);
  /// The keys of existing pages.
  std::vector<key_digest> keys() const { return pages_.keys(); }
  /// Slots by state add up to all slots, and no answer was invalid.
  std::string check_counts();
  /// No slot is reserved and no request is in progress.
  std::string check_quiesced();

private:
  /// How a run restores the index.
  enum class run_kind : std::uint8_t {
    durable,
    /// Registry durability `none`: serves the same engines, and leaves the index as it is.
    without_index,
    /// Durable, but the namespace could not be restored, since something was in the way; then engines made it again.
    taken_name,
  };

  struct resting_slot {
    slot_ref where;
    timestamp until;
  };

  struct rank_parts {
    allocator_actor real;
    allocator_actor allocator;
    std::map<slot_number, resting_slot> resting;
  };

  bool keeps_index() const noexcept { return kind_ != run_kind::without_index; }
  registry_options options_of_shard(std::uint32_t i) const;
  void spawn_shards(const std::shared_ptr<store::metadata_store>& index);
  /// False if it was killed before it served.
  bool begin();
  std::optional<known_namespaces> restore(const std::shared_ptr<store::metadata_store>& index,
                                          const namespaces_config& shards);
  void supervise();
  void end();
  void check_restored() const;

  template <class T, class Ask>
  result<T> wait_for(Ask ask);
  template <class T, class Handle, class... Ts>
  result<T> ask_now(const Handle& to, Ts... xs);

  /// A start would wait for ever: it gets an error instead.
  void end_waiting();
  bool to_shard(std::uint32_t i, passing& x);
  bool from_shard(std::uint32_t i, const passing& asked, caf::message& answer);
  void restored(const restore_request& asked, const result_codes& answer);
  allocator_actor known_allocator(rank_number rank, const allocator_actor& real);
  /// Whether it still serves the rank.
  bool serves(rank_number rank, caf::actor_id real) const;
  bool to_allocator(rank_number rank, passing& x);
  bool from_allocator(rank_number rank, const passing& asked, caf::message& answer);
  void granted(rank_number rank, const std::vector<slot_ref>& slots);
  void given_back(rank_number rank, const slot_batch& batch);

  environment& world_;
  const slot_parameters& p_;
  random_source random_;
  namespace_id ns_;
  slot_store store_;
  /// Has the epoch, and nothing else.
  test::scratch_directory directory_;
  config::node_config options_;
  std::vector<slot_disk> disks_;
  std::vector<std::uint32_t> slots_;
  page_ledger pages_;
  slot_promises promises_;
  /// By the last start.
  std::set<slot_page> restored_;
  run_kind kind_ = run_kind::durable;
  std::uint64_t life_ = 0;
  bool serving_ = false;
  std::uint64_t open_calls_ = 0;

  std::unique_ptr<process> in_;
  std::vector<caf::strong_actor_ptr> taps_;
  std::vector<registry_actor> shards_;
  /// The requests of a start to shards without an answer yet; by sender and number.
  std::map<std::pair<caf::actor_id, std::uint64_t>, passing> waiting_;
  std::vector<rank_parts> ranks_;
  namespaces_actor namespaces_;
  std::unique_ptr<metadata_service> service_;
};

} // namespace troupe::simulation
