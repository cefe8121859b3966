#include "actors/client/copy_engine/copy_engine_state.hpp"

#include "io/memory/extent_source.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace troupe {

namespace {

/// The size of the proof at the beginning of exposed memory, by which a node recognizes that memory.
constexpr std::size_t proof_bytes = 32;

constexpr auto ok_code = static_cast<std::uint8_t>(errc::ok);

/// Gather: whether the copy engine may choose how the page is stored.
bool may_be_encoded(const copy_item& x) noexcept {
  return x.frame == static_cast<std::uint32_t>(frame_size::whole);
}

std::uint8_t code_of(errc code) noexcept {
  return static_cast<std::uint8_t>(code);
}

} // namespace

copy_engine_state::copy_engine_state(const copy_engine_options& options, std::shared_ptr<page_mover> mover,
                                     std::shared_ptr<const device_event_table> events)
    : options_(options), mover_(std::move(mover)), events_(std::move(events)),
      blocks_per_page_(mover_->cache().blocks_per_page), page_bytes_(mover_->cache().geometry.page_bytes()),
      slot_bytes_(io::slot_bytes(page_bytes_)), encoded_slot_bytes_(io::encoded_slot_bytes(page_bytes_)),
      encodes_(options.encodes && codec::stored_bytes(page_encoding::bf16, page_bytes_) != 0) {}

result<void> copy_engine_state::bind(owner_id owner, const arena_info& info) {
  if (owner == 0 || info.bytes == 0 || info.extent_bytes == 0 || info.extent_bytes % io::page_alignment != 0)
    return fail(errc::invalid_argument, "the node says that attachment " + std::to_string(owner) +
                                            " shares an arena of " + std::to_string(info.bytes) +
                                            " bytes in extents of " + std::to_string(info.extent_bytes) +
                                            ", which is invalid");
  {
    std::lock_guard guard(mutex_);
    if (arena_ && !arena_->info().elsewhere && arena_->is(info)) {
      owner_ = owner;
      return {};
    }
  }
  if (!options_.finder)
    return fail(errc::unsupported, "this copy engine cannot map the arena of a node");
  auto found = options_.finder->find(info.bytes, info.name.items);
  if (!found)
    return tl::unexpected(std::move(found.error()));
  let_go();
  adopt(owner, std::make_shared<mapped_arena>(info, std::move(*found), mover_));
  return {};
}

// Not under the lock, because it takes time and orders must not wait for it. The old memory goes first, because the
// amount of locked memory is limited. An order that still uses the old memory keeps it locked, so there may be too
// little for the new one for a while.
void copy_engine_state::let_go() {
  std::shared_ptr<mapped_arena> before;
  const std::lock_guard guard(mutex_);
  owner_ = 0;
  before = std::exchange(arena_, nullptr); // destroyed after the lock is released, as declared before it
}

void copy_engine_state::adopt(owner_id owner, std::shared_ptr<mapped_arena> arena) {
  arena->prepare_ahead();
  std::lock_guard guard(mutex_);
  owner_ = owner;
  arena_ = std::move(arena);
  trouble_.reset();
  trouble_notified_ = false;
}

result<remote_offer> copy_engine_state::expose(owner_id owner, const arena_info& info) {
  if (owner == 0 || !info.elsewhere)
    return fail(errc::invalid_argument, "a node on this host does not need exposed memory");
  if (!options_.exposer)
    return fail(errc::unsupported, "the node is on another host, and this client exposes no memory");
  const auto frames = options_.remote_bytes / slot_bytes_;
  if (frames < 2)
    return fail(errc::limit_exceeded, "transfer.remote_bytes, " + std::to_string(options_.remote_bytes) +
                                          ", does not hold two pages of this namespace, which take " +
                                          std::to_string(slot_bytes_) + " bytes each");
  let_go();
  auto exposed = options_.exposer->expose(frames * slot_bytes_, info.movers.items);
  if (!exposed)
    return tl::unexpected(std::move(exposed.error()));
  const auto& name = (*exposed)->name();
  remote_offer out;
  out.address.items = name.address;
  out.key.items = name.key;
  out.base = name.base;
  out.bytes = name.bytes;
  out.frame_bytes = slot_bytes_;
  std::random_device entropy;
  for (std::size_t i = 0; i < proof_bytes; ++i) {
    out.proof.items.push_back(static_cast<std::uint8_t>(entropy()));
    (*exposed)->bytes()[i] = std::byte{out.proof.items.back()};
  }
  // The device registers memory piece by piece, and a frame lies in one piece.
  arena_info facts;
  facts.bytes = name.bytes;
  facts.extent_bytes = std::max<std::uint64_t>(io::extent_bytes_max / slot_bytes_, 1) * slot_bytes_;
  facts.elsewhere = true;
  adopt(owner, std::make_shared<mapped_arena>(facts, std::move(*exposed), mover_));
  return out;
}

void copy_engine_state::end(owner_id owner) {
  std::lock_guard guard(mutex_);
  if (owner_ == owner)
    owner_ = 0;
}

void copy_engine_state::wait_for_quiesce(owner_id owner) {
  std::unique_lock guard(mutex_);
  order_ended_.wait(guard, [&] { return !under_way_.contains(owner); });
}

bool copy_engine_state::drop_lost_arena() {
  std::shared_ptr<mapped_arena> lost;
  {
    std::lock_guard guard(mutex_);
    if (owner_ == 0)
      lost = arena_;
  }
  if (!lost)
    return false;
  const auto& where = lost->info();
  if (!where.elsewhere && options_.finder->find(where.bytes, where.name.items))
    return true;
  std::lock_guard guard(mutex_);
  if (owner_ == 0 && arena_ == lost)
    arena_.reset(); // an order may still use it
  return false;
}

void copy_engine_state::ended(owner_id owner) {
  {
    std::lock_guard guard(mutex_);
    const auto at = under_way_.find(owner);
    if (--at->second == 0)
      under_way_.erase(at);
  }
  order_ended_.notify_all();
}

std::optional<error> copy_engine_state::take_trouble() {
  std::lock_guard guard(mutex_);
  if (!trouble_ || std::exchange(trouble_notified_, true))
    return std::nullopt;
  return trouble_;
}

result<copy_engine_state::work> copy_engine_state::begin(const copy_order& order) {
  work job;
  {
    std::lock_guard guard(mutex_);
    if (order.owner == 0 || order.owner != owner_)
      return fail(errc::expired, "the order names frames of another attachment");
    ++under_way_[owner_];
    job.token = order_token(this, owner_);
    job.memory = arena_;
  }
  if (order.items.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(order.items.size()) + " pages in one order; at most " +
                                          std::to_string(options_.batch_pages_max));
  if (order.further_blocks.size() != order.items.size() * (blocks_per_page_ - 1))
    return fail(errc::invalid_argument, std::to_string(order.further_blocks.size()) + " further blocks for " +
                                            std::to_string(order.items.size()) + " pages; each page has " +
                                            std::to_string(blocks_per_page_) + " blocks in all");
  job.reply.results.items.resize(order.items.size(), ok_code);
  for (std::size_t i = 0; i < order.items.size(); ++i)
    if (frame(job, order.items[i]).empty())
      job.reply.results[i] = code_of(errc::out_of_range);
  if (auto ok = prepare(job, order); !ok)
    return tl::unexpected(std::move(ok.error()));
  return job;
}

result<void> copy_engine_state::find_events(work& job, const copy_order& order) const {
  if (order.ready_event == 0)
    return {};
  if (!events_)
    return fail(errc::invalid_argument, "this copy engine has no events");
  auto ready = events_->find(order.ready_event);
  if (!ready)
    return tl::unexpected(std::move(ready.error()));
  job.events.ready = *ready;
  return {};
}

result<void> copy_engine_state::prepare(work& job, const copy_order& order) {
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    if (job.reply.results[i] != ok_code)
      continue;
    const auto done = job.memory->prepare(order.items[i].frame_offset);
    if (done)
      continue;
    if (auto broken = mover_->failure())
      return tl::unexpected(std::move(*broken));
    job.reply.results[i] = code_of(done.error().code);
    std::lock_guard guard(mutex_);
    trouble_ = done.error();
  }
  return {};
}

std::span<std::byte> copy_engine_state::frame(const work& job, const copy_item& item) const {
  const auto bytes = item.in_encoded_frame() ? encoded_slot_bytes_ : slot_bytes_;
  return item.frame_offset % io::page_alignment == 0 && bytes > 0 ? job.memory->bytes(item.frame_offset, bytes)
                                                                  : std::span<std::byte>{};
}

std::span<const std::uint32_t> copy_engine_state::further_blocks(const copy_order& order, std::size_t position) const {
  const std::size_t each = blocks_per_page_ - 1;
  return std::span(order.further_blocks.items).subspan(position * each, each);
}

io::page_identity copy_engine_state::identity(const copy_item& item) const {
  return {options_.ns, item.key, options_.rank, item.where, page_bytes_};
}

void copy_engine_state::add_move(work& job, const copy_order& order, std::size_t position) const {
  const auto& item = order.items[position];
  auto& move = job.moves.emplace_back();
  move.block = item.block;
  move.further_blocks = further_blocks(order, position);
  const auto in = frame(job, item);
  move.page = in.data() + io::page_header_bytes;
  move.page_bytes = page_bytes_;
  if (item.in_encoded_frame())
    move.encoding = page_encoding::bf16;
  // Sealing rewrites header and tail, so the mover may overwrite them. Extents are registered with the device
  // separately, so a write must not cross the start of an extent.
  move.spare_before = job.memory->begins_extent(item.frame_offset) ? 0 : io::page_header_bytes;
  move.spare_behind = in.size() - io::page_header_bytes - move.stored_bytes();
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
    // A mover checks the whole list before it moves the first byte, and refuses it as a whole. So after a refusal
    // nothing has been moved, and each page is tried alone, so that a bad block does not fail the others.
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

void copy_engine_state::add_whole_pages(work& job, const copy_order& order) const {
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const auto further = further_blocks(order, i);
    const bool whole =
        order.items[i].block != null_block && std::find(further.begin(), further.end(), null_block) == further.end();
    if (job.reply.results[i] == ok_code && !whole)
      job.reply.results[i] = code_of(errc::out_of_range);
    if (job.reply.results[i] != ok_code)
      continue;
    add_move(job, order, i);
    job.moves.back().only_encoded = order.items[i].in_encoded_frame();
  }
}

encoding_choice::plan copy_engine_state::choose_encoding(work& job, const copy_order& order) {
  if (!encodes_)
    return {};
  std::vector<block_move*> whole;
  for (std::size_t i = 0; i < job.moves.size(); ++i)
    if (may_be_encoded(order.items[job.positions[i]]))
      whole.push_back(&job.moves[i]);
  encoding_choice::plan out;
  {
    const std::lock_guard guard(mutex_);
    out = choice_.next(whole.size());
  }
  for (std::size_t i = 0; i < out.pages; ++i)
    whole[i]->encoding = page_encoding::bf16;
  return out;
}

void copy_engine_state::note_encoding(work& job, const copy_order& order, const encoding_choice::plan& plan) {
  std::size_t looked_at = 0;
  std::size_t stored = 0;
  std::size_t encoded = 0;
  for (std::size_t i = 0; i < job.moves.size(); ++i) {
    const auto position = job.positions[i];
    const bool is_stored = job.reply.results[position] == ok_code;
    const bool is_encoded = is_stored && job.moves[i].encoding != page_encoding::raw;
    if (is_encoded) {
      job.reply.encoded.items.resize(order.items.size());
      job.reply.encoded.items[position] = 1;
    }
    if (!may_be_encoded(order.items[position]) || looked_at++ >= plan.pages)
      continue;
    stored += is_stored ? 1 : 0;
    encoded += is_encoded ? 1 : 0;
  }
  const std::lock_guard guard(mutex_);
  choice_.note(plan, stored, encoded);
}

void copy_engine_state::seal(const work& job, const copy_order& order, std::size_t move) const {
  const auto& item = order.items[job.positions[move]];
  const auto& moved = job.moves[move];
  io::seal_page(frame(job, item), identity(item),
                io::stored_payload{moved.encoding, moved.stored_bytes(), moved.checksum.value()});
}

result<copy_reply> copy_engine_state::gather(const copy_order& order) {
  auto job = begin(order);
  if (!job)
    return tl::unexpected(std::move(job.error()));
  if (auto ok = find_events(*job, order); !ok)
    return tl::unexpected(std::move(ok.error()));
  add_whole_pages(*job, order);
  const auto plan = choose_encoding(*job, order);
  if (auto done = carry_out(*job, move_direction::gather); !done)
    return tl::unexpected(std::move(done.error()));
  note_encoding(*job, order, plan);
  for (std::size_t i = 0; i < job->moves.size(); ++i)
    if (job->reply.results[job->positions[i]] == ok_code)
      seal(*job, order, i);
  return std::move(job->reply);
}

result<copy_engine_state::open_gather> copy_engine_state::begin_gather(const std::shared_ptr<copy_engine_state>& state,
                                                                       const copy_order& order) {
  auto begun = state->begin(order);
  if (!begun)
    return tl::unexpected(std::move(begun.error()));
  state->add_whole_pages(*begun, order);
  return open_gather(state, std::move(*begun));
}

copy_reply copy_engine_state::end_gather(const open_gather& what, const copy_order& order) const {
  const auto& done = what.work_;
  auto reply = done.reply;
  for (std::size_t i = 0; i < done.moves.size(); ++i) {
    reply.results[done.positions[i]] = code_of(done.moves[i].verdict);
    if (done.moves[i].verdict == errc::ok && done.moves[i].checksum)
      seal(done, order, i);
  }
  return reply;
}

// The header is checked here, before the payload moves. The mover checks the payload's checksum, because it reads every
// byte anyway, and writes to a block only after that.
result<copy_reply> copy_engine_state::scatter(const copy_order& order) {
  auto job = begin(order);
  if (!job)
    return tl::unexpected(std::move(job.error()));
  if (auto ok = find_events(*job, order); !ok)
    return tl::unexpected(std::move(ok.error()));
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    if (job->reply.results[i] != ok_code)
      continue;
    const auto stored = io::expected_payload(frame(*job, order.items[i]), identity(order.items[i]));
    if (!stored) {
      job->reply.results[i] = code_of(stored.error());
      continue;
    }
    if (stored->bytes != codec::stored_bytes(stored->encoding, page_bytes_)) {
      job->reply.results[i] = code_of(errc::corrupt);
      continue;
    }
    add_move(*job, order, i);
    job->moves.back().encoding = stored->encoding;
    job->moves.back().checksum = stored->checksum;
  }
  if (auto done = carry_out(*job, move_direction::scatter); !done)
    return tl::unexpected(std::move(done.error()));
  return std::move(job->reply);
}

} // namespace troupe
