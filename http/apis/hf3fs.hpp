#pragma once

#include "base/clock.hpp"
#include "http/client_keys.hpp"
#include "http/refusals.hpp"
#include "http/router.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {
class metadata_service;
}

namespace troupe::http {

/// The metadata service of vLLM's HF3FS connector.
struct hf3fs_options {
  /// The wire knows no namespaces: all of its keys are in this one. It is made when the first rank initializes, if it
  /// is not there.
  std::string space = "hf3fs";
  /// Ranks that make a key complete; 0: all that are registered.
  std::uint32_t world_size = 0;
  /// For clients whose base URL is "http://host/hf3fs/NAME": namespaces "hf3fs-NAME" (after `space`) that they may
  /// bring into being. 0: none.
  std::uint32_t max_namespaces = 16;
  /// How long a page is kept whose location was told.
  duration protect_for = std::chrono::seconds{10};
  /// How long a client has to write a page that it was given.
  duration reservation_deadline = std::chrono::seconds{60};
  /// Items of one list of a request.
  std::size_t max_keys = 65536;
  client_keys::secret key_secret{};
  /// For items of /keys/confirm_write, whose answer has no room for them. May be empty.
  refusal_counter count_refused;
};

/// Adds POST /rank/{rank}/initialize, /keys/batch_allocate, /keys/confirm_write, /keys/batch_exists,
/// /keys/get_locations and /clear, and the same below /hf3fs/{namespace}. What each means is in docs/http-api.md.
void add_hf3fs_routes(router& routes, std::shared_ptr<const metadata_service> service, const hf3fs_options& options);

} // namespace troupe::http
