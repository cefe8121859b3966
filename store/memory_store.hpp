#pragma once

#include "store/metadata_store.hpp"

#include <mutex>

namespace troupe::store {

/// Keeps nothing: every batch is answered at once, from within `commit`. For nodes that are meant to start empty, and
/// for tests. Each one has a random secret and is in its first run.
class memory_store final : public metadata_store {
public:
  memory_store();

  const node_identity& identity() const noexcept override { return identity_; }
  result<void> commit(write_batch&& batch, commit_callback done) override;
  /// Finds nothing.
  result<load_summary> load(load_visitor& visitor, unsigned threads = 1) override;
  /// unsupported.
  result<void> checkpoint(const std::filesystem::path& directory) override;
  result<void> close() override;
  store_stats stats() const override;

private:
  const node_identity identity_;
  mutable std::mutex mutex_;
  store_stats stats_;
  bool closed_ = false;
};

} // namespace troupe::store
