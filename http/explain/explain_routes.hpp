#pragma once

#include "http/explain/explain_service.hpp"
#include "http/native/native.hpp"
#include "http/server/router.hpp"

#include <memory>
#include <span>

namespace troupe::http::explain {

/// Adds `GET /v1/explain`: why lookups did not find more. See docs/http-api.md.
void add_routes(router& routes, std::shared_ptr<const explain_service> service);

/// The routes of `add_routes`.
std::span<const native::described_route> described_routes() noexcept;

} // namespace troupe::http::explain
