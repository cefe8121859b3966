#include "workload/replay/token_memory.hpp"

#include "workload/replay/pattern.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>

namespace troupe::replay {

namespace {

/// The delay of a forward pass on the GPU after the call: longer than a connector takes to begin a save.
constexpr auto forward_takes = std::chrono::microseconds(300);

/// The pattern of all heads of a token in one part of one layer.
page_pattern pattern_of(engine::content content, std::size_t layer, std::uint32_t part, rank_number rank) {
  return page_pattern(key_digest{content, layer * 2 + part}, rank);
}

} // namespace

result<std::unique_ptr<token_memory>> token_memory::create(const kv_geometry& geometry, std::uint32_t blocks,
                                                           std::uint32_t blocks_per_page,
                                                           std::vector<rank_number> ranks, std::optional<int> gpu) {
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
    auto tensors = kv_tensors::allocate(*layer_bytes, gpu);
    if (!tensors)
      return tl::unexpected(std::move(tensors.error()));
    auto view = make_kv_cache_view(kv_layout::split, geometry, blocks, tensors->layers(), blocks_per_page);
    if (!view)
      return tl::unexpected(std::move(view.error()));
    auto& made = out->workers_.emplace_back(worker_memory{std::move(*tensors), std::move(*view), {}, false});
    if (!gpu)
      continue;
    auto stream = gpu_stream::create(*gpu);
    if (!stream)
      return tl::unexpected(std::move(stream.error()));
    made.stream = std::move(*stream);
  }
  return out;
}

std::vector<gpu_memory::piece> token_memory::window(const worker_memory& of, connector::block_id block,
                                                    std::uint32_t first, std::size_t slots) {
  std::vector<gpu_memory::piece> out;
  std::size_t used = 0;
  for (std::size_t layer = 0; layer < shapes_.size(); ++layer) {
    const auto slot_bytes = shapes_[layer].content_bytes() * shapes_[layer].heads;
    for (std::uint32_t part = 0; part < shapes_[layer].parts; ++part) {
      const auto index = (std::uint64_t{part} * blocks_ + block) * block_tokens_ + first;
      const auto there = of.tensors.layers()[layer].subspan(index * slot_bytes, slots * slot_bytes);
      out.push_back({0, there});
      used += there.size();
    }
  }
  if (of.tensors.gpu() == nullptr)
    return out;
  copy_.resize(used);
  std::size_t at = 0;
  for (auto& x : out) {
    x.offset = static_cast<std::uint64_t>(x.host.data() - of.tensors.gpu()->data());
    x.host = std::span(copy_).subspan(at, x.host.size());
    at += x.host.size();
  }
  return out;
}

template <class Visit>
void token_memory::for_each_row(std::span<const gpu_memory::piece> window, std::size_t slots, Visit visit) const {
  auto piece = window.begin();
  for (std::size_t layer = 0; layer < shapes_.size(); ++layer) {
    const auto bytes = shapes_[layer].content_bytes() * shapes_[layer].heads;
    for (std::uint32_t part = 0; part < shapes_[layer].parts; ++part, ++piece)
      for (std::size_t slot = 0; slot < slots; ++slot)
        visit(layer, part, slot, piece->host.subspan(slot * bytes, bytes));
  }
}

bool token_memory::note(const result<void>& done) {
  if (!done && first_wrong_.empty())
    first_wrong_ = to_string(done.error());
  return done.has_value();
}

void token_memory::write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                                std::span<const engine::content> contents) {
  auto& to = workers_[worker];
  const auto pieces = window(to, block, first, contents.size());
  for_each_row(pieces, contents.size(), [&](auto layer, auto part, auto slot, std::span<std::byte> bytes) {
    pattern_of(contents[slot], layer, part, ranks_[worker]).fill(bytes, 0);
  });
  if (!to.stream)
    return;
  if (!to.is_late)
    note(to.stream->hold(forward_takes));
  to.is_late = true;
  note(to.stream->write(*to.tensors.gpu(), pieces));
}

void* token_memory::written(std::uint32_t worker) {
  auto& by = workers_[worker];
  if (!by.stream)
    return nullptr;
  by.is_late = false;
  const auto event = by.stream->record();
  if (event)
    return *event;
  note(tl::unexpected(event.error()));
  return nullptr;
}

void token_memory::judge(bool counts) {
  if (wrong_ == wrong_settled_ && first_wrong_.size() == first_wrong_settled_.size())
    return;
  if (counts) {
    wrong_settled_ = wrong_;
    first_wrong_settled_ = first_wrong_;
  } else {
    wrong_ = wrong_settled_;
    first_wrong_ = first_wrong_settled_;
  }
}

bool token_memory::holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                         std::span<const engine::content> contents) {
  auto& of = workers_[worker];
  const auto pieces = window(of, block, first, contents.size());
  compared_ += contents.size();
  if (of.stream && !(note(of.stream->wait()) && note(of.tensors.gpu()->read(pieces)))) {
    wrong_ += contents.size();
    return false;
  }
  std::vector<bool> is_wrong(contents.size());
  for_each_row(pieces, contents.size(), [&](auto layer, auto part, auto slot, std::span<const std::byte> bytes) {
    const auto bad = pattern_of(contents[slot], layer, part, ranks_[worker]).compare(bytes, 0);
    if (!bad)
      return;
    is_wrong[slot] = true;
    if (first_wrong_.empty())
      first_wrong_ = fmt::format("worker {}, block {}, token {}, layer {}, {}, byte {}", worker, block, first + slot,
                                 layer, part == 0 ? "K" : "V", *bad);
  });
  const auto wrong = static_cast<std::uint64_t>(std::count(is_wrong.begin(), is_wrong.end(), true));
  wrong_ += wrong;
  return wrong == 0;
}

} // namespace troupe::replay
