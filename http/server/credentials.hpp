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

/// Tokens and certificates as they were last loaded. Null: not configured.
struct credential_set {
  std::shared_ptr<const token_table> tokens;
  std::shared_ptr<boost::asio::ssl::context> tls;
  /// Incremented with each reload; 0: nothing has been loaded.
  std::uint64_t version = 0;
};

/// The credentials of the server: tokens of callers, and certificates. Thread-safe.
class credentials {
public:
  explicit credentials(const config::http_config& config) : config_(config) {}

  /// Reloads everything. Either all of it changes, or nothing.
  result<void> reload();

  /// Updates a thread's own copy. Costs one load of an atomic if it is current.
  void refresh(credential_set& mine) const;

private:
  const config::http_config& config_;
  std::mutex reloading_;
  mutable std::mutex mutex_;
  credential_set current_;
  std::atomic<std::uint64_t> version_{0};
};

} // namespace troupe::http
