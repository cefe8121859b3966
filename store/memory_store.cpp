#include "store/memory_store.hpp"

#include <utility>

namespace troupe::store {

memory_store::memory_store() : identity_(first_identity()) {}

result<void> memory_store::commit(write_batch&& batch, commit_callback done) {
  {
    const std::lock_guard guard(mutex_);
    if (closed_) {
      ++stats_.refused;
      return fail(errc::shutting_down, "the metadata store is closed");
    }
    ++stats_.batches;
    ++stats_.groups;
    stats_.records += batch.records();
    stats_.bytes += batch.bytes();
  }
  // Taken over, as by a store that keeps it.
  const auto taken = std::exchange(batch, {});
  done({});
  return {};
}

result<load_summary> memory_store::load(load_visitor& visitor, unsigned) {
  const std::lock_guard guard(mutex_);
  if (closed_)
    return fail(errc::shutting_down, "the metadata store is closed");
  visitor.on_progress(0, 0);
  return load_summary{};
}

result<void> memory_store::checkpoint(const std::filesystem::path&) {
  return fail(errc::unsupported, "a metadata store in memory has nothing to make a checkpoint of");
}

result<void> memory_store::close() {
  const std::lock_guard guard(mutex_);
  closed_ = true;
  return {};
}

store_stats memory_store::stats() const {
  const std::lock_guard guard(mutex_);
  return stats_;
}

} // namespace troupe::store
