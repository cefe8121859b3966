#pragma once

#include "http/slots/foreign_body.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The bodies of SGLang's HF3FS metadata service; see docs/http-api.md. Each function takes text that is followed by
/// `body_padding` readable bytes, and says why it does not accept a body.

namespace troupe::http {

/// What a body without one means.
inline constexpr std::string_view sglang_default_namespace = "kv";

/// POST /{rank}/initialize
struct sglang_initialize {
  std::string space;
  std::uint32_t pages = 0;
};

/// POST /{rank}/reserve_and_allocate_page_indices
struct sglang_reserve {
  std::string space;
  wanted_pages wanted;
};

/// POST /{rank}/confirm_write
struct sglang_confirm {
  std::string space;
  written_pages pages;
};

/// POST /{rank}/exists, get_page_indices and delete_keys
struct sglang_keys {
  std::string space;
  std::vector<key_digest> keys;
};

accepted<sglang_initialize> read_sglang_initialize(std::string_view body);
accepted<sglang_reserve> read_sglang_reserve(std::string_view body, const body_rules& rules);
accepted<sglang_confirm> read_sglang_confirm(std::string_view body, const body_rules& rules);
accepted<sglang_keys> read_sglang_keys(std::string_view body, const body_rules& rules);
/// POST /{rank}/clear, whose body may be missing: the namespace.
accepted<std::string> read_sglang_clear(std::string_view body);

} // namespace troupe::http
