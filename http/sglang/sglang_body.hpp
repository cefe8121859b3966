#pragma once

#include "http/slots/slot_body.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The bodies of SGLang's HF3FS metadata service; see docs/http-api.md. Each function takes text that is followed by
/// `body_padding` readable bytes, and returns why a body is rejected.

namespace troupe::http::sglang {

/// The namespace of a body that names none.
inline constexpr std::string_view default_namespace = "kv";

/// POST /{rank}/initialize
struct initialize_body {
  std::string ns;
  std::uint32_t pages = 0;
};

/// POST /{rank}/reserve_and_allocate_page_indices
struct reserve_body {
  std::string ns;
  slots::wanted_pages wanted;
};

/// POST /{rank}/confirm_write
struct confirm_body {
  std::string ns;
  slots::written_pages pages;
};

/// POST /{rank}/exists, get_page_indices and delete_keys
struct keys_body {
  std::string ns;
  std::vector<key_digest> keys;
};

/// POST /{rank}/clear
struct clear_body {
  std::string ns;
};

accepted<initialize_body> read_initialize(std::string_view body);
accepted<reserve_body> read_reserve(std::string_view body, const slots::body_rules& rules);
accepted<confirm_body> read_confirm(std::string_view body, const slots::body_rules& rules);
accepted<keys_body> read_keys(std::string_view body, const slots::body_rules& rules);
/// The body is optional.
accepted<clear_body> read_clear(std::string_view body);

} // namespace troupe::http::sglang
