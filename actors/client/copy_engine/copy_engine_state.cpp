#include "actors/client/copy_engine/copy_engine_state.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr auto ok_code = static_cast<std::uint8_t>(errc::ok);

std::uint8_t code_of(errc code) noexcept {
  return static_cast<std::uint8_t>(code);
}

} // namespace

copy_engine_state::binding::binding(std::uint64_t id, std::shared_ptr<io::shared_memory> memory,
                                    std::shared_ptr<page_mover> mover) noexcept
    : id_(id), memory_(std::move(memory)), mover_(std::move(mover)) {}

result<std::shared_ptr<copy_engine_state::binding>>
copy_engine_state::binding::make(std::uint64_t id, std::shared_ptr<io::shared_memory> memory,
                                 std::shared_ptr<page_mover> mover) {
  if (auto ok = mover->prepare(memory->bytes()); !ok)
    return tl::unexpected(std::move(ok.error()));
  return std::shared_ptr<binding>(new binding(id, std::move(memory), std::move(mover)));
}

copy_engine_state::copy_engine_state(const copy_engine_options& options, std::shared_ptr<page_mover> mover,
                                     std::shared_ptr<const device_event_table> events)
    : options_(options), mover_(std::move(mover)), events_(std::move(events)),
      blocks_per_page_(mover_->cache().blocks_per_page), page_bytes_(mover_->cache().geometry.page_bytes()),
      slot_bytes_(io::slot_bytes(page_bytes_)) {}

result<void> copy_engine_state::bind(std::uint64_t id, std::shared_ptr<io::shared_memory> memory) {
  std::shared_ptr<binding> before;
  {
    std::lock_guard guard(mutex_);
    before = std::exchange(binding_, nullptr);
  }
  // Not under the lock: both take time, and orders must not wait for it. The old memory first, because only so much can
  // be locked; an order that still uses it keeps it locked, and then there may be too little for the new one for a
  // while.
  before.reset();
  auto made = binding::make(id, std::move(memory), mover_);
  if (!made)
    return tl::unexpected(std::move(made.error()));
  std::lock_guard guard(mutex_);
  binding_ = std::move(*made);
  return {};
}

result<void> copy_engine_state::bind(const segment_info& lent) {
  if (!options_.finder)
    return fail(errc::unsupported, "this copy engine has nobody who finds page buffers of a node");
  auto found = options_.finder->find(lent.bytes, lent.name.items);
  return found ? bind(lent.segment, std::move(*found)) : tl::unexpected(std::move(found.error()));
}

result<copy_engine_state::work> copy_engine_state::begin(const copy_order& order) const {
  work job;
  {
    std::lock_guard guard(mutex_);
    job.memory = binding_;
  }
  if (!job.memory || order.segment != job.memory->id())
    return fail(errc::expired, "the order names page buffers of another segment");
  if (order.items.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(order.items.size()) + " pages in one order; at most " +
                                          std::to_string(options_.batch_pages_max));
  if (order.further_blocks.size() != order.items.size() * (blocks_per_page_ - 1))
    return fail(errc::invalid_argument, std::to_string(order.further_blocks.size()) + " further blocks for " +
                                            std::to_string(order.items.size()) + " pages; each page has " +
                                            std::to_string(blocks_per_page_) + " blocks in all");
  if (order.ready_event != 0) {
    if (!events_)
      return fail(errc::invalid_argument, "this copy engine knows no events");
    auto ready = events_->find(order.ready_event);
    if (!ready)
      return tl::unexpected(std::move(ready.error()));
    job.events.ready = *ready;
  }
  job.reply.results.items.resize(order.items.size(), ok_code);
  for (std::size_t i = 0; i < order.items.size(); ++i)
    if (buffer(job, order.items[i]).empty())
      job.reply.results[i] = code_of(errc::out_of_range);
  return job;
}

std::span<std::byte> copy_engine_state::buffer(const work& job, const copy_item& item) const {
  const auto all = job.memory->bytes();
  if (item.buffer_offset % io::page_alignment != 0 || item.buffer_offset > all.size() ||
      all.size() - item.buffer_offset < slot_bytes_)
    return {};
  return all.subspan(item.buffer_offset, slot_bytes_);
}

std::span<const std::uint32_t> copy_engine_state::further_blocks(const copy_order& order, std::size_t position) const {
  const std::size_t each = blocks_per_page_ - 1;
  return std::span(order.further_blocks.items).subspan(position * each, each);
}

io::page_identity copy_engine_state::identity(const copy_item& item) const {
  return {options_.space, item.key, options_.rank, item.where, page_bytes_};
}

void copy_engine_state::add_move(work& job, const copy_order& order, std::size_t position) const {
  const auto& item = order.items[position];
  auto& move = job.moves.emplace_back();
  move.block = item.block;
  move.further_blocks = further_blocks(order, position);
  move.page = buffer(job, item).data() + io::page_header_bytes;
  move.page_bytes = page_bytes_;
  // Sealing writes both anew.
  move.spare_before = io::page_header_bytes;
  move.spare_behind = slot_bytes_ - io::page_header_bytes - page_bytes_;
  job.positions.push_back(position);
}

result<void> copy_engine_state::move(const work& job, std::span<block_move> moves, move_direction direction) {
  return direction == move_direction::gather ? mover_->gather(moves, job.events) : mover_->scatter(moves, job.events);
}

result<void> copy_engine_state::carry_out(work& job, move_direction direction) {
  const auto is_refusal = [](errc code) { return code == errc::out_of_range || code == errc::invalid_argument; };
  if (job.moves.empty())
    return {};
  auto all = move(job, job.moves, direction);
  if (!all && !is_refusal(all.error().code))
    return all;
  for (std::size_t i = 0; i < job.moves.size(); ++i) {
    auto verdict = job.moves[i].verdict;
    // A mover checks the list before it moves the first byte, and refuses it as a whole: so nothing has been moved, and
    // each is tried by itself, so that a bad block does not fail the others.
    if (!all) {
      auto one = move(job, std::span(job.moves).subspan(i, 1), direction);
      if (!one && !is_refusal(one.error().code))
        return one;
      verdict = one ? job.moves[i].verdict : one.error().code;
    }
    job.reply.results[job.positions[i]] = code_of(verdict);
  }
  return {};
}

result<copy_reply> copy_engine_state::gather(const copy_order& order) {
  auto job = begin(order);
  if (!job)
    return tl::unexpected(std::move(job.error()));
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const auto further = further_blocks(order, i);
    const bool whole =
        order.items[i].block != null_block && std::find(further.begin(), further.end(), null_block) == further.end();
    if (job->reply.results[i] == ok_code && !whole)
      job->reply.results[i] = code_of(errc::out_of_range);
    if (job->reply.results[i] == ok_code)
      add_move(*job, order, i);
  }
  if (auto done = carry_out(*job, move_direction::gather); !done)
    return tl::unexpected(std::move(done.error()));
  for (std::size_t i = 0; i < job->moves.size(); ++i) {
    const auto& item = order.items[job->positions[i]];
    if (job->reply.results[job->positions[i]] == ok_code)
      io::seal_page(buffer(*job, item), identity(item), job->moves[i].checksum.value());
  }
  return std::move(job->reply);
}

// The header is looked at here, before the payload has moved; whether the payload is what it says is seen by the mover,
// which has to read every byte anyway, and writes no byte of a block before it knows.
result<copy_reply> copy_engine_state::scatter(const copy_order& order) {
  auto job = begin(order);
  if (!job)
    return tl::unexpected(std::move(job.error()));
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    if (job->reply.results[i] != ok_code)
      continue;
    const auto checksum = io::expected_checksum(buffer(*job, order.items[i]), identity(order.items[i]));
    if (!checksum) {
      job->reply.results[i] = code_of(checksum.error());
      continue;
    }
    add_move(*job, order, i);
    job->moves.back().checksum = *checksum;
  }
  if (auto done = carry_out(*job, move_direction::scatter); !done)
    return tl::unexpected(std::move(done.error()));
  return std::move(job->reply);
}

} // namespace troupe
