#pragma once

#include "http/server/router.hpp"
#include "http/slots/slot_options.hpp"

#include <memory>
#include <string>

namespace troupe {
class metadata_service;
}

namespace troupe::http::sglang {

/// The metadata service of SGLang's HF3FS backend.
struct options : slots::options {
  /// A client's namespace "kv" is the registry's "sglang-kv", and "sglang-NAME:kv" where the client's base URL is
  /// "http://host/sglang/NAME".
  std::string prefix = "sglang-";
};

/// Adds POST /{rank}/initialize, exists, reserve_and_allocate_page_indices, confirm_write, get_page_indices,
/// delete_keys and clear, and the same below /sglang/{namespace}. Ranks are independent: with MLA, where all ranks hold
/// the same, clients only name rank 0. See docs/http-api.md.
void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options);

} // namespace troupe::http::sglang
