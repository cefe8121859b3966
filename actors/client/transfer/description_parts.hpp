#pragma once

#include "messages/event_messages.hpp"

#include <cstdint>
#include <vector>

namespace troupe::transfer {

/// The descriptions for one registry shard, or a part of them.
struct description_part {
  std::uint32_t shard = 0;
  page_descriptions pages;
};

/// Bytes of the tokens of one part, so that a message stays small, whatever the shape of the pages.
inline constexpr std::size_t part_token_bytes = std::size_t{256} << 10U;

/// Descriptions of pages, divided among registry shards, in their order and with at most `most` pages in each part.
/// Empty where the arrays do not fit each other.
std::vector<description_part> parts_by_shard(const page_descriptions& x, std::uint32_t shards, std::uint32_t most);

} // namespace troupe::transfer
