#include "actors/copy_engine/copy_engine_state.hpp"

#include <utility>

namespace troupe {

copy_engine_state::copy_engine_state(const copy_engine_options& options, std::unique_ptr<page_mover> mover)
    : options_(options), mover_(std::move(mover)), page_bytes_(mover_->cache().geometry.page_bytes()),
      slot_bytes_(io::slot_bytes(page_bytes_)) {}

void copy_engine_state::bind(std::uint64_t id, std::shared_ptr<io::segment> memory) {
  segment_id_ = id;
  segment_ = std::move(memory);
}

result<void> copy_engine_state::check(const copy_order& order) const {
  if (!segment_ || order.segment != segment_id_)
    return fail(errc::expired, "the order names page buffers of another segment");
  if (order.items.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(order.items.size()) + " pages in one order; at most " +
                                        std::to_string(options_.batch_pages_max));
  return {};
}

std::span<std::byte> copy_engine_state::buffer(const copy_item& item) const {
  const auto all = segment_->bytes();
  if (item.buffer_offset % io::page_alignment != 0 || item.buffer_offset > all.size() ||
      all.size() - item.buffer_offset < slot_bytes_)
    return {};
  return all.subspan(item.buffer_offset, slot_bytes_);
}

io::page_identity copy_engine_state::identity(const copy_item& item) const {
  return {options_.space, item.key, options_.rank, item.where, page_bytes_};
}

namespace {

/// Moves all at once, or one by one where the whole list is refused, so that one bad block does not fail the others.
template <class Move>
void move_each(std::span<const block_move> moves, std::span<const std::uint32_t> positions, copy_reply& reply,
               Move move) {
  if (moves.empty() || move(moves))
    return;
  for (std::size_t i = 0; i < moves.size(); ++i)
    if (auto one = move(moves.subspan(i, 1)); !one)
      reply.results[positions[i]] = static_cast<std::uint8_t>(one.error().code);
}

} // namespace

result<copy_reply> copy_engine_state::gather(const copy_order& order) {
  if (auto ok = check(order); !ok)
    return tl::unexpected<error>(ok.error());
  copy_reply reply;
  reply.results.items.resize(order.items.size(), static_cast<std::uint8_t>(errc::ok));
  std::vector<block_move> moves;
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < order.items.size(); ++i) {
    const auto memory = buffer(order.items[i]);
    if (memory.empty()) {
      reply.results[i] = static_cast<std::uint8_t>(errc::out_of_range);
      continue;
    }
    moves.push_back({order.items[i].block, memory.data() + io::page_header_bytes, page_bytes_, 0});
    positions.push_back(i);
  }
  move_each(moves, positions, reply, [this](std::span<const block_move> xs) { return mover_->gather(xs); });
  for (const auto i : positions)
    if (reply.results[i] == static_cast<std::uint8_t>(errc::ok))
      io::seal_page(buffer(order.items[i]), identity(order.items[i]));
  return reply;
}

result<copy_reply> copy_engine_state::scatter(const copy_order& order) {
  if (auto ok = check(order); !ok)
    return tl::unexpected<error>(ok.error());
  copy_reply reply;
  reply.results.items.resize(order.items.size(), static_cast<std::uint8_t>(errc::ok));
  std::vector<block_move> moves;
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < order.items.size(); ++i) {
    const auto& item = order.items[i];
    const auto memory = buffer(item);
    const auto code = memory.empty() ? errc::out_of_range : io::verify_page(memory, identity(item));
    if (code != errc::ok) {
      reply.results[i] = static_cast<std::uint8_t>(code);
      continue;
    }
    moves.push_back({item.block, memory.data() + io::page_header_bytes, page_bytes_, item.skip_tokens});
    positions.push_back(i);
  }
  move_each(moves, positions, reply, [this](std::span<const block_move> xs) { return mover_->scatter(xs); });
  return reply;
}

} // namespace troupe
