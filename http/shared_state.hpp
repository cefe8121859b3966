#pragma once

#include "base/log.hpp"
#include "config/node_config.hpp"
#include "http/credentials.hpp"
#include "http/observer.hpp"
#include "http/router.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

namespace troupe::http {

/// What all io threads of a server have in common. All of it outlives them.
struct shared_state {
  shared_state(const config::http_config& c, router r, observer* w)
      : config(c), routes(std::move(r)), watcher(w), keys(config), log(log::get("http")) {}

  const config::http_config config;
  const router routes;
  observer* const watcher;
  credentials keys;
  const log::logger log;
  /// Open, without those that were refused.
  std::atomic<std::uint32_t> connections{0};
  /// Refused, and still being told so.
  std::atomic<std::uint32_t> refused{0};
};

} // namespace troupe::http
