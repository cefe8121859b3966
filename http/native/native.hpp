#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "http/callers/caller_limits.hpp"
#include "http/server/router.hpp"
#include "messages/cluster_messages.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {
class metadata_service;
}

namespace troupe::http {
class item_counts;
}

namespace troupe::http::native {

struct options {
  /// Keys or pages of one request. Not more than one shard takes in one batch, for they may all fall on the same.
  std::uint32_t max_items = 4096;
  /// For requests that do not say how long.
  duration lease_default = std::chrono::seconds{30};
  duration lease_max = std::chrono::minutes{10};
  /// For callers that may only read; never more than `lease_max`.
  duration readers_lease_max = std::chrono::minutes{1};
  caller_limits limits = {};
  duration reservation_default = std::chrono::seconds{60};
  duration reservation_max = std::chrono::seconds{60};
  /// The digest of a key that is any text. Not set: `hash_key` of its bytes.
  std::function<key_digest(std::string_view)> hash_text;
  /// Counts what became of keys and pages; may be null. Must own them: answers may come after the server has gone.
  std::shared_ptr<item_counts> counts;
  /// What the node knows of others of its cluster; not set: there are none. `then` may be called in any thread.
  std::function<void(std::function<void(result<cluster_stats>)> then)> cluster;
};

/// Adds Troupe's own API, `/v1/…`, and its description, `/openapi.json`. docs/http-api.md explains it.
void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options);

struct described_route {
  http::method method = http::method::get;
  std::string_view pattern;
  std::string_view name;
  role needs = role::admin;
  bool shows_all_namespaces = false;
};

/// What `add_routes` adds.
std::span<const described_route> described_routes() noexcept;

/// The OpenAPI description of this API and of the routes in http/admin.hpp: JSON.
std::string_view openapi_text() noexcept;

} // namespace troupe::http::native
