#pragma once

#include "http/slots/slot_body.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

/// The bodies of vLLM's HF3FS metadata service; see docs/http-api.md. Each function takes text that is followed by
/// `body_padding` readable bytes, and returns why a body is rejected.

namespace troupe::http::hf3fs {

/// POST /rank/{rank}/initialize
struct initialize_body {
  /// Schedulers only check whether the server is reachable.
  bool is_scheduler = false;
  std::uint32_t pages = 0;
};

/// POST /keys/batch_allocate
struct allocate_body {
  rank_number rank = 0;
  slots::wanted_pages wanted;
};

/// POST /keys/confirm_write
struct confirm_body {
  rank_number rank = 0;
  slots::written_pages pages;
};

/// POST /keys/get_locations
struct locate_body {
  rank_number rank = 0;
  std::vector<key_digest> keys;
};

accepted<initialize_body> read_initialize(std::string_view body);
accepted<allocate_body> read_allocate(std::string_view body, const slots::body_rules& rules);
accepted<confirm_body> read_confirm(std::string_view body, const slots::body_rules& rules);
/// POST /keys/batch_exists
accepted<std::vector<key_digest>> read_exists(std::string_view body, const slots::body_rules& rules);
accepted<locate_body> read_locate(std::string_view body, const slots::body_rules& rules);

} // namespace troupe::http::hf3fs
