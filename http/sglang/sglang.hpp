#pragma once

#include "http/server/router.hpp"
#include "http/slots/foreign_options.hpp"

#include <memory>
#include <string>

namespace troupe {
class metadata_service;
}

namespace troupe::http {

/// The metadata service of SGLang's HF3FS backend.
struct sglang_options : foreign_options {
  /// A client's namespace "kv" is the registry's "sglang-kv".
  std::string prefix = "sglang-";
};

/// Adds POST /{rank}/initialize, exists, reserve_and_allocate_page_indices, confirm_write, get_page_indices,
/// delete_keys and clear. Each rank is for itself: with MLA, where all ranks hold the same, clients only ever name rank
/// 0. What each means is in docs/http-api.md.
void add_sglang_routes(router& routes, std::shared_ptr<const metadata_service> service, const sglang_options& options);

} // namespace troupe::http
