#include "http/server/credentials.hpp"

#include "http/server/tls.hpp"

#include <utility>

namespace troupe::http {

result<void> credentials::reload() {
  // One at a time: of two reloads, the one that read the files later wins.
  const std::lock_guard one_at_a_time{reloading_};
  credential_set fresh;
  if (config_.tokens_file) {
    auto table = token_table::load(*config_.tokens_file);
    if (!table)
      return tl::unexpected(table.error());
    fresh.tokens = std::make_shared<const token_table>(std::move(*table));
  }
  if (config_.tls.certificate) {
    auto context = load_tls(config_.tls);
    if (!context)
      return tl::unexpected(context.error());
    fresh.tls = std::move(*context);
  }
  const std::lock_guard guard{mutex_};
  fresh.version = current_.version + 1;
  current_ = std::move(fresh);
  version_.store(current_.version, std::memory_order_release);
  return {};
}

void credentials::refresh(credential_set& mine) const {
  if (mine.version == version_.load(std::memory_order_acquire))
    return;
  const std::lock_guard guard{mutex_};
  mine = current_;
}

} // namespace troupe::http
