#include "replay/device_memory.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <utility>

namespace troupe::replay {

namespace {

constexpr std::byte poison_byte{0xdb};

/// Huge pages are asked for from this size on.
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

} // namespace

std::string to_string(const wrong_byte& wrong) {
  return fmt::format("layer {}, {}, token {}, head {}, byte {} (page offset {}): 0x{:02x}, must be 0x{:02x}",
                     wrong.layer, wrong.part == 0 ? "K" : "V", wrong.token, wrong.head, wrong.content_offset,
                     wrong.page_offset, std::to_integer<unsigned>(wrong.found),
                     std::to_integer<unsigned>(wrong.expected));
}

void device_memory::unmap::operator()(std::byte* p) const noexcept {
  ::munmap(p, bytes);
}

result<device_memory> device_memory::create(const kv_geometry& geometry, std::uint32_t blocks, const options& how) {
  const auto bytes = layer_bytes(geometry, blocks);
  if (!bytes)
    return tl::unexpected(bytes.error());
  device_memory out;
  std::vector<std::span<std::byte>> spans;
  for (std::uint32_t layer = 0; layer < geometry.layers && *bytes != 0; ++layer) {
    auto* memory = ::mmap(nullptr, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return fail(
          errc::limit_exceeded,
          fmt::format("the KV cache model needs {} layers of {} bytes, and layer {} could not be allocated: {}; "
                      "use fewer blocks or smaller pages",
                      geometry.layers, *bytes, layer, system_error(errno, "mmap").text));
    if (*bytes >= huge_page_bytes)
      ::madvise(memory, *bytes, MADV_HUGEPAGE); // only makes it faster: a refusal changes nothing
    out.tensors_.emplace_back(static_cast<std::byte*>(memory), unmap{*bytes});
    spans.emplace_back(static_cast<std::byte*>(memory), *bytes);
  }
  auto view = make_kv_cache_view(how.layout, geometry, blocks, spans);
  if (!view)
    return tl::unexpected(std::move(view.error()));
  for (const auto& span : spans)
    std::memset(span.data(), std::to_integer<int>(poison_byte), span.size());
  out.layout_ = how.layout;
  out.view_ = std::move(*view);
  out.taken_.resize(blocks, false);
  out.free_.resize(blocks);
  std::iota(out.free_.begin(), out.free_.end(), 0U);
  // Written out, because std::shuffle gives another order with another standard library.
  std::mt19937_64 random(how.seed);
  for (std::size_t i = out.free_.size(); i > 1; --i)
    std::swap(out.free_[i - 1], out.free_[random() % i]);
  return out;
}

result<std::vector<std::uint32_t>> device_memory::take(std::size_t count) {
  if (count > free_.size())
    return fail(errc::full,
                fmt::format("{} blocks of the KV cache wanted, {} of {} are free", count, free_.size(), view_.blocks));
  std::vector<std::uint32_t> blocks(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  for (const auto block : blocks)
    taken_[block] = true;
  return blocks;
}

result<void> device_memory::give_back(std::span<const std::uint32_t> blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < view_.blocks && taken_[blocks[i]]) {
      taken_[blocks[i]] = false;
      continue;
    }
    for (const auto block : blocks.first(i))
      taken_[block] = true;
    return fail(errc::not_owner,
                fmt::format("block {} was given back but is not taken; there are {} blocks", blocks[i], view_.blocks));
  }
  free_.insert(free_.end(), blocks.begin(), blocks.end());
  return {};
}

std::byte* device_memory::address(std::uint32_t layer, std::uint32_t block, std::uint32_t part, std::uint32_t token,
                                  std::uint32_t head) const noexcept {
  const auto& g = view_.geometry;
  // Index of the head's content, as in a C array of the layout's shape.
  std::uint64_t index = 0;
  switch (layout_) {
  case kv_layout::split: // [part][block][token][head]
    index = ((std::uint64_t{part} * view_.blocks + block) * g.block_tokens + token) * g.heads + head;
    break;
  case kv_layout::blocks_first: // [block][part][token][head]
    index = ((std::uint64_t{block} * g.parts + part) * g.block_tokens + token) * g.heads + head;
    break;
  case kv_layout::head_major: // [block][part][head][token]
    index = ((std::uint64_t{block} * g.parts + part) * g.heads + head) * g.block_tokens + token;
    break;
  case kv_layout::packed: // [block][head][token][part]
    index = ((std::uint64_t{block} * g.heads + head) * g.block_tokens + token) * g.parts + part;
    break;
  case kv_layout::mla: // [block][token]
    index = std::uint64_t{block} * g.block_tokens + token;
    break;
  }
  return tensors_[layer].get() + index * g.head_size * g.element_bytes;
}

template <class Visit>
void device_memory::for_each_piece(std::uint32_t block, std::uint32_t first_token, Visit visit) const {
  const auto& g = view_.geometry;
  const std::uint64_t content = std::uint64_t{g.head_size} * g.element_bytes;
  const std::uint64_t token_bytes = g.heads * content;
  const bool heads_follow = layout_ != kv_layout::head_major && layout_ != kv_layout::packed;
  first_token = std::min(first_token, g.block_tokens);
  for (std::uint32_t layer = 0; layer < g.layers; ++layer) {
    for (std::uint32_t part = 0; part < g.parts; ++part) {
      const auto part_offset = (std::uint64_t{layer} * g.parts + part) * g.block_tokens * token_bytes;
      if (heads_follow) {
        if (!visit(std::span(address(layer, block, part, first_token, 0), (g.block_tokens - first_token) * token_bytes),
                   part_offset + first_token * token_bytes))
          return;
        continue;
      }
      for (std::uint32_t token = first_token; token < g.block_tokens; ++token)
        for (std::uint32_t head = 0; head < g.heads; ++head)
          if (!visit(std::span(address(layer, block, part, token, head), content),
                     part_offset + token * token_bytes + head * content))
            return;
    }
  }
}

void device_memory::fill(std::uint32_t block, const key_digest& key, rank_number rank) {
  const page_pattern pattern(key, rank);
  for_each_piece(block, 0, [&](std::span<std::byte> bytes, std::uint64_t page_offset) {
    pattern.fill(bytes, page_offset);
    return true;
  });
}

std::optional<wrong_byte> device_memory::verify(std::uint32_t block, const key_digest& key, rank_number rank,
                                                std::uint32_t skip_tokens) const {
  const page_pattern pattern(key, rank);
  std::optional<wrong_byte> wrong;
  for_each_piece(block, skip_tokens, [&](std::span<const std::byte> bytes, std::uint64_t page_offset) {
    if (const auto at = pattern.compare(bytes, page_offset)) {
      wrong = locate(*at);
      wrong->expected = pattern.at(*at);
      wrong->found = bytes[*at - page_offset];
    }
    return !wrong;
  });
  return wrong;
}

void device_memory::poison(std::uint32_t block) {
  for_each_piece(block, 0, [](std::span<std::byte> bytes, std::uint64_t) {
    std::memset(bytes.data(), std::to_integer<int>(poison_byte), bytes.size());
    return true;
  });
}

bool device_memory::is_poisoned(std::uint32_t block) const {
  bool poisoned = true;
  for_each_piece(block, 0, [&](std::span<const std::byte> bytes, std::uint64_t) {
    poisoned = std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == poison_byte; });
    return poisoned;
  });
  return poisoned;
}

wrong_byte device_memory::locate(std::uint64_t page_offset) const noexcept {
  const auto& g = view_.geometry;
  const std::uint64_t content = std::uint64_t{g.head_size} * g.element_bytes;
  wrong_byte at;
  at.page_offset = page_offset;
  at.content_offset = page_offset % content;
  auto index = page_offset / content;
  const auto next = [&](std::uint32_t count) {
    const auto digit = static_cast<std::uint32_t>(index % count);
    index /= count;
    return digit;
  };
  at.head = next(g.heads);
  at.token = next(g.block_tokens);
  at.part = next(g.parts);
  at.layer = next(g.layers);
  return at;
}

result<kv_geometry> geometry_for_page_bytes(std::uint64_t page_bytes) {
  constexpr std::uint64_t step = 4096;
  constexpr std::uint64_t largest = std::uint64_t{256} << 20;
  if (page_bytes == 0 || page_bytes % step != 0 || page_bytes > largest)
    return fail(
        errc::invalid_argument,
        fmt::format("no page of {} bytes: its size must be a multiple of 4 KiB, from 4 KiB to 256 MiB", page_bytes));
  kv_geometry g;
  g.parts = 2;
  g.element_bytes = 2;
  g.block_tokens = 16;
  g.head_size = page_bytes % (2 * step) == 0 ? 128 : 64;
  auto heads = page_bytes / (std::uint64_t{g.parts} * g.element_bytes * g.block_tokens * g.head_size);
  // What remains is the product of layers and heads: more layers than heads, as models have it.
  g.heads = 8;
  while (g.heads > 1 && (heads % g.heads != 0 || heads / g.heads < std::uint64_t{2} * g.heads))
    g.heads /= 2;
  auto layers = heads / g.heads;
  for (; layers > 128 && layers % 2 == 0 && g.block_tokens < 512; layers /= 2)
    g.block_tokens *= 2;
  g.layers = static_cast<std::uint32_t>(layers);
  return g;
}

} // namespace troupe::replay
