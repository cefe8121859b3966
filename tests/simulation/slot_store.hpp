#pragma once

#include "store/metadata_store.hpp"
#include "tests/simulation/environment.hpp"

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// A page of a rank, by its key.
struct slot_page {
  key_digest key;
  rank_number rank = 0;
  slot_number slot = 0;

  friend auto operator<=>(const slot_page&, const slot_page&) = default;
};

/// The content of a node's store on its medium, and the answers of the node that depend on it. Batches become durable
/// in the order in which they came, in groups, some time later. A crash keeps all answered batches, and a beginning of
/// the others.
///
/// While a node starts, batches are durable at once, since it waits for them; and any of them may be the last action of
/// its process.
class slot_store {
public:
  /// `refuses`: some batches are refused, as by a store whose queue is full, until faults cease.
  slot_store(environment& world, namespace_id ns, duration sync_time, bool refuses)
      : world_(world), random_(world.random.fork()), ns_(ns), sync_time_(sync_time), refuses_(refuses) {}

  /// As a node that starts opens it. `may_be_killed`: the start may end at any batch.
  std::shared_ptr<store::metadata_store> open(bool may_be_killed);
  /// The node that has opened it has started.
  void serve() noexcept { starting_ = false; }
  /// The start was ended by one of its batches.
  bool killed() const noexcept { return killed_; }
  void crash();

  /// All batches are durable.
  bool idle() const noexcept { return waiting_.empty(); }

  /// An engine got the answer that the page is confirmed. It must survive restarts until a batch removes it, or
  /// registers its rank anew: then it was cleared, though its shard may have to write that later. No start may remove
  /// it.
  void promise(const slot_page& page);
  /// A run does not use the index: nothing has to be restored.
  void forget_promises() { promised_.clear(); }
  const std::map<std::string, slot_page>& promised() const noexcept { return promised_; }

private:
  class handle;
  /// By the bytes of their keys.
  using record_map = std::map<std::string, std::string, std::less<>>;

  struct waiting_batch {
    store::write_batch batch;
    store::commit_callback done;
  };

  result<void> commit(store::write_batch&& batch, store::commit_callback done);
  result<store::load_summary> load(store::load_visitor& visitor);
  result<store::page_record> stored_page(const std::string& key, const std::string& value) const;
  bool dies_now();
  bool is_full();
  void begin_sync();
  void end_promises(const store::write_batch& batch);
  void apply(record_map& to, const store::write_batch& batch) const;

  environment& world_;
  random_source random_;
  namespace_id ns_;
  duration sync_time_;
  bool refuses_;
  /// Until then the queue is full.
  timestamp full_until_{};
  record_map records_;
  /// Including batches that are not durable yet.
  record_map newest_;
  std::map<std::string, slot_page> promised_;
  /// The incarnations of all ranks, the last one and earlier ones.
  std::set<std::pair<rank_number, incarnation_number>> registered_;
  std::vector<waiting_batch> waiting_;
  std::size_t syncing_ = 0;
  /// Counts openings: what an earlier one began ends without it.
  std::uint64_t run_ = 0;
  bool starting_ = false;
  bool may_be_killed_ = false;
  bool killed_ = false;
};

} // namespace troupe::simulation
