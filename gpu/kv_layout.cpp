#include "gpu/kv_layout.hpp"

#include "base/geometry_bounds.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace troupe {

namespace {

/// Unsigned arithmetic that records an overflow.
class checked {
public:
  std::uint64_t mul(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t out = 0;
    overflowed_ |= __builtin_mul_overflow(a, b, &out);
    return out;
  }

  std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t out = 0;
    overflowed_ |= __builtin_add_overflow(a, b, &out);
    return out;
  }

  bool overflowed() const noexcept { return overflowed_; }

private:
  bool overflowed_ = false;
};

struct axis {
  std::string_view name;
  std::uint64_t count;
  std::uint64_t stride;
};

result<void> validate_layer(const kv_cache_view& view, std::size_t layer, const kv_layer_shape& shape) {
  const auto& t = view.layers[layer];
  if (t.base == nullptr)
    return fail(errc::invalid_argument, fmt::format("layer {} has no memory (null base)", layer));
  std::array<axis, 4> axes{{{"block", view.blocks, t.block_stride},
                            {"part", shape.parts, t.part_stride},
                            {"token", view.tokens_per_block(), t.token_stride},
                            {"head", shape.heads, t.head_stride}}};
  std::sort(axes.begin(), axes.end(), [](const axis& a, const axis& b) { return a.stride < b.stride; });
  // From the innermost axis outwards: `reach` is the distance from the first byte to behind the last one of all inner
  // axes. An axis with a shorter stride would overlap elements.
  checked math;
  std::uint64_t reach = shape.content_bytes();
  for (const auto& a : axes) {
    if (a.count == 1)
      continue;
    if (a.stride < reach)
      return fail(errc::invalid_argument,
                  fmt::format("layer {}: a {} stride of {} bytes makes elements overlap; the axes inside it "
                              "take {} bytes",
                              layer, a.name, a.stride, reach));
    reach = math.add(reach, math.mul(a.count - 1, a.stride));
  }
  if (math.overflowed() || reach > t.bytes)
    return fail(
        errc::out_of_range,
        fmt::format("layer {}: {} blocks with these strides end {} bytes behind the base, but the tensor has {}", layer,
                    view.blocks, math.overflowed() ? "more than 2^64" : std::to_string(reach), t.bytes));
  return {};
}

/// Byte strides of a contiguous tensor in `layout`.
tensor_view contiguous_strides(kv_layout layout, const kv_layer_shape& shape, std::uint32_t tokens,
                               std::uint32_t blocks) {
  const std::uint64_t content = shape.content_bytes();
  const std::uint64_t token = content * shape.heads;
  const std::uint64_t part = token * tokens;
  tensor_view t;
  switch (layout) {
  case kv_layout::split:
    t.head_stride = content;
    t.token_stride = token;
    t.block_stride = part;
    t.part_stride = part * blocks;
    break;
  case kv_layout::blocks_first:
  case kv_layout::mla:
    t.head_stride = content;
    t.token_stride = token;
    t.part_stride = part;
    t.block_stride = part * shape.parts;
    break;
  case kv_layout::head_major:
    t.token_stride = content;
    t.head_stride = content * tokens;
    t.part_stride = part;
    t.block_stride = part * shape.parts;
    break;
  case kv_layout::packed:
    t.part_stride = content;
    t.token_stride = content * shape.parts;
    t.head_stride = content * shape.parts * tokens;
    t.block_stride = part * shape.parts;
    break;
  }
  return t;
}

} // namespace

std::string_view to_string(kv_layout layout) noexcept {
  switch (layout) {
  case kv_layout::split:
    return "split";
  case kv_layout::blocks_first:
    return "blocks-first";
  case kv_layout::head_major:
    return "head-major";
  case kv_layout::packed:
    return "packed";
  case kv_layout::mla:
    return "mla";
  }
  return "unknown";
}

namespace {

result<std::uint64_t> tensor_bytes(const kv_layer_shape& shape, std::uint32_t tokens, std::uint32_t blocks) {
  checked math;
  const auto block = shape.token_bytes() * tokens;
  const auto bytes = math.mul(block, blocks);
  if (math.overflowed())
    return fail(errc::invalid_argument,
                fmt::format("{} blocks of {} bytes a layer are more than 2^64 bytes", blocks, block));
  return bytes;
}

} // namespace

result<std::vector<std::uint64_t>> all_layer_bytes(const kv_geometry& geometry, std::uint32_t blocks) {
  if (auto ok = check_geometry(geometry); !ok)
    return tl::unexpected(ok.error());
  std::vector<std::uint64_t> out;
  for (const auto& shape : geometry.shapes()) {
    auto bytes = tensor_bytes(shape, geometry.block_tokens, blocks);
    if (!bytes)
      return tl::unexpected(bytes.error());
    out.push_back(*bytes);
  }
  return out;
}

result<kv_cache_view> make_kv_cache_view(kv_layout layout, const kv_geometry& geometry, std::uint32_t blocks,
                                         std::span<const std::span<std::byte>> tensors, std::uint32_t blocks_per_page) {
  if (auto ok = check_geometry(geometry); !ok)
    return tl::unexpected(ok.error());
  if (tensors.size() != geometry.layer_count())
    return fail(errc::invalid_argument,
                fmt::format("{} tensors for a geometry of {} layers", tensors.size(), geometry.layer_count()));
  // Comes before any stride is computed: it proves that none of the products below can overflow.
  if (auto bytes = all_layer_bytes(geometry, blocks); !bytes)
    return tl::unexpected(bytes.error());
  kv_cache_view view{geometry, blocks, {}, blocks_per_page};
  if (blocks_per_page == 0 || geometry.block_tokens % blocks_per_page != 0)
    return fail(errc::invalid_argument, fmt::format("pages of {} tokens cannot be made of {} blocks each",
                                                    geometry.block_tokens, blocks_per_page));
  const auto shapes = geometry.shapes();
  view.layers.reserve(tensors.size());
  for (std::size_t layer = 0; layer < shapes.size(); ++layer) {
    const auto& shape = shapes[layer];
    if (layout == kv_layout::mla && (shape.parts != 1 || shape.heads != 1))
      return fail(errc::invalid_argument, fmt::format("an MLA cache has 1 part and 1 head, this geometry has {} and {}",
                                                      shape.parts, shape.heads));
    auto& t = view.layers.emplace_back(contiguous_strides(layout, shape, view.tokens_per_block(), blocks));
    t.base = tensors[layer].data();
    t.bytes = tensors[layer].size();
  }
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  return view;
}

result<void> validate(const kv_cache_view& view) {
  if (auto ok = check_geometry(view.geometry); !ok)
    return ok;
  if (view.blocks == 0)
    return fail(errc::invalid_argument, "a KV cache of 0 blocks");
  if (view.blocks_per_page == 0 || view.geometry.block_tokens % view.blocks_per_page != 0)
    return fail(errc::invalid_argument, fmt::format("pages of {} tokens cannot be made of {} blocks each",
                                                    view.geometry.block_tokens, view.blocks_per_page));
  if (view.layers.size() != view.geometry.layer_count())
    return fail(errc::invalid_argument,
                fmt::format("{} tensors for a geometry of {} layers", view.layers.size(), view.geometry.layer_count()));
  const auto shapes = view.geometry.shapes();
  for (std::size_t layer = 0; layer < view.layers.size(); ++layer)
    if (auto ok = validate_layer(view, layer, shapes[layer]); !ok)
      return ok;
  return {};
}

} // namespace troupe
