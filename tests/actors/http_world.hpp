#pragma once

#include "http/registry/metadata_service.hpp"
#include "http/server/server.hpp"
#include "messages/messages.hpp"
#include "tests/unit/http_support.hpp"

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// A registry with several shards on threads, and an HTTP server before it: what a node has that serves HTTP alone.

namespace troupe::test {

/// A server's reply.
struct http_answer {
  int code = 0;
  std::string head;
  std::string text;
  /// Null where the body is no JSON.
  nlohmann::json body;

  std::string detail() const { return body.is_object() ? body.value("detail", "") : ""; }
};

class http_world {
public:
  /// Adds the routes that a test wants served.
  using add_routes = std::function<void(http::router&, const std::shared_ptr<const metadata_service>&)>;

  explicit http_world(const add_routes& add, const config::http_config& config = http::test_config(),
                      std::uint32_t shards = 3, http::observer* watcher = nullptr);
  ~http_world();
  http_world(const http_world&) = delete;
  http_world& operator=(const http_world&) = delete;

  caf::actor_system& system() noexcept { return *system_; }
  const std::shared_ptr<const metadata_service>& service() const noexcept { return service_; }
  const metrics_actor& metrics() const noexcept { return metrics_; }
  /// Messages that the service has sent to shards so far.
  std::uint64_t asked_shards() const noexcept { return asked_shards_; }
  std::uint16_t port() const noexcept { return server_->port(); }

  /// A request on a connection of its own. An empty body is sent as none.
  http_answer call(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view more_headers = {}) const;
  http_answer get(std::string_view path) const { return call("GET", path); }
  http_answer post(std::string_view path, const nlohmann::json& body) const { return call("POST", path, body.dump()); }

private:
  struct system_options;
  /// Outlives the servers that count into it.
  std::atomic<std::uint64_t> asked_shards_{0};
  std::unique_ptr<system_options> options_;
  std::unique_ptr<caf::actor_system> system_;
  metrics_actor metrics_;
  std::vector<registry_actor> shards_;
  namespaces_actor namespaces_;
  std::shared_ptr<const metadata_service> service_;
  std::unique_ptr<http::server> server_;
};

} // namespace troupe::test
