#pragma once

#include "connector/capi/boundary.hpp"
#include "connector/capi/conversions.hpp"
#include "connector/live/runtime.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::capi {

/// The state that halves and pools share. Lives as long as the last of them.
struct connection_core {
  std::unique_ptr<connector::runtime> runtime;
};

/// The core of a usable handle.
result<std::shared_ptr<connection_core>> core_of(troupe_connection* connection);

/// Creates a handle of the connection for the caller: `make(runtime)` returns a `result<std::unique_ptr<Handle>>`.
template <class Handle, class F>
std::int32_t create(troupe_connection* connection, Handle** out, troupe_error* error, F make) noexcept {
  return guarded(error, [&]() -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    auto core = core_of(connection);
    if (!core)
      return tl::unexpected(core.error());
    result<std::unique_ptr<Handle>> made = make(*(*core)->runtime);
    if (!made)
      return tl::unexpected(made.error());
    (*made)->core = std::move(*core);
    *out = made->release();
    return {};
  });
}

/// The same for a half of an engine's connector: `make(runtime, terms)`, with the terms of the engine.
template <class Handle, class F>
std::int32_t create(troupe_connection* connection, const troupe_engine* engine, Handle** out, troupe_error* error,
                    F make) noexcept {
  return create(connection, out, error, [&](connector::runtime& runtime) -> result<std::unique_ptr<Handle>> {
    const auto terms = engine_of(engine);
    if (!terms)
      return tl::unexpected(terms.error());
    return make(runtime, *terms);
  });
}

} // namespace troupe::capi

struct troupe_connection : troupe::capi::handle {
  std::shared_ptr<troupe::capi::connection_core> core;
};
