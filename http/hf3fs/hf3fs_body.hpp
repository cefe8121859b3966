#pragma once

#include "http/slots/foreign_body.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

/// The bodies of vLLM's HF3FS metadata service; see docs/http-api.md. Each function takes text that is followed by
/// `body_padding` readable bytes, and says why it does not accept a body.

namespace troupe::http {

/// POST /rank/{rank}/initialize
struct hf3fs_initialize {
  /// Schedulers only ask whether the server is there.
  bool is_scheduler = false;
  std::uint32_t pages = 0;
};

/// POST /keys/batch_allocate
struct hf3fs_allocate {
  rank_number rank = 0;
  wanted_pages wanted;
};

/// POST /keys/confirm_write
struct hf3fs_confirm {
  rank_number rank = 0;
  written_pages pages;
};

/// POST /keys/get_locations
struct hf3fs_locate {
  rank_number rank = 0;
  std::vector<key_digest> keys;
};

accepted<hf3fs_initialize> read_hf3fs_initialize(std::string_view body);
accepted<hf3fs_allocate> read_hf3fs_allocate(std::string_view body, const body_rules& rules);
accepted<hf3fs_confirm> read_hf3fs_confirm(std::string_view body, const body_rules& rules);
/// POST /keys/batch_exists
accepted<std::vector<key_digest>> read_hf3fs_exists(std::string_view body, const body_rules& rules);
accepted<hf3fs_locate> read_hf3fs_locate(std::string_view body, const body_rules& rules);

} // namespace troupe::http
