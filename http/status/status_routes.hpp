#pragma once

#include "http/native/native.hpp"
#include "http/server/router.hpp"
#include "http/status/status_service.hpp"

#include <memory>
#include <span>

namespace troupe::http::node_status {

/// Adds the routes that show a node's state to people: `/v1/status`, `/v1/config` and `/v1/log`.
void add_routes(router& routes, std::shared_ptr<const status_service> live_status);

/// The routes of `add_routes`.
std::span<const native::described_route> described_routes() noexcept;

} // namespace troupe::http::node_status
