#include "actors/node/io_worker/io_worker_state.hpp"

#include <algorithm>

namespace troupe {

io_worker_state::io_worker_state(const io_worker_options& options)
    : options_(options), fenced_generation_(options.slots, 0), last_segment_(options.first_segment) {}

result<void> io_worker_state::may_open_segment(owner_id owner, std::uint64_t bytes) const {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (std::find(dead_owners_.begin(), dead_owners_.end(), owner) != dead_owners_.end())
    return fail(errc::expired, "the client is gone; attach again");
  if (bytes == 0)
    return fail(errc::invalid_argument, "a segment of no bytes");
  std::uint64_t held = 0;
  std::size_t open = 0;
  for (const auto& [id, s] : segments_) {
    ++open;
    if (s.owner == owner)
      held += s.memory.size();
  }
  if (bytes > options_.segment_bytes_max || held > options_.segment_bytes_max - bytes)
    return fail(errc::limit_exceeded, "a client may share " + std::to_string(options_.segment_bytes_max) +
                                          " bytes per rank with this node; it holds " + std::to_string(held) +
                                          " and asks for " + std::to_string(bytes) +
                                          ": ask for less, or raise io.client_buffer_bytes");
  if (open >= options_.segments_max)
    return fail(errc::limit_exceeded, "this rank serves " + std::to_string(options_.segments_max) +
                                          " segments already: raise io.max_clients");
  return {};
}

std::uint64_t io_worker_state::add_segment(owner_id owner, std::span<std::byte> memory, std::uint32_t buffer) {
  segments_.emplace(++last_segment_, segment{owner, memory, buffer, 0, false});
  stats_.segment_bytes += memory.size();
  return last_segment_;
}

result<void> io_worker_state::close_segment(std::uint64_t id) {
  const auto i = segments_.find(id);
  if (i == segments_.end() || i->second.closed)
    return fail(errc::not_found, "no open segment " + std::to_string(id));
  i->second.closed = true;
  return {};
}

void io_worker_state::owner_died(owner_id owner) {
  for (auto& [id, s] : segments_)
    if (s.owner == owner)
      s.closed = true;
  dead_owners_.push_back(owner);
  if (dead_owners_.size() > std::max<std::size_t>(dead_owners_min, options_.segments_max))
    dead_owners_.pop_front();
}

std::vector<std::pair<std::uint64_t, std::uint32_t>> io_worker_state::take_idle_segments() {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> out;
  for (auto i = segments_.begin(); i != segments_.end();) {
    if (!i->second.closed || i->second.in_flight > 0) {
      ++i;
      continue;
    }
    out.emplace_back(i->first, i->second.buffer);
    stats_.segment_bytes -= i->second.memory.size();
    i = segments_.erase(i);
  }
  return out;
}

errc io_worker_state::check(const segment& s, const io_item& item, io::operation op) const {
  if (item.where.slot >= options_.slots)
    return errc::out_of_range;
  if (item.length == 0 || item.length > options_.slot_bytes || item.length % options_.alignment != 0 ||
      item.buffer_offset % options_.alignment != 0)
    return errc::invalid_argument;
  if (item.buffer_offset > s.memory.size() || item.length > s.memory.size() - item.buffer_offset)
    return errc::out_of_range;
  if (item.where.generation <= fenced_generation_[item.where.slot])
    return errc::stale;
  if (damaged_ && op == io::operation::write)
    return errc::slab_damaged;
  return errc::ok;
}

result<io_worker_state::batch_id> io_worker_state::begin(io::operation op, const io_batch& work, timestamp now) {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (work.items.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(work.items.size()) + " pages in one batch; at most " +
                                          std::to_string(options_.batch_pages_max));
  if (transfers_.size() + work.items.size() > options_.pages_in_flight_max)
    return fail(errc::limit_exceeded, std::to_string(transfers_.size()) + " pages are under way; at most " +
                                          std::to_string(options_.pages_in_flight_max));
  if (work.deadline <= duration::zero())
    return fail(errc::timeout, "the deadline has passed");
  const auto found = segments_.find(work.segment);
  if (found == segments_.end() || found->second.closed)
    return fail(errc::expired, "segment " + std::to_string(work.segment) + " is closed");
  auto& s = found->second;
  const auto deadline = now + std::min(work.deadline, options_.deadline_max);
  const auto id = ++last_batch_;
  auto& b = batches_[id];
  b.op = op;
  b.segment = work.segment;
  b.reply.results.items.resize(work.items.size(), static_cast<std::uint8_t>(errc::ok));
  for (std::uint32_t i = 0; i < work.items.size(); ++i) {
    const auto& item = work.items[i];
    if (const auto code = check(s, item, op); code != errc::ok) {
      b.reply.results[i] = static_cast<std::uint8_t>(code);
      ++(code == errc::stale ? stats_.fenced : stats_.failed);
      continue;
    }
    const auto tag = ++last_tag_;
    transfers_.emplace(tag, transfer{id, i, item.where.slot, item.length});
    ++busy_slots_[item.where.slot];
    ++s.in_flight;
    ++b.waiting;
    requests_.push_back({op, item.where, s.memory.data() + item.buffer_offset, item.length, s.buffer, tag, deadline});
  }
  finish_if_done(id);
  return id;
}

void io_worker_state::complete(std::span<const io::completion> completions) {
  for (const auto& c : completions) {
    const auto i = transfers_.find(c.tag);
    if (i == transfers_.end())
      continue;
    const auto t = i->second;
    transfers_.erase(i);
    auto& b = batches_.at(t.owner);
    b.reply.results[t.position] = static_cast<std::uint8_t>(c.status);
    --b.waiting;
    --segments_.at(b.segment).in_flight;
    const bool read = b.op == io::operation::read;
    if (c.status == errc::ok) {
      ++(read ? stats_.read_pages : stats_.written_pages);
      (read ? stats_.read_bytes : stats_.written_bytes) += t.bytes;
    } else if (c.status == errc::timeout) {
      ++stats_.timed_out;
    } else {
      ++stats_.failed;
    }
    const auto busy = busy_slots_.find(t.slot);
    if (--busy->second == 0) {
      busy_slots_.erase(busy);
      slot_at_rest(t.slot);
    }
    finish_if_done(t.owner);
  }
}

void io_worker_state::finish_if_done(batch_id id) {
  const auto i = batches_.find(id);
  if (i->second.waiting > 0)
    return;
  finished_.push_back({id, std::move(i->second.reply)});
  batches_.erase(i);
}

io_worker_state::fence_id io_worker_state::fence(std::span<const slot_ref> slots) {
  const auto id = ++last_fence_;
  std::size_t waiting = 0;
  for (const auto& x : slots) {
    if (x.slot >= options_.slots)
      continue; // nothing can touch it
    auto& fenced = fenced_generation_[x.slot];
    fenced = std::max(fenced, x.generation);
    if (!busy_slots_.contains(x.slot))
      continue;
    fence_waiters_[x.slot].push_back(id);
    ++waiting;
  }
  if (waiting == 0)
    fenced_.push_back(id);
  else
    fences_.emplace(id, fence_record{waiting});
  return id;
}

void io_worker_state::slot_at_rest(slot_number slot) {
  const auto i = fence_waiters_.find(slot);
  if (i == fence_waiters_.end())
    return;
  for (const auto id : i->second) {
    const auto f = fences_.find(id);
    if (--f->second.waiting > 0)
      continue;
    fenced_.push_back(id);
    fences_.erase(f);
  }
  fence_waiters_.erase(i);
}

io_stats io_worker_state::stats() const {
  auto out = stats_;
  out.in_flight = transfers_.size();
  return out;
}

} // namespace troupe
