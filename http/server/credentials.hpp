#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"
#include "http/server/tokens.hpp"

#include <atomic>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <mutex>

namespace troupe::http {

/// Tokens and certificates as they were when they were last loaded. Null: not asked for.
struct credential_set {
  std::shared_ptr<const token_table> tokens;
  std::shared_ptr<boost::asio::ssl::context> tls;
  /// Counts up with each reload; 0: nothing has been loaded.
  std::uint64_t version = 0;
};

/// What the server checks callers against, and shows them. Thread-safe.
class credentials {
public:
  explicit credentials(const config::http_config& config) : config_(config) {}

  /// Loads everything again. All of it changes, or nothing.
  result<void> reload();

  /// Brings a thread's own copy up to date. Costs one load of an atomic if it is.
  void refresh(credential_set& mine) const;

private:
  const config::http_config& config_;
  std::mutex reloading_;
  mutable std::mutex mutex_;
  credential_set current_;
  std::atomic<std::uint64_t> version_{0};
};

} // namespace troupe::http
