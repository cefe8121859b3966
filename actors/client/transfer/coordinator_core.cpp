#include "actors/client/transfer/coordinator_core.hpp"

#include <algorithm>
#include <utility>

namespace troupe::transfer {

timestamp coordinator_core::next_deadline() const noexcept {
  auto earliest = timestamp::max();
  for (const auto& [id, t] : tasks_)
    if (!t.answered)
      earliest = std::min(earliest, t.deadline);
  return earliest;
}

result<coordinator_core::task*> coordinator_core::accept(const transfer_task& work, timestamp now) {
  if (!bound())
    return fail(errc::unreachable, "not attached to a node");
  if (work.blocks.size() != work.keys.size() * options_.blocks_per_page)
    return fail(errc::invalid_argument, std::to_string(work.keys.size()) + " keys but " +
                                            std::to_string(work.blocks.size()) + " blocks: there must be " +
                                            std::to_string(options_.blocks_per_page) + " per key");
  if (work.keys.size() > keys_max_)
    return fail(errc::limit_exceeded, std::to_string(work.keys.size()) + " keys in one task; the node takes " +
                                          std::to_string(keys_max_) + "; split the task");
  if (work.deadline <= duration::zero() || work.deadline > task_time_max)
    return fail(errc::invalid_argument, "the deadline of a task must be above zero and at most 24 hours");
  // Answered tasks that wait for their last call are not counted. Requests to shards time out, and all other calls are
  // limited by the window.
  if (open_ >= options_.tasks_max)
    return fail(errc::limit_exceeded,
                std::to_string(open_) +
                    " tasks are in progress, which is the limit (transfer.max_tasks); wait for one to end");
  auto& t = tasks_[++last_task_];
  t.id = last_task_;
  t.ticket = make_ticket(binding_.owner, binding_.ticket_stream, ++last_ticket_);
  t.parent = work.parent;
  t.chained = work.chained;
  t.tag = work.tag;
  t.ready_event = work.ready_event;
  t.origin = work.origin;
  t.blocks = work.blocks.items;
  t.deadline = now + work.deadline;
  t.unresolved = work.keys.size();
  t.pages.resize(work.keys.size());
  for (std::size_t i = 0; i < t.pages.size(); ++i)
    t.pages[i].key = work.keys[i];
  for (std::uint32_t i = binding_.batch_keys_max; i < t.pages.size(); ++i)
    resolve(t, i, errc::limit_exceeded);
  if (!t.pages.empty())
    order_.push_back(t.id);
  ++open_;
  return &t;
}

std::vector<shard_batch<key_digest>> coordinator_core::split_taken(const transfer_task& work) const {
  const std::span keys(work.keys.items);
  return split_by_shard(keys.first(std::min<std::size_t>(keys.size(), binding_.batch_keys_max)), binding_.shard_count);
}

void coordinator_core::bind_node(const node_binding& binding) {
  binding_ = binding;
  keys_max_ = std::max(keys_max_, binding.batch_keys_max);
  in_window_ = 0;
  batches_max_ = unlimited;
}

call_id coordinator_core::begin_call(task& t, phase part, timestamp now, std::vector<std::uint32_t> positions,
                                     frame_hold frames, std::uint32_t shard, std::uint32_t attempt) {
  const auto id = ++last_call_;
  ++t.calls;
  batches_ += moves_pages(part) ? 1 : 0;
  if (auto& clock = t.clocks[static_cast<std::size_t>(part)]; clock.under_way++ == 0)
    clock.since = now;
  calls_.emplace(id, call{t.id, part, shard, attempt, now, std::move(positions), std::move(frames)});
  return id;
}

coordinator_core::ended_call coordinator_core::end_call(call_id id, timestamp now) {
  const auto i = calls_.find(id);
  if (i == calls_.end())
    return {}; // dropped with its node
  ended_call out{find(i->second.owner), std::move(i->second)};
  calls_.erase(i);
  batches_ -= moves_pages(out.what.part) ? 1 : 0;
  if (out.owner == nullptr)
    return {};
  --out.owner->calls;
  auto& clock = out.owner->clocks[static_cast<std::size_t>(out.what.part)];
  if (--clock.under_way > 0)
    return out;
  const auto spent = now - clock.since;
  auto& timing = out.owner->timing;
  switch (out.what.part) {
  case phase::registry:
    timing.registry += spent;
    break;
  case phase::copy:
    timing.copy += spent;
    break;
  case phase::io:
    timing.io += spent;
    break;
  case phase::finish:
    timing.finish += spent;
    break;
  case phase::file:
    timing.io += spent;
    break;
  }
  return out;
}

void coordinator_core::resolve(task& t, std::uint32_t position, errc status) {
  auto& p = t.pages[position];
  if (p.resolved)
    return; // a reported result stands: a page that timed out stays so, even if it is committed later
  p.resolved = true;
  p.status = status;
  --t.unresolved;
}

void coordinator_core::resolve_unresolved(task& t, errc status) {
  for (std::uint32_t i = 0; i < t.pages.size(); ++i)
    if (!t.pages[i].being_written)
      resolve(t, i, status);
}

// With large pages one batch may fill the window, and then no other would be requested while it is copied. A node may
// also have come back with a lower limit, and would never accept a larger batch.
std::uint32_t coordinator_core::batch_pages() const noexcept {
  if (options_.one_order)
    return std::max(std::min(binding_.batch_pages_max, binding_.window_pages), 1U);
  const auto pages_in = [&](std::uint64_t bytes) {
    return std::max<std::uint64_t>(bytes / std::max<std::uint64_t>(options_.page_bytes, 1), 1);
  };
  const auto part =
      std::max<std::uint64_t>(binding_.window_pages / options_.batches_in_window, pages_in(batch_bytes_enough));
  const auto most = std::min(options_.batch_pages, std::max(binding_.batch_pages_max, 1U));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>({most, part, pages_in(batch_bytes_max)}));
}

// Pages leave the window in batches, and not always in whole ones. If every free place were used at once, large batches
// would never form again, and small ones take longer to copy.
std::uint32_t coordinator_core::room_wanted(const task& t) const noexcept {
  if (in_window_ == 0)
    return 1;
  if (options_.one_order)
    return static_cast<std::uint32_t>(std::min<std::size_t>(batch_pages(), t.ready.size()));
  const auto half = std::max(binding_.window_pages / 2, 1U);
  return static_cast<std::uint32_t>(std::min<std::size_t>(std::min(batch_pages(), half), t.ready.size()));
}

// The oldest task that has ready pages goes first, even if a younger one could use more of the window. So no task
// starves beside a stream of small ones.
coordinator_core::batch coordinator_core::next_batch(timestamp now) {
  for (std::size_t i = 0; i < order_.size();) {
    auto* t = find(order_[i]);
    if (t == nullptr) {
      order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (t->ready.empty()) {
      ++i;
      continue;
    }
    if (window_left() < room_wanted(*t) || batches_ >= batches_max_) {
      if (t->waiting_since == timestamp::min())
        t->waiting_since = now;
      return {};
    }
    if (t->waiting_since != timestamp::min()) {
      t->timing.window_wait += now - t->waiting_since;
      t->waiting_since = timestamp::min();
    }
    batch out;
    out.owner = t;
    while (!t->ready.empty() && window_left() > 0 && out.positions.size() < batch_pages()) {
      out.positions.push_back(t->ready.front());
      t->ready.pop_front();
      ++in_window_;
    }
    return out;
  }
  return {};
}

void coordinator_core::leave_window(frame_hold& what, std::uint32_t left) noexcept {
  in_window_ -= what.pages - left;
  what.pages = left;
}

frame_request coordinator_core::make_frame_request(const task& t, std::span<const std::uint32_t> positions,
                                                   timestamp now) const {
  frame_request out{{},
                    std::clamp<duration>(t.deadline - now, std::chrono::milliseconds(1),
                                         std::max<duration>(options_.frame_patience, std::chrono::milliseconds(1)))};
  out.pages.items.reserve(positions.size());
  for (const auto i : positions)
    out.pages.items.push_back(page_ref{t.pages[i].key, t.pages[i].where});
  return out;
}

errc coordinator_core::frame_code(const result<frame_reply>& reply, std::size_t i) noexcept {
  if (!reply)
    return reply.error().code;
  if (i >= reply->frames.size())
    return errc::internal;
  const auto code = reply->frames[i].code();
  return code == errc::ok && reply->pin == 0 ? errc::internal : code;
}

copy_order coordinator_core::make_copy_order(const task& t, std::span<const std::uint32_t> positions,
                                             std::span<const page_frame> frames) const {
  const std::size_t each = options_.blocks_per_page;
  copy_order out;
  out.owner = binding_.owner;
  out.ready_event = t.ready_event;
  out.items.items.reserve(positions.size());
  out.further_blocks.items.reserve(positions.size() * (each - 1));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto& p = t.pages[positions[i]];
    const auto blocks = std::span(t.blocks).subspan(positions[i] * each, each);
    out.items.items.push_back(
        copy_item{p.key, p.where, frames[i].offset, blocks.front(),
                  p.needs_whole && !frames[i].is_encoded() ? copy_item::as_it_is : frames[i].size});
    out.further_blocks.items.insert(out.further_blocks.items.end(), blocks.begin() + 1, blocks.end());
  }
  return out;
}

bool coordinator_core::wait_for_room(task& t, call& refused, timestamp now) {
  leave_window(refused.frames);
  // The refused call is not counted any more: the rest is what the node has accepted. If that is none, no call ends and
  // signals free room; then the timer does, see `look_for_room`.
  batches_max_ = batches_;
  // With one order the caller waits for all of its frames at once, and no longer than `frame_patience`.
  if (t.refused_since == timestamp::min())
    t.refused_since = now;
  const bool is_late = options_.one_order && now - t.refused_since >= options_.frame_patience;
  if (t.cancelled || t.answered || now >= t.deadline || is_late) {
    for (const auto i : refused.positions)
      resolve(t, i, t.cancelled ? errc::cancelled : errc::limit_exceeded);
    return false;
  }
  t.ready.insert(t.ready.end(), refused.positions.begin(), refused.positions.end());
  std::sort(t.ready.begin(), t.ready.end()); // several may be refused, and the prefix goes first
  return true;
}

void coordinator_core::found_room() noexcept {
  if (batches_max_ != unlimited)
    ++batches_max_;
}

void coordinator_core::add_copy_time(task& t, const call& what, const copy_reply& reply, timestamp now) {
  const auto most = now - what.started;
  t.timing.move += std::clamp<duration>(reply.move, duration::zero(), most);
}

void coordinator_core::answer(task& t, std::vector<task_finished>& out) {
  t.answered = true;
  --open_;
  task_finished done;
  done.task = t.id;
  done.result.bytes = t.bytes;
  done.result.timing = t.timing;
  done.result.from_disk = t.from_disk;
  done.result.from_files = t.from_files;
  done.result.files_stale = t.files_stale;
  done.result.files_damaged = t.files_damaged;
  done.result.files_failed = t.files_failed;
  done.result.results.items.reserve(t.pages.size());
  for (const auto& p : t.pages)
    done.result.results.items.push_back(static_cast<std::uint8_t>(p.status));
  out.push_back(std::move(done));
}

void coordinator_core::settle(task& t, std::vector<task_finished>& out) {
  if (!t.answered && t.unresolved == 0)
    answer(t, out);
  if (t.answered && t.calls == 0)
    tasks_.erase(t.id);
}

void coordinator_core::drop_all(errc status, std::vector<task_finished>& out) {
  for (auto i = calls_.begin(); i != calls_.end();) {
    auto& x = i->second;
    auto& t = tasks_.at(x.owner);
    // A scatter, or a read from the slab file: the blocks may be written until it is answered, and the caller reuses
    // the blocks of an ended task. All other calls only concern the node, so their answers are ignored.
    if (!x.positions.empty() && t.pages[x.positions.front()].being_written) {
      x.frames = {}; // they end with the attachment
      ++i;
      continue;
    }
    --t.calls;
    batches_ -= moves_pages(x.part) ? 1 : 0;
    i = calls_.erase(i);
  }
  for (const auto id : ids()) {
    auto& t = tasks_.at(id);
    t.node_lost = true;
    t.ready.clear();
    t.held_back.clear();
    t.in_file.clear();
    t.leased_shards.clear();
    resolve_unresolved(t, status);
    settle(t, out);
  }
  order_.clear();
  in_window_ = 0;
  binding_ = node_binding{};
}

coordinator_core::task* coordinator_core::find(task_id id) {
  const auto i = tasks_.find(id);
  return i == tasks_.end() ? nullptr : &i->second;
}

std::vector<task_id> coordinator_core::ids_tagged(std::span<const std::uint64_t> tags) const {
  std::vector<std::uint64_t> wanted(tags.begin(), tags.end());
  std::sort(wanted.begin(), wanted.end());
  auto out = ids();
  std::erase_if(out, [&](task_id id) {
    const auto& t = tasks_.at(id);
    return t.answered || t.tag == 0 || !std::binary_search(wanted.begin(), wanted.end(), t.tag);
  });
  return out;
}

std::vector<task_id> coordinator_core::ids() const {
  std::vector<task_id> out;
  out.reserve(tasks_.size());
  for (const auto& [id, t] : tasks_)
    out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

} // namespace troupe::transfer
