#include "actors/client/transfer/description_parts.hpp"

#include "messages/description_pages.hpp"

#include <algorithm>

namespace troupe::transfer {

namespace {

bool fits(const page_descriptions& x) {
  const auto pages = x.keys.size();
  if (x.hashes.size() != pages * x.blocks_per_page || x.parents.size() != pages || x.has_parent.size() != pages ||
      x.tokens.size() != pages * x.blocks_per_page * x.block_tokens)
    return false;
  if (x.extra_ends.empty())
    return x.extra.empty();
  std::size_t begin = 0;
  for (const std::size_t end : x.extra_ends) {
    if (end < begin || end > x.extra.size())
      return false;
    begin = end;
  }
  return x.extra_ends.size() == pages;
}

} // namespace

std::vector<description_part> parts_by_shard(const page_descriptions& x, std::uint32_t shards, std::uint32_t most) {
  if (!fits(x))
    return {};
  const auto tokens = std::size_t{x.blocks_per_page} * x.block_tokens;
  const auto by_bytes =
      std::max<std::size_t>(1, part_token_bytes / std::max<std::size_t>(1, tokens * sizeof(std::uint32_t)));
  const auto pages_most = std::clamp<std::size_t>(most, 1, by_bytes);
  constexpr std::size_t none = ~std::size_t{0};
  std::vector<description_part> out;
  /// By shard: the part that is being filled.
  std::vector<std::size_t> current(shards, none);
  for (std::size_t i = 0; i < x.keys.size(); ++i) {
    const auto shard = shard_of(x.keys[i], shards);
    auto& at = current[shard];
    if (at == none || out[at].pages.keys.size() >= pages_most) {
      at = out.size();
      out.push_back({shard, {x.block_tokens, x.blocks_per_page, x.groups, x.lora}});
    }
    append_page(out[at].pages, x, i);
  }
  return out;
}

} // namespace troupe::transfer
