#include "tests/simulation/device.hpp"

#include "gpu/host_page_mover.hpp"
#include "tests/simulation/random.hpp"

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
    : geometry_(geometry), rank_(rank), view_(make_view(geometry, blocks, tensors_)), blocks_(blocks), uses_(blocks) {
  for (std::uint32_t block = 0; block < blocks; ++block)
    give_back({block});
}

std::unique_ptr<page_mover> device::make_mover() const {
  return *make_host_page_mover(view_);
}

key_digest device::mark_of(std::uint32_t block) const noexcept {
  return {~std::uint64_t{0} - block, uses_[block]};
}

template <class Visit>
void device::for_each_piece(std::uint32_t block, Visit visit) {
  const auto& g = geometry_;
  const std::size_t piece = std::size_t{g.head_size} * g.element_bytes;
  for (std::size_t layer = 0; layer < g.layers; ++layer)
    for (std::size_t part = 0; part < g.parts; ++part)
      for (std::size_t head = 0; head < g.heads; ++head)
        for (std::size_t token = 0; token < g.block_tokens; ++token) {
          // A page is (layers, parts, heads, tokens); a tensor of the split layout (parts, blocks, tokens, heads).
          const auto in_page = ((layer * g.parts + part) * g.heads + head) * g.block_tokens + token;
          const auto in_cache = ((part * blocks_ + block) * g.block_tokens + token) * g.heads + head;
          visit(std::span(tensors_[layer]).subspan(in_cache * piece, piece), in_page * piece);
        }
}

void device::write(std::uint32_t block, const std::vector<std::byte>& page) {
  for_each_piece(block, [&](std::span<std::byte> to, std::size_t at) { std::memcpy(to.data(), &page[at], to.size()); });
}

bool device::equals(std::uint32_t block, const std::vector<std::byte>& page) {
  bool same = true;
  for_each_piece(block, [&](std::span<std::byte> is, std::size_t at) {
    same = same && std::memcmp(is.data(), &page[at], is.size()) == 0;
  });
  return same;
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
