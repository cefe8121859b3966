#pragma once

#include "http/server/router.hpp"
#include "http/slots/slot_options.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {
class metadata_service;
}

namespace troupe::http::hf3fs {

/// The metadata service of vLLM's HF3FS connector. A client whose base URL is "http://host/hf3fs/NAME" has the
/// namespace "hf3fs-NAME" (after `ns`); clients may create `max_namespaces` of these.
struct options : slots::options {
  /// The protocol knows no namespaces: all of its keys are in this one. It is created when the first rank initializes.
  std::string ns = "hf3fs";
  /// Ranks that make a key complete; 0: all that are registered.
  std::uint32_t world_size = 0;
};

/// Adds POST /rank/{rank}/initialize, /keys/batch_allocate, /keys/confirm_write, /keys/batch_exists,
/// /keys/get_locations and /clear, and the same below /hf3fs/{namespace}. See docs/http-api.md.
void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options);

} // namespace troupe::http::hf3fs
