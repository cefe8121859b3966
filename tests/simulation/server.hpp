#pragma once

#include "actors/node/io_worker/scrub_pace.hpp"
#include "actors/node/registry/registry_options.hpp"
#include "actors/node/supervisor/node.hpp"
#include "actors/node/tables/page_residence.hpp"
#include "base/process_watch.hpp"
#include "tests/eviction_ledger.hpp"
#include "tests/simulation/asked_ledger.hpp"
#include "tests/simulation/disk_store.hpp"
#include "tests/simulation/evict_first_ledger.hpp"
#include "tests/simulation/frame_ledger.hpp"
#include "tests/simulation/lease_book.hpp"
#include "tests/simulation/memory_host.hpp"
#include "tests/simulation/page_ledger.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/process_table.hpp"
#include "tests/simulation/tap.hpp"
#include "tests/simulation/wires.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The node's process: the actors that `troupe serve` runs, over simulated disks. Everything that shards, allocators
/// and io workers say to each other passes a tap, where it is held against the ledger of pages and the book of leases;
/// and where mistakes are built in, by losing, changing or forging messages.
class server {
public:
  explicit server(environment& world);
  ~server();

  void start();
  /// kill -9.
  void kill();
  /// Refuses new work, waits for transfers in progress, and ends.
  void drain(duration limit);
  bool running() const noexcept { return in_ != nullptr; }
  process* in() noexcept { return in_.get(); }
  /// Counts starts.
  std::uint64_t run() const noexcept { return run_; }

  const reception_actor& reception() const noexcept { return reception_; }
  /// Breaks when the process ends.
  void add_line(std::shared_ptr<line> x);
  disk& disk_of(rank_number rank) noexcept { return *disks_[rank]; }
  const std::vector<std::unique_ptr<disk>>& disks() const noexcept { return disks_; }

  memory_host& memory() noexcept { return memory_; }
  frame_ledger& frames() noexcept { return frames_; }
  process_table& processes() noexcept { return processes_; }

  /// Unpublishes the pages of some key, preferably one that is leased and read. Whose lease that is, or 0.
  owner_id erase_something();

  /// Tells a worker that a client is done with what another one has pinned.
  void say_something_stray();

  /// Asks shards and workers for their leases and pins. Their answers are compared with those that there may be;
  /// leftovers at a time without any are in `left`.
  void ask_what_is_held();
  bool has_said_what_is_held() const;
  /// After the answers: why the node is not drained, or empty.
  std::string check_quiesced() const;

private:
  enum class word : std::uint8_t { publish, abort, release };

  struct rank_parts {
    allocator_actor allocator;
    io_worker_actor worker;
    disk_store* store = nullptr;
    std::optional<io_stats> stats;
  };

  registry_options options_of_shard(std::uint32_t i) const;
  void spawn_rank(rank_number rank, const metrics_actor& meters);
  void bind(const metrics_actor& meters);

  template <class Handle>
  Handle tapped(const Handle& behind, tap_rules rules);

  bool to_shard(std::uint32_t i, passing& x);
  bool from_shard(std::uint32_t i, const passing& asked, caf::message& answer);
  /// A shard tells another one of children.
  void notified_of_children(std::uint32_t from);
  /// Asks a shard for how many leases it holds a key, and holds that against the book.
  void ask_who_holds(std::uint32_t i, const key_digest& key);
  void send_held_children(std::uint32_t from);
  void matched(std::uint32_t i, const match_request& x, const match_reply& reply);
  void located(std::uint32_t i, const locate_request& x, const locate_reply& reply);
  void reserved(std::uint32_t i, const reserve_request& x, const reserve_reply& reply);
  void committed(std::uint32_t i, const finish_request& x, const finish_reply& reply);
  void unpublished(std::uint32_t i, rank_number rank, const key_digest& key, slot_ref where);
  /// Keys that a message to a shard releases, whichever client holds them; until it is answered.
  void may_go(const caf::message& x, int change);
  /// A worker reports to a shard that a page is not what was saved.
  void finds_unsound(rank_number rank, const page_ref& page);
  /// The same in its name, for a defect.
  void say_unsound(rank_number rank, const page_ref& page);
  /// A worker notifies a shard of lost pages.
  bool drops(passing& x);
  /// Another node, which is attached as nodes are: finds pages, and says what it keeps of them.
  void plan_other_node();
  void play_other_node();
  void say_kept_there(std::uint32_t i, const ticket& lease, std::vector<key_digest> kept);
  /// Messages about transient keys and about keys that another node keeps, and their effects.
  void to_shard_of_evict_first(std::uint32_t i, passing& x);
  void kept_there(std::uint32_t i, const release_request& x);
  void used(std::uint32_t i, const ticket& lease, std::span<const key_digest> keys);
  void check_evict_first(std::uint32_t i, const registry_stats& stats);
  /// Sends the shard an invented lease of the other node, for a defect.
  void forge_evict_first(std::uint32_t i, const std::vector<key_digest>& keys);
  /// Leases that had ended then have been noticed by shards.
  timestamp noticed_before() const;
  /// The shard has answered that it has evicted.
  void evicted(std::uint32_t i, rank_number rank);

  bool to_allocator(rank_number rank, passing& x);
  bool from_allocator(rank_number rank, const passing& asked, caf::message& answer);
  /// A shard says it to the allocator; held against the books.
  void hear(rank_number rank, word what, const std::vector<slot_ref>& slots);
  /// Whether the key has a page on every other rank, or had one before this eviction.
  bool is_on_other_ranks(rank_number rank, const key_digest& key) const;

  bool to_worker(rank_number rank, passing& x);
  bool from_worker(rank_number rank, const passing& asked, caf::message& answer);
  bool owner_died(rank_number rank, passing& x);
  bool owner_quiesces(rank_number rank, passing& x);
  bool ends_pin(rank_number rank, passing& x);
  bool fences(rank_number rank, passing& x);
  bool tells_of_lease(rank_number rank, passing& x);
  void filled(rank_number rank, const passing& asked, caf::message& answer);
  void gave_frames(rank_number rank, const passing& asked, caf::message& answer);
  /// Sends the worker an invented message, for a defect.
  template <class... Ts>
  void notify_worker(rank_number rank, Ts&&... what);
  /// An extent goes to the rank, or is asked back of it.
  bool assigns(rank_number rank, passing& x);
  bool asks_back(rank_number rank, passing& x);
  void fence_is_over(rank_number rank, const std::vector<slot_ref>& slots);

  /// Pages that were reported as stored are on the disks that the node leaves behind.
  void check_what_is_left();
  std::string check_memory_quiesced(rank_number rank) const;
  result<std::unique_ptr<watched_process>> watch(std::int32_t number);

  /// The shard whose turn it is.
  std::optional<std::uint32_t> shard_of_sender(const caf::strong_actor_ptr& sender) const;

  environment& world_;
  random_source random_;
  /// The scrubs of all ranks; null where there is no scrub.
  std::shared_ptr<scrub_pace> scrub_pace_;
  namespace_id ns_;
  std::shared_ptr<page_residence> residence_ = std::make_shared<page_residence>();
  std::uint64_t slot_bytes_;
  std::vector<std::unique_ptr<disk>> disks_;
  frame_ledger frames_;
  asked_ledger asked_pages_;
  memory_host memory_;
  process_table processes_;
  page_ledger pages_;
  lease_book book_;
  evict_first_ledger evict_first_{book_, pages_};
  /// Leases of the other node so far; and messages about evict-first and transient keys that were left out, for a
  /// defect.
  std::uint64_t leases_of_other_ = 0;
  std::map<ticket, std::vector<key_digest>> words_left_out_;
  std::set<ticket> transient_left_out_;
  std::uint64_t run_ = 0;
  bool draining_ = false;

  std::unique_ptr<process> in_;
  std::vector<caf::strong_actor_ptr> taps_;
  std::vector<std::shared_ptr<line>> lines_;
  caf::strong_actor_ptr asker_;
  std::vector<registry_actor> shards_;
  std::vector<caf::actor_id> shard_ids_;
  std::vector<rank_parts> ranks_;
  memory_broker_actor broker_;
  node_actor node_;
  reception_actor reception_;
  /// When pending requests for frames were sent, by sender and number.
  std::map<std::pair<caf::actor_id, std::uint64_t>, frame_ledger::moment> asked_;
  std::vector<std::optional<registry_stats>> shard_stats_;
  std::map<key_digest, int> may_go_;
  /// The keys evicted in this turn; and how many more than requested.
  std::vector<key_digest> evicted_;
  /// The ranks on which they had pages.
  std::set<std::pair<rank_number, key_digest>> evicted_on_;
  test::eviction_ledger evictions_;
  /// The parent of a key, as far as it is known: by the writer of its first page, under a reservation that named it.
  /// And per shard, the number of children elsewhere that it was notified of.
  std::map<key_digest, key_digest> parents_;
  std::map<std::pair<ticket, key_digest>, key_digest> said_parents_;
  std::map<key_digest, key_digest> first_parents_;
  std::set<key_digest> disputed_;
  std::vector<std::map<key_digest, std::int64_t>> children_elsewhere_;
  /// Per shard: in which turn it last notified an allocator of released slots, and its notifications of children to
  /// others, delayed until after those, for a defect.
  std::vector<std::uint64_t> gave_back_in_;
  struct held_child_word {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    passing what;
  };
  std::vector<held_child_word> held_children_;
  /// A word that is to be overtaken by the next one, for a mistake.
  std::optional<std::pair<rank_number, passing>> late_word_;
};

} // namespace troupe::simulation
