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

/// The metadata service of SGLang's HF3FS backend.
struct sglang_options {
  /// A client's namespace "kv" is the registry's "sglang-kv".
  std::string prefix = "sglang-";
  /// Namespaces that clients may bring into being.
  std::uint32_t max_namespaces = 16;
  /// How long a page is kept whose location was told.
  duration protect_for = std::chrono::seconds{10};
  /// How long a client has to write a page that it was given.
  duration reservation_deadline = std::chrono::seconds{60};
  /// Items of one list of a request.
  std::size_t max_keys = 65536;
  client_keys::secret key_secret{};
  /// For items of confirm_write, whose answer has no room for them. May be empty.
  refusal_counter count_refused;
};

/// Adds POST /{rank}/initialize, exists, reserve_and_allocate_page_indices, confirm_write, get_page_indices,
/// delete_keys and clear. Each rank is for itself: with MLA, where all ranks hold the same, clients only ever name rank
/// 0. What each means is in docs/http-api.md.
void add_sglang_routes(router& routes, std::shared_ptr<const metadata_service> service, const sglang_options& options);

} // namespace troupe::http
