#include "gpu/cuda/resident_plan.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cuda {

namespace {

template <class T>
result<device_memory<T>> resident(const std::vector<T>& list) {
  auto out = allocate_device<T>(std::max<std::size_t>(list.size(), 1));
  if (out && !list.empty())
    if (auto ok = upload(out->get(), list.data(), list.size() * sizeof(T)); !ok)
      return tl::unexpected(ok.error());
  return out;
}

} // namespace

result<resident_plan> resident_plan::create(const page_plan& plan) {
  auto layers = resident(plan.layers);
  auto tiles = resident(plan.tiles);
  auto general = resident(plan.general);
  for (const auto* failed :
       {layers ? nullptr : &layers.error(), tiles ? nullptr : &tiles.error(), general ? nullptr : &general.error()})
    if (failed != nullptr)
      return tl::unexpected(*failed);
  resident_plan out;
  out.layers_ = std::move(*layers);
  out.tiles_ = std::move(*tiles);
  out.general_ = std::move(*general);
  out.view_.layers = out.layers_.get();
  out.view_.tiles = out.tiles_.get();
  out.view_.general = out.general_.get();
  out.view_.tile_count = static_cast<std::uint32_t>(plan.tiles.size());
  // Only the general kernel, whose plan has one entry per layer, searches for a layer.
  out.view_.layer_count = static_cast<std::uint32_t>(plan.general.size());
  out.view_.unit = plan.unit;
  out.view_.block_tokens = plan.block_tokens;
  out.view_.blocks_per_page = plan.blocks_per_page;
  out.view_.page_bytes = plan.page_bytes;
  out.view_.codec_tiles = plan.codec_tiles;
  int device = 0;
  int major = 0;
  if (auto ok = check(cudaGetDevice(&device), "querying the current GPU"); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                      "querying the abilities of the GPU");
      !ok)
    return tl::unexpected(ok.error());
  out.view_.starts_early = major >= 9;
  return out;
}

} // namespace troupe::cuda
