#include "replay/token_memory.hpp"

#include "replay/pattern.hpp"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <sys/mman.h>

namespace troupe::replay {

namespace {

constexpr int poison = 0xdb;

/// What all heads of a token hold in one part of one layer.
page_pattern pattern_of(engine::content content, std::size_t layer, std::uint32_t part, rank_number rank) {
  return page_pattern(key_digest{content, layer * 2 + part}, rank);
}

} // namespace

void token_memory::unmap::operator()(std::byte* p) const noexcept {
  ::munmap(p, bytes);
}

result<std::unique_ptr<token_memory>> token_memory::create(const kv_geometry& geometry, std::uint32_t blocks,
                                                           std::uint32_t blocks_per_page,
                                                           std::vector<rank_number> ranks) {
  if (blocks_per_page == 0 || geometry.block_tokens % blocks_per_page != 0)
    return fail(errc::invalid_argument,
                fmt::format("pages of {} tokens are not made of {} blocks", geometry.block_tokens, blocks_per_page));
  auto tensor_geometry = geometry;
  tensor_geometry.block_tokens /= blocks_per_page;
  const auto layer_bytes = all_layer_bytes(tensor_geometry, blocks);
  if (!layer_bytes)
    return tl::unexpected(layer_bytes.error());
  auto out = std::make_unique<token_memory>();
  out->shapes_ = geometry.shapes();
  out->blocks_ = blocks;
  out->block_tokens_ = tensor_geometry.block_tokens;
  out->ranks_ = std::move(ranks);
  for (std::size_t worker = 0; worker < out->ranks_.size(); ++worker) {
    auto& tensors = out->tensors_.emplace_back();
    for (const auto bytes : *layer_bytes) {
      auto* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED)
        return fail(errc::limit_exceeded, fmt::format("no memory for {} bytes of KV cache", bytes));
      out->memory_.emplace_back(static_cast<std::byte*>(p), unmap{bytes});
      tensors.emplace_back(static_cast<std::byte*>(p), bytes);
      std::memset(p, poison, bytes);
    }
    auto view = make_kv_cache_view(kv_layout::split, geometry, blocks, tensors, blocks_per_page);
    if (!view)
      return tl::unexpected(std::move(view.error()));
    out->views_.push_back(std::move(*view));
  }
  return out;
}

std::span<std::byte> token_memory::row(std::uint32_t worker, std::size_t layer, std::uint32_t part,
                                       connector::block_id block, std::uint32_t slot) const {
  const auto bytes = shapes_[layer].content_bytes() * shapes_[layer].heads;
  const auto index = (std::uint64_t{part} * blocks_ + block) * block_tokens_ + slot;
  return tensors_[worker][layer].subspan(index * bytes, bytes);
}

void token_memory::write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                                std::span<const engine::content> contents) {
  for (std::size_t i = 0; i < contents.size(); ++i)
    for (std::size_t layer = 0; layer < shapes_.size(); ++layer)
      for (std::uint32_t part = 0; part < shapes_[layer].parts; ++part)
        pattern_of(contents[i], layer, part, ranks_[worker])
            .fill(row(worker, layer, part, block, first + static_cast<std::uint32_t>(i)), 0);
}

bool token_memory::holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                         std::span<const engine::content> contents) {
  bool right = true;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const auto slot = first + static_cast<std::uint32_t>(i);
    bool token_right = true;
    for (std::size_t layer = 0; layer < shapes_.size() && token_right; ++layer)
      for (std::uint32_t part = 0; part < shapes_[layer].parts && token_right; ++part) {
        const auto bad =
            pattern_of(contents[i], layer, part, ranks_[worker]).compare(row(worker, layer, part, block, slot), 0);
        if (!bad)
          continue;
        token_right = false;
        if (first_wrong_.empty())
          first_wrong_ = fmt::format("worker {}, block {}, token {}, layer {}, {}, byte {}", worker, block, slot, layer,
                                     part == 0 ? "K" : "V", *bad);
      }
    ++compared_;
    wrong_ += token_right ? 0 : 1;
    right = right && token_right;
  }
  return right;
}

} // namespace troupe::replay
