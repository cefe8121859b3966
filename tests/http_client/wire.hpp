#pragma once

#include "tests/http_client/metadata_client.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Bodies of vLLM's HF3FS protocol.

namespace troupe::client_detail {

std::string initialize_body(std::uint64_t pages, metadata_client::client_role role);
std::string allocate_body(rank_number rank, std::span<const metadata_client::key_and_prefix> keys);
std::string confirm_body(rank_number rank, std::span<const metadata_client::key_and_page> confirmations,
                         std::span<const slot_number> pages_to_release);
std::string exists_body(std::span<const std::string> keys);
std::string locations_body(rank_number rank, std::span<const std::string> keys);

// Answers; `internal` where they do not fit the request.

result<std::vector<metadata_client::allocation>>
read_allocations(std::string body, std::span<const metadata_client::key_and_prefix> asked);
result<std::vector<bool>> read_exists(std::string body, std::size_t asked);
result<std::vector<std::optional<slot_number>>> read_locations(std::string body, std::size_t asked);

/// The sentence of `{"detail":"…"}`; else the beginning of the body.
std::string read_detail(std::string body);

} // namespace troupe::client_detail
