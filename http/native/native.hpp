#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "http/registry/caller_limits.hpp"
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
  /// Keys or pages of one request: not more than one shard takes in one batch, because all may belong to the same
  /// shard.
  std::uint32_t max_items = 4096;
  /// For requests that do not set a duration.
  duration lease_default = std::chrono::seconds{30};
  duration lease_max = std::chrono::minutes{10};
  /// For callers of role `read`; never more than `lease_max`.
  duration readers_lease_max = std::chrono::minutes{1};
  caller_limits limits = {};
  duration reservation_default = std::chrono::seconds{60};
  duration reservation_max = std::chrono::seconds{60};
  /// The digest of a key that is free text. Not set: `hash_key` of its bytes.
  std::function<key_digest(std::string_view)> hash_text;
  /// Counts results of keys and pages; may be null. Shared: answers may come after the server was destroyed.
  std::shared_ptr<item_counts> counts;
  /// The state of the cluster as the node sees it; not set: there is none. `then` may be called in any thread.
  std::function<void(std::function<void(result<cluster_stats>)> then)> cluster;
  /// Notified of the name of a caller that looks up keys, and of the owner of its leases; not set: nothing wants it.
  std::function<void(owner_id owner, const std::string& name)> name_caller;
};

/// Adds Troupe's own API, `/v1/…`, and its description, `/openapi.json`. See docs/http-api.md.
void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options);

struct described_route {
  http::method method = http::method::get;
  std::string_view pattern;
  std::string_view name;
  role needs = role::admin;
  bool shows_all_namespaces = false;
};

/// The routes of `add_routes`.
std::span<const described_route> described_routes() noexcept;

/// The OpenAPI description of this API and of the routes in http/admin.hpp: JSON.
std::string_view openapi_text() noexcept;

} // namespace troupe::http::native
