#include "lmcache/open_context.hpp"

#include "base/geometry_bounds.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace troupe::lmcache {

namespace {

using protocol::tensor_handle;

constexpr std::string_view shared_kind = "cpu_shm";
constexpr std::string_view raw_kind = "cuda_raw";
constexpr std::string_view storage_kind = "cuda";

/// PyTorch writes a version and a type before CUDA's handle; 'c' is memory of cudaMalloc.
constexpr std::size_t marked_handle_bytes = 66;
constexpr std::byte plain_allocation{'c'};

std::string shown(std::string_view x) {
  return "'" + std::string(x.substr(0, 64)) + "'";
}

/// The meaning of a tensor's axes.
struct block_shape {
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
  std::uint64_t heads = 1;
  std::uint64_t content = 0;
  /// K and V, or one of both; before the blocks, or after them.
  std::uint32_t planes = 1;
  bool planes_outside = false;
  bool heads_outside = false;
  /// Axes of a plane of a block.
  std::size_t inner = 0;
};

result<bool> heads_outside(const protocol::kv_cache_registration& x) {
  if (x.layout == "HND" || x.layout == "BLHNC")
    return true;
  if (x.layout == "NHD" || x.layout == "BLNHC")
    return false;
  if (!x.layout.empty())
    return fail(errc::unsupported, "a KV cache of layout " + shown(x.layout));
  // Clients that do not send a layout.
  return x.tensors.front().kind == shared_kind;
}

result<block_shape> shape_of(const tensor_handle& x, bool heads_are_outside) {
  const auto& sizes = x.sizes;
  const auto axes = sizes.size();
  block_shape out;
  if (axes == 5 && sizes[0] == 2) {
    out.planes = 2;
    out.planes_outside = true;
    out.blocks = sizes[1];
  } else if (axes == 5 && sizes[1] == 2) {
    out.planes = 2;
    out.blocks = sizes[0];
  } else if (axes == 3 || axes == 4) {
    out.blocks = sizes[0];
  } else {
    return fail(errc::unsupported, "a KV cache whose tensors have " + std::to_string(axes) + " axes");
  }
  out.inner = axes == 3 ? 2 : 3;
  out.content = sizes[axes - 1];
  out.tokens = sizes[axes - 2];
  if (axes > 3) {
    out.heads = sizes[axes - 3];
    if (!heads_are_outside)
      std::swap(out.tokens, out.heads);
    out.heads_outside = heads_are_outside && out.heads > 1;
  }
  if (std::ranges::any_of(sizes,
                          [](auto size) { return size == 0 || size > std::numeric_limits<std::int32_t>::max(); }))
    return fail(errc::invalid_argument, "a KV cache with an axis of 0, or of more than 2^31");
  if (!geometry_bounds::block_tokens.allows(out.tokens) || !geometry_bounds::heads.allows(out.heads) ||
      !geometry_bounds::head_size.allows(out.content))
    return fail(errc::invalid_argument, "a KV cache with blocks of " + std::to_string(out.tokens) + " tokens, " +
                                            std::to_string(out.heads) + " heads, " + std::to_string(out.content) +
                                            " elements each");
  return out;
}

/// The bytes of a plane of a block are contiguous.
result<void> check_inner(const tensor_handle& x, const block_shape& shape) {
  std::uint64_t tight = 1;
  for (std::size_t i = 0; i < shape.inner; ++i) {
    const auto axis = x.sizes.size() - 1 - i;
    if (x.sizes[axis] > 1 && x.strides[axis] != tight)
      return fail(errc::unsupported, "a KV cache whose blocks are not contiguous");
    tight *= x.sizes[axis];
  }
  return {};
}

result<memory_handle> memory_of(const tensor_handle& x, remote_layout& out) {
  if (x.kind == shared_kind)
    return shared_memory_handle{std::string(x.name), x.bytes};
  if (x.kind != raw_kind && x.kind != storage_kind)
    return fail(errc::unsupported, "handles of type " + shown(x.kind));
  gpu_memory_handle handle;
  auto bytes = x.allocation;
  if (x.kind == storage_kind && bytes.size() == marked_handle_bytes) {
    if (bytes[1] != plain_allocation)
      return fail(errc::unsupported, "GPU memory of PyTorch's expandable segments: unset expandable_segments in "
                                     "PYTORCH_CUDA_ALLOC_CONF");
    bytes = bytes.last(handle.handle.size());
  }
  if (bytes.size() != handle.handle.size())
    return fail(errc::unsupported, "a handle of GPU memory of " + std::to_string(bytes.size()) + " bytes");
  std::ranges::copy(bytes, handle.handle.begin());
  handle.offset = x.offset;
  handle.bytes = x.bytes;
  handle.device = x.device.substr(0, 64);
  if (!x.counter_file.empty())
    out.counters.push_back(
        {{reinterpret_cast<const char*>(x.counter_file.data()), std::min<std::size_t>(x.counter_file.size(), 256)},
         x.counter_index});
  return handle;
}

/// The runs of one layer; in the page, each plane has those of all layers.
result<void> add_layer(const tensor_handle& x, const block_shape& shape, std::uint32_t element_bytes,
                       remote_layout& out, std::vector<std::vector<block_run>>& planes) {
  if (auto ok = check_inner(x, shape); !ok)
    return ok;
  auto memory = memory_of(x, out);
  if (!memory)
    return tl::unexpected(std::move(memory.error()));
  auto at = std::ranges::find(out.memories, *memory);
  if (at == out.memories.end())
    at = out.memories.insert(at, std::move(*memory));
  const auto bytes = shape.tokens * shape.heads * shape.content * element_bytes;
  const auto plane_stride = shape.planes == 1 ? 0 : x.strides[shape.planes_outside ? 0 : 1];
  const auto block_stride = x.strides[shape.planes_outside ? 1 : 0];
  // Within these bounds nothing below overflows; and no cache is as large.
  constexpr auto most = std::uint64_t{1} << 48U;
  if (x.first_element > most || plane_stride > most || block_stride > most || x.bytes > most || x.offset > most)
    return fail(errc::out_of_range, "a KV cache with a stride or an offset of more than 2^48");
  const auto blocks_bytes = (shape.blocks - 1) * block_stride * element_bytes + bytes;
  if (shape.planes > 1 && (shape.planes_outside ? plane_stride * element_bytes < blocks_bytes
                                                : plane_stride * element_bytes < bytes ||
                                                      block_stride < plane_stride + bytes / element_bytes))
    return fail(errc::invalid_argument, "a KV cache whose K and V overlap");
  for (std::uint32_t plane = 0; plane < shape.planes; ++plane)
    planes[plane].push_back({static_cast<std::uint32_t>(at - out.memories.begin()),
                             (x.first_element + plane * plane_stride) * element_bytes, block_stride * element_bytes,
                             bytes});
  return {};
}

/// The tensors of the group, in the order of the pages.
result<std::vector<std::uint32_t>> layers_of(const protocol::kv_cache_registration& x) {
  std::vector<std::uint32_t> out;
  if (!x.groups.empty())
    out = x.groups.front().layers;
  if (out.empty()) {
    out.resize(x.tensors.size());
    std::iota(out.begin(), out.end(), 0U);
  }
  auto sorted = out;
  std::ranges::sort(sorted);
  if (sorted.back() >= x.tensors.size() || std::ranges::adjacent_find(sorted) != sorted.end())
    return fail(errc::out_of_range, "a group names a layer twice, or one that does not exist");
  return out;
}

} // namespace

result<open_context> open_context_of(const protocol::kv_cache_registration& x, std::uint32_t chunk_tokens) {
  if (x.tensors.empty())
    return fail(errc::invalid_argument, "a KV cache without tensors");
  for (const auto kind : {x.tensors.front().kind, x.tensors.back().kind})
    if (kind != shared_kind && kind != raw_kind && kind != storage_kind)
      return fail(errc::unsupported, "handles of type " + shown(kind));
  if (x.engine != "vllm")
    return fail(errc::unsupported, "KV caches of the engine " + shown(x.engine));
  if (x.groups.size() > 1)
    return fail(errc::unsupported, "several groups of KV caches (" + std::to_string(x.groups.size()) + ")");
  if (!x.groups.empty() && x.groups.front().recurrent)
    return fail(errc::unsupported, "states of recurrent layers");
  const auto layers = layers_of(x);
  if (!layers)
    return tl::unexpected(layers.error());
  const auto outside = heads_outside(x);
  if (!outside)
    return tl::unexpected(outside.error());
  const auto& first = x.tensors[layers->front()];
  const auto shape = shape_of(first, *outside);
  if (!shape)
    return tl::unexpected(shape.error());
  if (!x.groups.empty() && x.groups.front().block_tokens != 0 && x.groups.front().block_tokens != shape->tokens)
    return fail(errc::unsupported, "blocks of " + std::to_string(x.groups.front().block_tokens) +
                                       " tokens, but a tensor has " + std::to_string(shape->tokens));
  protocol::context_registration said;
  said.model = x.model;
  said.world_size = x.world_size;
  said.block_tokens = static_cast<std::uint32_t>(shape->tokens);
  said.layers = static_cast<std::uint32_t>(layers->size());
  said.hidden = static_cast<std::uint32_t>(shape->heads * shape->content);
  said.dtype = first.dtype;
  said.one_plane = shape->planes == 1;
  auto pages =
      context_of(said, chunk_tokens, shape->heads_outside ? block_order::heads_first : block_order::tokens_first);
  if (!pages)
    return tl::unexpected(pages.error());
  const auto element_bytes = pages->first().ns.geometry.element_bytes;
  remote_layout memory;
  memory.blocks = static_cast<std::uint32_t>(shape->blocks);
  memory.block_tokens = said.block_tokens;
  memory.blocks_per_page = chunk_tokens / said.block_tokens;
  std::vector<std::vector<block_run>> planes(shape->planes);
  for (const auto layer : *layers) {
    const auto& tensor = x.tensors[layer];
    if (tensor.sizes != first.sizes || tensor.dtype != first.dtype || tensor.kind != first.kind)
      return fail(errc::unsupported, "layers that differ in their shape");
    if (auto ok = add_layer(tensor, *shape, element_bytes, memory, planes); !ok)
      return tl::unexpected(ok.error());
  }
  for (const auto& plane : planes)
    memory.runs.insert(memory.runs.end(), plane.begin(), plane.end());
  if (auto ok = validate(memory); !ok)
    return tl::unexpected(ok.error());
  if (memory.page_bytes() != pages->first().ns.geometry.page_bytes())
    return fail(errc::internal, "a page with other bytes than its blocks");
  open_context out;
  out.ns = pages->first().ns;
  out.memory = std::make_shared<const remote_layout>(std::move(memory));
  out.sliding = !x.groups.empty() && x.groups.front().sliding;
  return out;
}

} // namespace troupe::lmcache
