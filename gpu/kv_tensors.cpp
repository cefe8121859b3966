#include "gpu/kv_tensors.hpp"

#include "base/geometry_bounds.hpp"
#include "base/layouts.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

std::uint64_t row_bytes(const kv_tensor& x) noexcept {
  return std::uint64_t{x.content} * x.element_bytes;
}

/// Whether the bytes of a block are contiguous, whichever of heads and tokens is the inner axis. The bounds of a
/// geometry have been checked, so nothing overflows.
bool is_one_piece(const kv_tensor& x) noexcept {
  const auto row = row_bytes(x);
  const auto heads_fit = [&](std::uint64_t stride) { return x.heads == 1 || x.head_stride == stride; };
  const auto tokens_fit = [&](std::uint64_t stride) { return x.tokens == 1 || x.token_stride == stride; };
  return (tokens_fit(row) && heads_fit(row * x.tokens)) || (heads_fit(row) && tokens_fit(row * x.heads));
}

kv_layer_shape shape_of(const kv_tensor& x, kv_content content) noexcept {
  const bool parted = content == kv_content::parted;
  return {parted ? 2U : 1U, x.heads, parted ? x.content / 2 : x.content, x.element_bytes};
}

tensor_view view_of(const kv_tensor& x, kv_content content) noexcept {
  tensor_view out{x.base, x.bytes, x.block_stride, 0, x.token_stride, x.head_stride};
  if (content == kv_content::parted)
    out.part_stride = row_bytes(x) / 2;
  if (content == kv_content::opaque) {
    out.token_stride = row_bytes(x);
    out.head_stride = row_bytes(x) * x.tokens;
  }
  return out;
}

result<void> check_tensor(const kv_tensor& x, const kv_tensor& first, std::size_t layer, kv_content content) {
  if (x.blocks != first.blocks || x.tokens != first.tokens)
    return fail(errc::invalid_argument, fmt::format("layer {} has {} blocks of {} tokens, and layer 0 has {} of {}",
                                                    layer, x.blocks, x.tokens, first.blocks, first.tokens));
  if (x.content > 1 && x.content_stride != x.element_bytes)
    return fail(errc::invalid_argument, fmt::format("layer {}: elements of {} bytes are {} bytes apart, and must be "
                                                    "contiguous",
                                                    layer, x.element_bytes, x.content_stride));
  if (content == kv_content::parted && x.content % 2 != 0)
    return fail(errc::invalid_argument,
                fmt::format("layer {}: {} elements are no K and V of the same size", layer, x.content));
  return {};
}

} // namespace

std::string_view to_string(kv_content content) noexcept {
  switch (content) {
  case kv_content::joined:
    return "joined";
  case kv_content::parted:
    return "parted";
  case kv_content::opaque:
    return "opaque";
  }
  return "unknown";
}

std::string_view page_layout(kv_content content) noexcept {
  return content == kv_content::opaque ? layout_of_whole_blocks : layout_of_elements;
}

result<kv_cache_view> make_kv_cache_view(std::span<const kv_tensor> layers, kv_content content,
                                         std::uint32_t blocks_per_page) {
  if (layers.empty())
    return fail(errc::invalid_argument, "a KV cache without layers");
  const auto& first = layers.front();
  const auto page_tokens = std::uint64_t{first.tokens} * blocks_per_page;
  if (page_tokens > std::numeric_limits<std::uint32_t>::max())
    return fail(errc::invalid_argument,
                fmt::format("{} blocks of {} tokens are more than a page can have", blocks_per_page, first.tokens));
  kv_cache_view view;
  view.blocks = first.blocks;
  view.blocks_per_page = blocks_per_page;
  view.opaque_blocks = content == kv_content::opaque;
  auto& geometry = view.geometry;
  geometry.block_tokens = static_cast<std::uint32_t>(page_tokens);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (auto ok = check_tensor(layers[i], first, i, content); !ok)
      return tl::unexpected(std::move(ok.error()));
    const auto shape = shape_of(layers[i], content);
    if (i == 0) {
      geometry.parts = shape.parts;
      geometry.heads = shape.heads;
      geometry.head_size = shape.head_size;
      geometry.element_bytes = shape.element_bytes;
    }
    if (geometry.further.empty() && shape == geometry.first_shape())
      ++geometry.layers;
    else if (!geometry.further.empty() && shape == geometry.further.back().shape)
      ++geometry.further.back().layers;
    else
      geometry.further.push_back({1, shape});
    view.layers.push_back(view_of(layers[i], content));
  }
  if (auto ok = check_geometry(geometry); !ok)
    return tl::unexpected(std::move(ok.error()));
  // The identity of a namespace does not contain the engine's block size, and should not need to.
  if (view.opaque_blocks && blocks_per_page != 1)
    return fail(errc::invalid_argument,
                fmt::format("a page of opaque blocks is one block, and not {}", blocks_per_page));
  if (view.opaque_blocks)
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (!is_one_piece(layers[i]))
        return fail(errc::invalid_argument,
                    fmt::format("layer {}: a block is not one piece of memory, and cannot be moved as such", i));
  if (auto ok = validate(view); !ok)
    return tl::unexpected(std::move(ok.error()));
  return view;
}

} // namespace troupe
