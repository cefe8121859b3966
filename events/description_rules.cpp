#include "events/description_rules.hpp"

#include "lmcache/protocol/msgpack_reader.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace troupe::events {

namespace {

using lmcache::protocol::msgpack_reader;

/// Tokens of one block: far more than any engine has.
constexpr std::uint32_t block_tokens_most = 4096;
/// Bytes of the name of an adapter.
constexpr std::size_t lora_bytes_most = 256;

error bad(std::string what) {
  return {errc::invalid_argument, "descriptions of pages: " + std::move(what)};
}

std::optional<error> fault_of_groups(const page_descriptions& x) {
  if (x.groups.size() > page_descriptions::max_groups)
    return bad("pages of more than " + std::to_string(page_descriptions::max_groups) + " groups");
  const auto in_kind = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  for (const auto& group : x.groups)
    if (group.kind.size() > described_group::max_kind_bytes || !std::ranges::all_of(group.kind, in_kind))
      return bad("the kind of a group has more than " + std::to_string(described_group::max_kind_bytes) +
                 " bytes, or others than small letters, digits and _");
  return std::nullopt;
}

std::optional<error> fault_of_extra(const page_descriptions& x) {
  if (x.extra_ends.empty() && x.extra.empty())
    return std::nullopt;
  if (x.extra_ends.size() != x.keys.size() || x.extra_ends.items.back() != x.extra.size())
    return bad("the ends of the extra keys do not fit their bytes");
  const auto bytes = std::as_bytes(std::span(x.extra));
  std::size_t begin = 0;
  for (const std::size_t end : x.extra_ends) {
    if (end < begin || end > bytes.size() || end - begin > page_descriptions::max_extra_bytes)
      return bad("the extra keys of a page have more than " + std::to_string(page_descriptions::max_extra_bytes) +
                 " bytes, or their ends do not ascend");
    if (end > begin) {
      msgpack_reader reader(bytes.subspan(begin, end - begin));
      // In its shortest form: the head is cut off where pieces are joined.
      const auto head = static_cast<std::uint8_t>(x.extra[begin]);
      const bool is_short = x.blocks_per_page < 16 ? head == (0x90U | x.blocks_per_page) : head == 0xdcU;
      if (!is_short || reader.array() != x.blocks_per_page)
        return bad("the extra keys of a page are no array, in its shortest form, with one element per block");
      for (std::uint32_t i = 0; i < x.blocks_per_page; ++i)
        reader.skip();
      if (!reader.done())
        return bad("the extra keys of a page are no MessagePack");
    }
    begin = end;
  }
  return std::nullopt;
}

} // namespace

std::optional<error> fault_of(const page_descriptions& x) {
  const auto pages = x.keys.size();
  if (x.blocks_per_page == 0 || x.blocks_per_page > page_descriptions::max_blocks)
    return bad("a page has 1 to " + std::to_string(page_descriptions::max_blocks) + " blocks, not " +
               std::to_string(x.blocks_per_page));
  if (x.block_tokens == 0 || x.block_tokens > block_tokens_most)
    return bad("a block has 1 to " + std::to_string(block_tokens_most) + " tokens, not " +
               std::to_string(x.block_tokens));
  if (x.lora.size() > lora_bytes_most)
    return bad("the name of the adapter has more than " + std::to_string(lora_bytes_most) + " bytes");
  if (auto fault = fault_of_groups(x))
    return fault;
  if (pages == 0)
    return bad("there are no pages");
  if (x.hashes.size() != pages * x.blocks_per_page || x.parents.size() != pages || x.has_parent.size() != pages ||
      x.tokens.size() != pages * x.blocks_per_page * x.block_tokens)
    return bad("hashes, parents or tokens do not fit the number of pages");
  if (std::ranges::any_of(x.keys, [](const key_digest& key) { return key.is_null(); }))
    return bad("the null key means no key");
  return fault_of_extra(x);
}

std::size_t weight_of(const page_descriptions& x) noexcept {
  return sizeof x + x.groups.size() * (sizeof(described_group) + described_group::max_kind_bytes) + x.lora.size() +
         x.extra.size() + x.keys.size() * (sizeof(key_digest) + 2 * sizeof(std::uint64_t)) +
         x.hashes.size() * sizeof(std::uint64_t) + x.tokens.size() * sizeof(std::uint32_t);
}

} // namespace troupe::events
