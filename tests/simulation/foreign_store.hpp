#pragma once

#include "store/write_batch.hpp"
#include "tests/simulation/network.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troupe::simulation {

/// A store of the node as store/rocksdb_store.hpp is one with `strict` durability: batches become durable in the order
/// in which they came, in groups, some time later. A crash keeps all that was answered, and of what was not, a
/// beginning.
class foreign_store {
public:
  foreign_store(environment& world, network& net, duration sync_time)
      : world_(world), net_(net), random_(world.random.fork()), sync_time_(sync_time) {}

  void commit(store::write_batch batch, std::function<void()> done);
  void crash();
  /// For a start, which waits for it.
  void apply_now(const store::write_batch& batch) { apply(batch); }

  /// What is durable, by the bytes of its keys.
  const std::map<std::string, std::string>& records() const noexcept { return records_; }

private:
  struct waiting_batch {
    store::write_batch batch;
    std::function<void()> done;
  };

  void begin_sync();
  void apply(const store::write_batch& batch);

  environment& world_;
  network& net_;
  random_source random_;
  duration sync_time_;
  std::map<std::string, std::string> records_;
  std::vector<waiting_batch> waiting_;
  std::size_t syncing_ = 0;
};

} // namespace troupe::simulation
