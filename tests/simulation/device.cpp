#include "tests/simulation/device.hpp"

#include "gpu/host_page_mover.hpp"
#include "tests/simulation/random.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace troupe::simulation {

namespace {

kv_cache_view make_view(const kv_geometry& geometry, std::uint32_t blocks,
                        std::vector<std::vector<std::byte>>& tensors) {
  std::vector<std::span<std::byte>> spans;
  const auto sizes = *all_layer_bytes(geometry, blocks);
  for (const auto bytes : sizes)
    tensors.emplace_back(bytes);
  for (auto& x : tensors)
    spans.emplace_back(x);
  return *make_kv_cache_view(kv_layout::split, geometry, blocks, spans);
}

} // namespace

std::vector<std::byte> page_of(const key_digest& key, rank_number rank, std::uint64_t bytes) {
  random_source pattern(mix(mix(key), rank));
  std::vector<std::byte> page(bytes);
  for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const auto word = pattern.next();
    std::memcpy(page.data() + at, &word, std::min<std::uint64_t>(sizeof word, bytes - at));
  }
  return page;
}

device::device(const kv_geometry& geometry, std::uint32_t blocks, rank_number rank)
    : geometry_(geometry), rank_(rank), view_(make_view(geometry, blocks, tensors_)), mover_(make_mover()),
      uses_(blocks), scratch_(geometry.page_bytes()) {
  for (std::uint32_t block = 0; block < blocks; ++block)
    give_back({block});
}

std::unique_ptr<page_mover> device::make_mover() const {
  return *make_host_page_mover(view_);
}

key_digest device::mark_of(std::uint32_t block) const noexcept {
  return {~std::uint64_t{0} - block, uses_[block]};
}

void device::write(std::uint32_t block, std::vector<std::byte> page) {
  block_move move{block, page.data(), page.size()};
  if (!mover_->scatter({&move, 1}))
    std::abort();
}

bool device::equals(std::uint32_t block, const std::vector<std::byte>& page) {
  block_move move{block, scratch_.data(), scratch_.size()};
  return mover_->gather({&move, 1}) && scratch_ == page;
}

std::vector<std::uint32_t> device::take(std::uint32_t most, bool& sound) {
  std::vector<std::uint32_t> out;
  sound = true;
  while (out.size() < most && !free_.empty()) {
    out.push_back(free_.back());
    free_.pop_back();
    sound = sound && equals(out.back(), page_of(mark_of(out.back()), rank_, geometry_.page_bytes()));
  }
  return out;
}

void device::give_back(const std::vector<std::uint32_t>& blocks) {
  for (const auto block : blocks) {
    ++uses_[block];
    write(block, page_of(mark_of(block), rank_, geometry_.page_bytes()));
    free_.push_back(block);
  }
}

bool device::free_blocks_are_sound() {
  for (const auto block : free_)
    if (!equals(block, page_of(mark_of(block), rank_, geometry_.page_bytes())))
      return false;
  return true;
}

void device::fill(std::uint32_t block, const key_digest& key) {
  write(block, page_of(key, rank_, geometry_.page_bytes()));
}

bool device::holds(std::uint32_t block, const key_digest& key) {
  return equals(block, page_of(key, rank_, geometry_.page_bytes()));
}

} // namespace troupe::simulation
