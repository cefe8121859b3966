#include "actors/client/transfer/load_state.hpp"

#include "actors/client/transfer/file_patience.hpp"

#include <algorithm>
#include <utility>

namespace troupe::transfer {

namespace {

/// Whether the page itself is bad, so that another attempt would fail too.
bool page_is_bad(errc code) noexcept {
  return code == errc::corrupt || code == errc::identity_mismatch || code == errc::io_error ||
         code == errc::slab_damaged;
}

/// Orders in progress at the reader of the slab file, so that it is never idle; and the pages of one, so that the first
/// pages do not wait for the last ones.
constexpr std::size_t reads_at_once = 2;
constexpr std::uint32_t read_pages = 32;

} // namespace

void load_state::unbind(errc status) {
  postponed_.clear();
  unpins_.clear();
  std::vector<task_finished> done;
  drop_all(status, done);
  report(std::move(done), outbox_);
}

result<task_id> load_state::start(const transfer_task& work, timestamp now) {
  auto accepted = accept(work, now);
  if (!accepted)
    return tl::unexpected<error>(accepted.error());
  auto& t = **accepted;
  const auto id = t.id;
  for (auto& part : split_taken(work)) {
    t.leased_shards.push_back(part.shard);
    send_locate(t, std::move(part.positions), part.shard, 0, now);
  }
  conclude(t, now);
  return id;
}

void load_state::send_locate(task& t, std::vector<std::uint32_t> positions, std::uint32_t shard, std::uint32_t attempt,
                             timestamp now) {
  const auto lease_for = std::min(binding().lease_max, (t.deadline - now) + std::chrono::seconds(5));
  load_locate effect{0, shard, {options().ns, options().rank, t.ticket, lease_for, {}}};
  effect.request.report_in_slab = binding().shares_slab && now >= no_files_until_;
  for (const auto i : positions)
    effect.request.keys.items.push_back(t.pages[i].key);
  effect.call = begin_call(t, phase::registry, now, std::move(positions), {}, shard, attempt);
  outbox_.emplace_back(std::move(effect));
}

void load_state::on_locate(call_id id, result<locate_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (!reply && reply.error().code == errc::timeout && !t->answered && !t->cancelled && now < t->deadline) {
    send_locate(*t, std::move(what.positions), what.shard, what.attempt + 1, now);
    return;
  }
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    auto& p = t->pages[position];
    auto code = reply ? errc::internal : reply.error().code;
    if (reply && i < reply->locations.size())
      code = reply->locations[i].code();
    if (code != errc::ok) {
      resolve(*t, position, code);
      continue;
    }
    p.where = reply->locations[i].where;
    const bool in_file = binding().shares_slab && i < reply->in_slab.size() && reply->in_slab[i] != 0;
    if (!p.resolved)
      in_file ? t->in_file.push_back(position) : t->held_back.push_back(position);
  }
  if (!waits_for_slots(*t)) {
    if (options().all_or_none && t->is_short()) {
      // No page of the task has begun to move.
      static_cast<void>(take_idle(*t));
      t->in_file.clear();
      resolve_unresolved(*t, errc::cancelled);
    }
    t->ready.insert(t->ready.end(), t->held_back.begin(), t->held_back.end());
    t->held_back.clear();
    if (options().one_order)
      std::sort(t->ready.begin(), t->ready.end());
  }
  conclude(*t, now);
  pump(now);
}

void load_state::pump_files(timestamp now) {
  for (const auto id : in_order()) {
    auto* t = find(id);
    if (t != nullptr && now < no_files_until_) {
      t->ready.insert(t->ready.end(), t->in_file.begin(), t->in_file.end());
      t->in_file.clear();
    }
    while (t != nullptr && !t->in_file.empty() && reads_ < reads_at_once)
      read_some(*t, now);
  }
}

void load_state::read_some(task& t, timestamp now) {
  const auto most = std::min(read_pages, batch_pages());
  load_read effect;
  effect.patience = std::clamp<duration>(t.deadline - now, std::chrono::milliseconds(1), read_patience);
  std::vector<std::uint32_t> positions;
  while (!t.in_file.empty() && positions.size() < most) {
    const auto i = t.in_file.front();
    t.in_file.pop_front();
    if (t.pages[i].resolved)
      continue;
    t.pages[i].being_written = true;
    effect.items.items.push_back({t.pages[i].key, t.pages[i].where, t.blocks[i]});
    positions.push_back(i);
  }
  if (positions.empty())
    return;
  ++reads_;
  effect.call = begin_call(t, phase::file, now, std::move(positions));
  outbox_.emplace_back(std::move(effect));
}

void load_state::count(task& t, errc code) {
  switch (code) {
  case errc::ok:
    ++t.from_files;
    break;
  case errc::identity_mismatch:
    ++t.files_stale;
    break;
  case errc::corrupt:
    ++t.files_damaged;
    break;
  default:
    ++t.files_failed;
  }
}

void load_state::on_read(call_id id, result<read_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  --reads_;
  bool readable = false;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    const auto code = code_at(reply, i);
    t->pages[position].being_written = false;
    readable |= code == errc::ok || code == errc::identity_mismatch || code == errc::corrupt;
    count(*t, code);
    if (code == errc::ok) {
      t->bytes += options().page_bytes;
      ++t->from_disk;
      resolve(*t, position, code);
    } else if (t->node_lost || t->cancelled || t->answered || now >= t->deadline) {
      resolve(*t, position, t->node_lost ? errc::unreachable : t->cancelled ? errc::cancelled : errc::timeout);
    } else {
      t->ready.push_back(position);
    }
  }
  std::sort(t->ready.begin(), t->ready.end());
  if (!readable && !t->node_lost)
    no_files_until_ = later(now, files_pause);
  conclude(*t, now);
  pump(now);
}

void load_state::pump(timestamp now) {
  pump_files(now);
  for (;;) {
    auto next = next_batch(now);
    if (next.owner == nullptr)
      return;
    load_fetch effect{0, make_frame_request(*next.owner, next.positions, now)};
    const auto pages = static_cast<std::uint32_t>(next.positions.size());
    effect.call = begin_call(*next.owner, phase::io, now, std::move(next.positions), {0, pages, {}});
    outbox_.emplace_back(std::move(effect));
  }
}

void load_state::on_fetch(call_id id, result<frame_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (no_room(reply)) {
    (void)wait_for_room(*t, what, now); // holds no slot: pages that do not wait have their result
    conclude(*t, now);
    pump(now);
    return;
  }
  if (reply)
    found_room();
  std::vector<bad_page> bad;
  std::vector<std::uint32_t> wanted;
  std::vector<page_frame> places;
  std::uint32_t pinned = 0;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    const auto code = frame_code(reply, i);
    pinned += code == errc::ok ? 1 : 0;
    if (code == errc::ok && !t->pages[position].resolved) {
      wanted.push_back(position);
      places.push_back(reply->frames[i]);
      t->pages[position].from_disk = reply->frames[i].promoted != 0;
      continue;
    }
    if (page_is_bad(code)) {
      // A page in memory is not checked before the scatter, so this one was read from disk.
      t->pages[position].from_disk = true;
      bad.push_back({position, code});
    }
    resolve(*t, position, code);
  }
  auto frames = std::move(what.frames);
  leave_window(frames, pinned);
  frames.pin = reply ? reply->pin : 0;
  if (wanted.empty()) {
    unpin(frames);
  } else {
    load_scatter effect{0, make_copy_order(*t, wanted, places)};
    for (const auto i : wanted)
      t->pages[i].being_written = true;
    effect.call = begin_call(*t, phase::copy, now, std::move(wanted), std::move(frames));
    outbox_.emplace_back(std::move(effect));
  }
  if (!bad.empty())
    send_invalidate(*t, bad, now);
  conclude(*t, now);
  pump(now);
}

void load_state::unpin(frame_hold& frames) {
  leave_window(frames);
  if (frames.pin == 0)
    return;
  const load_unpin effect{new_call(), std::exchange(frames.pin, 0)};
  unpins_.emplace(effect.call, effect.pin);
  outbox_.emplace_back(effect);
}

void load_state::on_unpin(call_id id, result<void> reply, timestamp) {
  auto node = unpins_.extract(id);
  if (node.empty() || !no_room(reply))
    return;
  // The request was refused, and only this coordinator can end the pin.
  node.key() = new_call();
  postponed_.push_back({node.key(), node.mapped()});
  unpins_.insert(std::move(node));
}

void load_state::on_scatter(call_id id, result<copy_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  unpin(what.frames);
  if (reply)
    add_copy_time(*t, what, *reply, now);
  std::vector<bad_page> bad;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    const auto code = code_at(reply, i);
    t->pages[position].being_written = false;
    if (page_is_bad(code))
      bad.push_back({position, code});
    if (code == errc::ok) {
      t->bytes += options().page_bytes;
      t->from_disk += t->pages[position].from_disk ? 1 : 0;
    }
    resolve(*t, position, code);
  }
  if (!bad.empty() && !t->node_lost)
    send_invalidate(*t, bad, now);
  conclude(*t, now);
  pump(now);
}

void load_state::send_invalidate(task& t, const std::vector<bad_page>& bad, timestamp now) {
  std::vector<key_digest> keys;
  keys.reserve(bad.size());
  for (const auto& x : bad)
    keys.push_back(t.pages[x.position].key);
  for (const auto& part : split_by_shard(keys, binding().shard_count)) {
    load_invalidate effect{0, part.shard, {options().ns, options().rank, {}, {}, {}}};
    for (const auto i : part.positions) {
      const auto& p = t.pages[bad[i].position];
      effect.request.pages.items.push_back(page_ref{p.key, p.where});
      effect.request.reasons.items.push_back(static_cast<std::uint8_t>(bad[i].why));
      effect.request.tiers.items.push_back(
          static_cast<std::uint8_t>(p.from_disk ? page_tier::disk : page_tier::memory));
    }
    effect.call = begin_call(t, phase::finish, now, {}, {}, part.shard);
    outbox_.emplace_back(std::move(effect));
  }
}

void load_state::conclude(task& t, timestamp now) {
  if (options().all_or_none && !t.answered && t.calls > 0)
    return;
  if (t.unresolved == 0 && t.calls == 0)
    for (const auto shard : std::exchange(t.leased_shards, {})) {
      load_release effect{0, shard, {options().ns, t.ticket, 0}};
      effect.call = begin_call(t, phase::finish, now, {}, {}, shard);
      outbox_.emplace_back(std::move(effect));
    }
  std::vector<task_finished> done;
  settle(t, done);
  report(std::move(done), outbox_);
}

void load_state::on_invalidate(call_id id, result<finish_reply>, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t != nullptr)
    conclude(*t, now);
}

void load_state::on_release(call_id id, result<void>, timestamp now) {
  // The answer is ignored: a lease that could not be released expires at its own deadline.
  auto [t, what] = end_call(id, now);
  if (t != nullptr)
    conclude(*t, now);
}

void load_state::on_tick(timestamp now) {
  expire(now, [&](task& t, const std::vector<std::uint32_t>&) { conclude(t, now); });
  for (const auto& x : std::exchange(postponed_, {}))
    outbox_.emplace_back(x);
  look_for_room();
  pump(now);
}

void load_state::cancel(std::span<const std::uint64_t> tags, timestamp now) {
  cancel_tasks(tags, [&](task& t, const std::vector<std::uint32_t>&) { conclude(t, now); });
}

std::vector<load_effect> load_state::take_outbox() {
  return std::exchange(outbox_, {});
}

} // namespace troupe::transfer
