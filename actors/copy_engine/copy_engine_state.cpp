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

result<copy_reply> copy_engine_state::begin(const copy_order& order) const {
  if (!segment_ || order.segment != segment_id_)
    return fail(errc::expired, "the order names page buffers of another segment");
  if (order.items.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(order.items.size()) + " pages in one order; at most " +
                                          std::to_string(options_.batch_pages_max));
  copy_reply reply;
  reply.results.items.resize(order.items.size(), static_cast<std::uint8_t>(errc::ok));
  for (std::size_t i = 0; i < order.items.size(); ++i)
    if (buffer(order.items[i]).empty())
      reply.results[i] = static_cast<std::uint8_t>(errc::out_of_range);
  return reply;
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

constexpr auto ok_code = static_cast<std::uint8_t>(errc::ok);

} // namespace

template <class Move>
void copy_engine_state::move_sound(const copy_order& order, copy_reply& reply, Move move) {
  std::vector<block_move> moves;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    if (reply.results[i] != ok_code)
      continue;
    const auto& item = order.items[i];
    moves.push_back({item.block, buffer(item).data() + io::page_header_bytes, page_bytes_, item.skip_tokens});
    positions.push_back(i);
  }
  if (moves.empty() || move(std::span<const block_move>(moves)))
    return;
  // The list is refused as a whole: one by one, so that a bad block does not fail the others.
  for (std::size_t i = 0; i < moves.size(); ++i)
    if (const auto one = move(std::span<const block_move>(moves).subspan(i, 1)); !one)
      reply.results[positions[i]] = static_cast<std::uint8_t>(one.error().code);
}

void copy_engine_state::gather(const copy_order& order, copy_reply& reply) {
  move_sound(order, reply, [this](std::span<const block_move> moves) { return mover_->gather(moves); });
}

void copy_engine_state::scatter(const copy_order& order, copy_reply& reply) {
  move_sound(order, reply, [this](std::span<const block_move> moves) { return mover_->scatter(moves); });
}

void copy_engine_state::seal(const copy_order& order, copy_reply& reply) {
  for (std::size_t i = 0; i < order.items.size(); ++i)
    if (reply.results[i] == ok_code)
      io::seal_page(buffer(order.items[i]), identity(order.items[i]));
}

void copy_engine_state::verify(const copy_order& order, copy_reply& reply) {
  for (std::size_t i = 0; i < order.items.size(); ++i)
    if (reply.results[i] == ok_code)
      reply.results[i] = static_cast<std::uint8_t>(io::verify_page(buffer(order.items[i]), identity(order.items[i])));
}

} // namespace troupe
