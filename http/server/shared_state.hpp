#pragma once

#include "base/byte_budget.hpp"
#include "base/log.hpp"
#include "config/node_config.hpp"
#include "http/server/address_counts.hpp"
#include "http/server/credentials.hpp"
#include "http/server/host_rule.hpp"
#include "http/server/json_body.hpp"
#include "http/server/observer.hpp"
#include "http/server/request_rates.hpp"
#include "http/server/router.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace troupe::http {

/// State that all io threads of a server share. It outlives them.
struct shared_state {
  shared_state(const config::http_config& c, router r, observer* w)
      : config(c), routes(std::move(r)), watcher(w), keys(config), hosts(config), log(log::get("http")),
        receiving(std::max(config.limits.bodies_bytes, config.limits.body_bytes + config.limits.header_bytes)),
        reading(std::max(config.limits.bodies_bytes, json_reading_bytes(config.limits.body_bytes))),
        rates(config.limits.requests_per_second) {}

  const config::http_config config;
  const router routes;
  observer* const watcher;
  credentials keys;
  const host_rule hosts;
  const log::logger log;
  /// For requests that are being received. A single one always fits.
  byte_budget receiving;
  /// For parsing large bodies as JSON. A single one always fits.
  byte_budget reading;
  request_rates rates;
  /// Open connections, without those in the reserve.
  std::atomic<std::uint32_t> connections{0};
  address_counts addresses;
};

} // namespace troupe::http
