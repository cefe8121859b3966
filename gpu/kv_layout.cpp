#include "gpu/kv_layout.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace troupe {

namespace {

/// Unsigned arithmetic that remembers that it overflowed.
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

result<void> validate_layer(const kv_cache_view& view, std::size_t layer) {
  const auto& g = view.geometry;
  const auto& t = view.layers[layer];
  if (t.base == nullptr)
    return fail(errc::invalid_argument, fmt::format("layer {} has no memory (null base)", layer));
  std::array<axis, 4> axes{{{"block", view.blocks, t.block_stride},
                            {"part", g.parts, t.part_stride},
                            {"token", g.block_tokens, t.token_stride},
                            {"head", g.heads, t.head_stride}}};
  std::sort(axes.begin(), axes.end(), [](const axis& a, const axis& b) { return a.stride < b.stride; });
  // From the innermost axis outwards: `reach` is the distance from the first byte to behind the last one of
  // everything inside. An axis whose stride is shorter would lay elements over each other.
  checked math;
  std::uint64_t reach = std::uint64_t{g.head_size} * g.element_bytes;
  for (const auto& a : axes) {
    if (a.count == 1)
      continue;
    if (a.stride < reach)
      return fail(errc::invalid_argument,
                  fmt::format("layer {}: a {} stride of {} bytes lays elements over each other; the axes inside of it "
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
tensor_view contiguous_strides(kv_layout layout, const kv_geometry& g, std::uint32_t blocks) {
  const std::uint64_t content = std::uint64_t{g.head_size} * g.element_bytes;
  const std::uint64_t token = g.token_bytes();
  const std::uint64_t part = token * g.block_tokens;
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
    t.block_stride = part * g.parts;
    break;
  case kv_layout::head_major:
    t.token_stride = content;
    t.head_stride = content * g.block_tokens;
    t.part_stride = part;
    t.block_stride = part * g.parts;
    break;
  case kv_layout::packed:
    t.part_stride = content;
    t.token_stride = content * g.parts;
    t.head_stride = content * g.parts * g.block_tokens;
    t.block_stride = part * g.parts;
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

result<void> validate(const kv_geometry& g) {
  const std::array<axis, 5> counts{{{"layers", g.layers, 0},
                                    {"parts", g.parts, 0},
                                    {"heads", g.heads, 0},
                                    {"head_size", g.head_size, 0},
                                    {"block_tokens", g.block_tokens, 0}}};
  checked math;
  std::uint64_t page = g.element_bytes;
  for (const auto& c : counts) {
    if (c.count == 0)
      return fail(errc::invalid_argument, fmt::format("geometry: {} is 0", c.name));
    page = math.mul(page, c.count);
  }
  if (g.element_bytes != 1 && g.element_bytes != 2 && g.element_bytes != 4 && g.element_bytes != 8)
    return fail(errc::invalid_argument,
                fmt::format("geometry: element_bytes is {}, but elements have 1, 2, 4 or 8 bytes", g.element_bytes));
  if (math.overflowed() || page > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return fail(errc::invalid_argument, "geometry: the page would be larger than 2^63 bytes");
  return {};
}

result<std::uint64_t> layer_bytes(const kv_geometry& geometry, std::uint32_t blocks) {
  if (auto ok = validate(geometry); !ok)
    return tl::unexpected(ok.error());
  checked math;
  const auto bytes = math.mul(geometry.page_bytes() / geometry.layers, blocks);
  if (math.overflowed())
    return fail(errc::invalid_argument, fmt::format("{} blocks of {} bytes a layer are more than 2^64 bytes", blocks,
                                                    geometry.page_bytes() / geometry.layers));
  return bytes;
}

result<kv_cache_view> make_kv_cache_view(kv_layout layout, const kv_geometry& geometry, std::uint32_t blocks,
                                         std::span<const std::span<std::byte>> tensors) {
  // Before any stride is computed: proves that none of the products below can overflow.
  if (auto bytes = layer_bytes(geometry, blocks); !bytes)
    return tl::unexpected(bytes.error());
  if (layout == kv_layout::mla && (geometry.parts != 1 || geometry.heads != 1))
    return fail(errc::invalid_argument, fmt::format("an MLA cache has 1 part and 1 head, this geometry has {} and {}",
                                                    geometry.parts, geometry.heads));
  kv_cache_view view{geometry, blocks, {}};
  view.layers.reserve(tensors.size());
  const auto strides = contiguous_strides(layout, geometry, blocks);
  for (const auto& tensor : tensors) {
    auto& t = view.layers.emplace_back(strides);
    t.base = tensor.data();
    t.bytes = tensor.size();
  }
  if (auto ok = validate(view); !ok)
    return tl::unexpected(ok.error());
  return view;
}

result<void> validate(const kv_cache_view& view) {
  if (auto ok = validate(view.geometry); !ok)
    return ok;
  if (view.blocks == 0)
    return fail(errc::invalid_argument, "a KV cache of 0 blocks");
  if (view.layers.size() != view.geometry.layers)
    return fail(errc::invalid_argument,
                fmt::format("{} tensors for a geometry of {} layers", view.layers.size(), view.geometry.layers));
  for (std::size_t layer = 0; layer < view.layers.size(); ++layer)
    if (auto ok = validate_layer(view, layer); !ok)
      return ok;
  return {};
}

} // namespace troupe
