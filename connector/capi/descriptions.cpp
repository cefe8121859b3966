#include "connector/capi/descriptions.hpp"

#include "connector/capi/boundary.hpp"
#include "connector/capi/conversions.hpp"

#include <string>
#include <vector>

namespace troupe::capi {

namespace {

/// Tokens of a block; the node has the same limit.
constexpr std::uint32_t described_tokens_most = 4096;

template <class T>
result<packed<T>> copy_of(const T* data, std::size_t count, std::string_view name) {
  const auto found = array_of(data, count, name);
  if (!found)
    return tl::unexpected(found.error());
  return packed<T>(std::vector<T>(found->begin(), found->end()));
}

result<std::vector<described_group>> groups_of(const troupe_descriptions& x) {
  std::vector<described_group> out;
  if (x.groups == nullptr) {
    if (x.group_idx >= 0)
      out.push_back({static_cast<std::uint32_t>(x.group_idx)});
    return out;
  }
  if (x.group_count > page_descriptions::max_groups)
    return fail(errc::limit_exceeded, std::to_string(x.group_count) + " groups in a page; at most " +
                                          std::to_string(page_descriptions::max_groups));
  for (std::size_t i = 0; i < x.group_count; ++i) {
    const auto kind = text_of(x.groups[i].kind, "kind");
    if (!kind)
      return tl::unexpected(kind.error());
    out.push_back({x.groups[i].index, std::string(*kind), x.groups[i].window});
  }
  return out;
}

} // namespace

result<troupe_descriptions> read_descriptions(const troupe_descriptions* from) {
  auto x = read(from, "descriptions");
  if (!x)
    return x;
  if (x->blocks_per_page == 0)
    x->blocks_per_page = 1;
  if (x->blocks_per_page > page_descriptions::max_blocks || x->block_tokens == 0 ||
      x->block_tokens > described_tokens_most)
    return fail(errc::invalid_argument, "descriptions: a page has 1 to 64 blocks, of 1 to 4096 tokens");
  if (x->count > described_pages_most)
    return fail(errc::limit_exceeded,
                std::to_string(x->count) + " pages in a call; at most " + std::to_string(described_pages_most));
  return x;
}

result<page_descriptions> descriptions_of(const troupe_descriptions& x, std::span<const key_digest> keys) {
  page_descriptions out;
  out.block_tokens = x.block_tokens;
  out.blocks_per_page = x.blocks_per_page;
  if (auto groups = groups_of(x))
    out.groups = std::move(*groups);
  else
    return tl::unexpected(groups.error());
  const auto lora = text_of(x.lora, "lora");
  if (!lora)
    return tl::unexpected(lora.error());
  out.lora = *lora;
  out.keys.items.assign(keys.begin(), keys.end());
  const auto blocks = x.count * x.blocks_per_page;
  auto hashes = copy_of(x.hashes, blocks, "hashes");
  auto parents = copy_of(x.parents, x.count, "parents");
  auto has_parent = copy_of(x.has_parent, x.count, "has_parent");
  auto tokens = copy_of(x.tokens, blocks * x.block_tokens, "tokens");
  for (const auto* bad : {hashes ? nullptr : &hashes.error(), parents ? nullptr : &parents.error(),
                          has_parent ? nullptr : &has_parent.error(), tokens ? nullptr : &tokens.error()})
    if (bad != nullptr)
      return tl::unexpected(*bad);
  out.hashes = std::move(*hashes);
  out.parents = std::move(*parents);
  out.has_parent = std::move(*has_parent);
  out.tokens = std::move(*tokens);
  if (x.extra_ends == nullptr || x.count == 0)
    return out;
  out.extra_ends.items.assign(x.extra_ends, x.extra_ends + x.count);
  const std::size_t bytes = out.extra_ends.items.back();
  if (bytes > x.count * page_descriptions::max_extra_bytes)
    return fail(errc::limit_exceeded, "extra keys of " + std::to_string(bytes) + " bytes; a page has at most 4096");
  const auto extra = array_of(x.extra, bytes, "extra");
  if (!extra)
    return tl::unexpected(extra.error());
  out.extra.assign(reinterpret_cast<const char*>(extra->data()), bytes);
  return out;
}

} // namespace troupe::capi
