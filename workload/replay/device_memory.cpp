#include "workload/replay/device_memory.hpp"

#include "base/geometry_bounds.hpp"
#include "base/page_limits.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

namespace troupe::replay {

namespace {

constexpr auto poison_byte = kv_tensors::poison;

} // namespace

std::string to_string(const wrong_byte& wrong) {
  return fmt::format("layer {}, {}, token {}, head {}, byte {} (page offset {}): 0x{:02x}, must be 0x{:02x}",
                     wrong.layer, wrong.part == 0 ? "K" : "V", wrong.token, wrong.head, wrong.content_offset,
                     wrong.page_offset, std::to_integer<unsigned>(wrong.found),
                     std::to_integer<unsigned>(wrong.expected));
}

/// A block as the host can access it. On a GPU, a copy of the bytes that the block has in each layer: one span of the
/// tensor, or one for each part where the parts are apart.
class device_memory::window {
public:
  window(const device_memory& memory, std::uint32_t block) : memory_(memory), block_(block) {
    if (memory.tensors_.gpu() == nullptr)
      return;
    // Kept for the next block of this thread.
    static thread_local std::vector<std::byte> copy;
    copy.resize(memory.view_.geometry.page_bytes());
    std::size_t used = 0;
    for (std::uint32_t layer = 0; layer < memory.shapes_.size(); ++layer) {
      const auto& shape = memory.shapes_[layer];
      const auto block_bytes = shape.token_bytes() * memory.view_.geometry.block_tokens;
      const std::uint32_t spans = memory.layout_ == kv_layout::split ? shape.parts : 1;
      first_span_.push_back(pieces_.size());
      for (std::uint32_t part = 0; part < spans; ++part) {
        const auto* begin = memory.address(layer, block, part, 0, 0);
        pieces_.push_back({static_cast<std::uint64_t>(begin - memory.tensors_.gpu()->data()),
                           std::span(copy).subspan(used, block_bytes / spans)});
        used += block_bytes / spans;
      }
    }
  }

  /// The host's address of that head of that token.
  std::byte* address(std::uint32_t layer, std::uint32_t part, std::uint32_t token, std::uint32_t head) const noexcept {
    auto* there = memory_.address(layer, block_, part, token, head);
    if (pieces_.empty())
      return there;
    const auto& piece = pieces_[first_span_[layer] + (memory_.layout_ == kv_layout::split ? part : 0)];
    return piece.host.data() + (static_cast<std::uint64_t>(there - memory_.tensors_.gpu()->data()) - piece.offset);
  }

  /// Copies from the GPU, and back to it.
  result<void> read() const { return pieces_.empty() ? result<void>{} : memory_.tensors_.gpu()->read(pieces_); }
  result<void> write(gpu_memory* to) const { return pieces_.empty() ? result<void>{} : to->write(pieces_); }

private:
  const device_memory& memory_;
  std::uint32_t block_;
  std::vector<gpu_memory::piece> pieces_;
  std::vector<std::size_t> first_span_;
};

void device_memory::note(const result<void>& done) const {
  if (done)
    return;
  std::lock_guard guard(failure_->mutex);
  if (!failure_->first)
    failure_->first = done.error();
}

std::optional<error> device_memory::failure() const {
  std::lock_guard guard(failure_->mutex);
  return failure_->first;
}

result<device_memory> device_memory::create(const kv_geometry& geometry, std::uint32_t blocks, const options& how) {
  const auto bytes = all_layer_bytes(geometry, blocks);
  if (!bytes)
    return tl::unexpected(bytes.error());
  if (blocks == 0)
    return fail(errc::invalid_argument, "a KV cache of 0 blocks");
  auto tensors = kv_tensors::allocate(*bytes, how.gpu);
  if (!tensors)
    return tl::unexpected(std::move(tensors.error()));
  auto view = make_kv_cache_view(how.layout, geometry, blocks, tensors->layers());
  if (!view)
    return tl::unexpected(std::move(view.error()));
  device_memory out;
  out.tensors_ = std::move(*tensors);
  out.layout_ = how.layout;
  out.values_ = how.values;
  out.view_ = std::move(*view);
  out.shapes_ = geometry.shapes();
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
  return blocks;
}

std::byte* device_memory::address(std::uint32_t layer, std::uint32_t block, std::uint32_t part, std::uint32_t token,
                                  std::uint32_t head) const noexcept {
  const auto& g = shapes_[layer];
  const auto tokens = view_.geometry.block_tokens;
  // The index of the head's content, as in a C array of the layout's shape.
  std::uint64_t index = 0;
  switch (layout_) {
  case kv_layout::split: // [part][block][token][head]
    index = ((std::uint64_t{part} * view_.blocks + block) * tokens + token) * g.heads + head;
    break;
  case kv_layout::blocks_first: // [block][part][token][head]
    index = ((std::uint64_t{block} * g.parts + part) * tokens + token) * g.heads + head;
    break;
  case kv_layout::head_major: // [block][part][head][token]
    index = ((std::uint64_t{block} * g.parts + part) * g.heads + head) * tokens + token;
    break;
  case kv_layout::packed: // [block][head][token][part]
    index = ((std::uint64_t{block} * g.heads + head) * tokens + token) * g.parts + part;
    break;
  case kv_layout::mla: // [block][token]
    index = std::uint64_t{block} * tokens + token;
    break;
  }
  return view_.layers[layer].base + index * g.content_bytes();
}

template <class Visit>
void device_memory::for_each_piece(const window& block, Visit visit) const {
  const auto tokens = view_.geometry.block_tokens;
  std::uint64_t page_offset = 0;
  for (std::uint32_t layer = 0; layer < shapes_.size(); ++layer) {
    const auto& shape = shapes_[layer];
    const auto content = shape.content_bytes();
    const bool tokens_follow =
        layout_ == kv_layout::head_major || (shape.heads == 1 && (layout_ != kv_layout::packed || shape.parts == 1));
    for (std::uint32_t part = 0; part < shape.parts; ++part) {
      for (std::uint32_t head = 0; head < shape.heads; ++head, page_offset += tokens * content) {
        if (tokens_follow) {
          if (!visit(std::span(block.address(layer, part, 0, head), tokens * content), page_offset))
            return;
          continue;
        }
        for (std::uint32_t token = 0; token < tokens; ++token)
          if (!visit(std::span(block.address(layer, part, token, head), content), page_offset + token * content))
            return;
      }
    }
  }
}

void device_memory::fill(std::uint32_t block, const key_digest& key, rank_number rank) {
  const page_pattern pattern(key, rank, values_);
  const window seen(*this, block);
  for_each_piece(seen, [&](std::span<std::byte> bytes, std::uint64_t page_offset) {
    pattern.fill(bytes, page_offset);
    return true;
  });
  note(seen.write(tensors_.gpu()));
}

std::optional<wrong_byte> device_memory::verify(std::uint32_t block, const key_digest& key, rank_number rank) const {
  const page_pattern pattern(key, rank, values_);
  const window seen(*this, block);
  if (const auto read = seen.read(); !read) {
    note(read);
    return wrong_byte{};
  }
  std::optional<wrong_byte> wrong;
  for_each_piece(seen, [&](std::span<const std::byte> bytes, std::uint64_t page_offset) {
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
  const window seen(*this, block);
  for_each_piece(seen, [](std::span<std::byte> bytes, std::uint64_t) {
    std::memset(bytes.data(), std::to_integer<int>(poison_byte), bytes.size());
    return true;
  });
  note(seen.write(tensors_.gpu()));
}

bool device_memory::is_poisoned(std::uint32_t block) const {
  const window seen(*this, block);
  const auto read = seen.read();
  note(read);
  bool poisoned = read.has_value();
  for_each_piece(seen, [&](std::span<const std::byte> bytes, std::uint64_t) {
    poisoned = poisoned && std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == poison_byte; });
    return poisoned;
  });
  return poisoned;
}

wrong_byte device_memory::locate(std::uint64_t page_offset) const noexcept {
  const auto tokens = view_.geometry.block_tokens;
  wrong_byte at;
  at.page_offset = page_offset;
  for (at.layer = 0; page_offset >= shapes_[at.layer].token_bytes() * tokens; ++at.layer)
    page_offset -= shapes_[at.layer].token_bytes() * tokens;
  const auto& shape = shapes_[at.layer];
  at.content_offset = page_offset % shape.content_bytes();
  auto index = page_offset / shape.content_bytes();
  const auto next = [&](std::uint32_t count) {
    const auto digit = static_cast<std::uint32_t>(index % count);
    index /= count;
    return digit;
  };
  at.token = next(tokens);
  at.head = next(shape.heads);
  at.part = next(shape.parts);
  return at;
}

result<kv_geometry> geometry_for_page_bytes(std::uint64_t page_bytes) {
  constexpr std::uint64_t step = 4096;
  if (page_bytes == 0 || page_bytes % step != 0 || page_bytes > max_page_bytes)
    return fail(errc::invalid_argument,
                fmt::format("no page of {} bytes: its size must be a multiple of 4 KiB, from 4 KiB to {} MiB",
                            page_bytes, max_page_bytes >> 20U));
  kv_geometry g;
  g.parts = 2;
  g.element_bytes = 2;
  g.block_tokens = 16;
  std::uint64_t head_size = page_bytes % (2 * step) == 0 ? 128 : 64;
  auto heads = page_bytes / (std::uint64_t{g.parts} * g.element_bytes * g.block_tokens * head_size);
  // The rest is the product of layers and heads: more layers than heads, as in real models.
  g.heads = 8;
  while (g.heads > 1 && (heads % g.heads != 0 || heads / g.heads < std::uint64_t{2} * g.heads))
    g.heads /= 2;
  auto layers = heads / g.heads;
  for (; layers > 128 && layers % 2 == 0 && g.block_tokens < 512; layers /= 2)
    g.block_tokens *= 2;
  // The page has an odd number of pieces, too many for layers: layers and head size are exchanged.
  if (!geometry_bounds::layers.allows(layers))
    std::swap(layers, head_size);
  g.head_size = static_cast<std::uint32_t>(head_size);
  g.layers = static_cast<std::uint32_t>(layers);
  return g;
}

} // namespace troupe::replay
