#include "actors/client/transfer/save_state.hpp"

#include <algorithm>
#include <utility>

namespace troupe::transfer {

void save_state::unbind(errc status) {
  postponed_.clear();
  std::vector<task_finished> done;
  drop_all(status, done);
  report(std::move(done), outbox_);
}

void save_state::settle_all(task& t) {
  if (options().one_order && !t.answered && t.calls > 0)
    return;
  std::vector<task_finished> done;
  settle(t, done);
  report(std::move(done), outbox_);
}

result<task_id> save_state::start(const transfer_task& work, timestamp now) {
  auto accepted = accept(work, now);
  if (!accepted)
    return tl::unexpected<error>(accepted.error());
  auto& t = **accepted;
  const auto id = t.id;
  for (auto& part : split_taken(work))
    send_reserve(t, std::move(part.positions), part.shard, 0, now);
  settle_all(t);
  return id;
}

void save_state::send_reserve(task& t, std::vector<std::uint32_t> positions, std::uint32_t shard, std::uint32_t attempt,
                              timestamp now) {
  // A little longer than the task may take, so that an abandoned reservation expires soon after it.
  const auto expires = std::min(binding().reservation_max, (t.deadline - now) + std::chrono::seconds(5));
  save_reserve effect{0, shard, {options().ns, options().rank, t.ticket, expires, {}, {}}};
  for (const auto i : positions) {
    effect.request.keys.items.push_back(t.pages[i].key);
    if (t.chained)
      effect.request.parents.items.push_back(i == 0 ? t.parent : t.pages[i - 1].key);
  }
  effect.call = begin_call(t, phase::registry, now, std::move(positions), {}, shard, attempt);
  outbox_.emplace_back(std::move(effect));
}

void save_state::on_reserve(call_id id, result<reserve_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (!reply) {
    // The registry remembers its answer to this ticket, so repeating the request is safe. It is repeated for a
    // cancelled task too: the answer names the slots to give back, for which other writers of these keys would wait.
    if (reply.error().code == errc::timeout && (!t->answered || t->cancelled) && now < t->deadline) {
      send_reserve(*t, std::move(what.positions), what.shard, what.attempt + 1, now);
      return;
    }
    for (const auto i : what.positions)
      resolve(*t, i, reply.error().code);
  } else {
    std::vector<std::uint32_t> unwanted;
    for (std::size_t i = 0; i < what.positions.size(); ++i) {
      const auto position = what.positions[i];
      auto& p = t->pages[position];
      const auto code = i < reply->results.size() ? reply->results[i].code() : errc::internal;
      if (code != errc::ok) {
        resolve(*t, position, code);
        continue;
      }
      p.where = reply->results[i].where;
      if (p.resolved)
        unwanted.push_back(position); // cancelled meanwhile, or the deadline passed
      else
        t->held_back.push_back(position);
    }
    if (!unwanted.empty())
      send_finish(*t, unwanted, false, now);
  }
  if (!waits_for_slots(*t)) {
    t->ready.insert(t->ready.end(), t->held_back.begin(), t->held_back.end());
    t->held_back.clear();
    // Shards answer in any order; gathering in prefix order keeps the prefix of a failed save usable.
    std::sort(t->ready.begin(), t->ready.end());
  }
  settle_all(*t);
  pump(now);
}

void save_state::pump(timestamp now) {
  for (;;) {
    auto next = next_batch(now);
    if (next.owner == nullptr)
      return;
    save_place effect{0, make_frame_request(*next.owner, next.positions, now)};
    if (options().encoded_frames && frames_.encoded())
      for (const auto i : next.positions)
        effect.request.sizes.items.push_back(
            static_cast<std::uint8_t>(next.owner->pages[i].needs_whole ? frame_size::whole : frame_size::encoded));
    const auto pages = static_cast<std::uint32_t>(next.positions.size());
    effect.call = begin_call(*next.owner, phase::io, now, std::move(next.positions), {0, pages, {}});
    outbox_.emplace_back(std::move(effect));
  }
}

void save_state::on_place(call_id id, result<frame_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (no_room(reply)) {
    if (!wait_for_room(*t, what, now))
      abandon(*t, what.positions, now);
    pump(now);
    return;
  }
  if (reply)
    found_room();
  std::vector<std::uint32_t> without;
  std::vector<std::uint32_t> wanted;
  std::vector<page_frame> places;
  std::uint32_t pinned = 0;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    const auto code = frame_code(reply, i);
    pinned += code == errc::ok ? 1 : 0;
    if (code == errc::ok && now >= t->deadline)
      resolve(*t, position, errc::timeout); // the timer may be late
    t->pages[position].in_encoded_frame = code == errc::ok && reply->frames[i].is_encoded();
    if (code == errc::ok && !t->pages[position].resolved) {
      wanted.push_back(position);
      places.push_back(reply->frames[i]);
      continue;
    }
    resolve(*t, position, code);
    without.push_back(position);
  }
  auto frames = std::move(what.frames);
  leave_window(frames, pinned);
  frames.pin = reply ? reply->pin : 0;
  frames.asked = std::move(what.positions);
  if (!wanted.empty()) {
    save_gather effect{0, make_copy_order(*t, wanted, places)};
    effect.call = begin_call(*t, phase::copy, now, std::move(wanted), std::move(frames));
    outbox_.emplace_back(std::move(effect));
  } else if (frames.pin != 0) {
    send_fill(*t, std::move(frames), now); // before its slots are given back, so that no writer waits for the frames
  }
  abandon(*t, without, now);
  pump(now);
}

void save_state::on_gather(call_id id, result<copy_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (reply) {
    add_copy_time(*t, what, *reply, now);
    const auto encoded = std::ranges::count(reply->encoded, std::uint8_t{1});
    // Pages that are known to have no encoding say nothing about the others.
    const auto looked_at =
        std::ranges::count_if(what.positions, [&pages = t->pages](auto i) { return !pages[i].needs_whole; });
    frames_.note(static_cast<std::size_t>(looked_at), static_cast<std::size_t>(encoded));
  }
  std::vector<std::uint32_t> failed;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto position = what.positions[i];
    const auto code = code_at(reply, i);
    auto& p = t->pages[position];
    if (code == errc::ok && !p.resolved) {
      p.gathered = true;
      continue;
    }
    if (code == errc::unsupported && p.in_encoded_frame && !p.resolved) {
      // Its bytes have no encoding. Its slot stays, and it gets another frame when this one has been given back.
      p.needs_whole = true;
      continue;
    }
    resolve(*t, position, code);
    failed.push_back(position);
  }
  send_fill(*t, std::move(what.frames), now);
  abandon(*t, failed, now);
  pump(now);
}

void save_state::send_fill(task& t, frame_hold frames, timestamp now) {
  outbox_.emplace_back(make_fill(t, std::move(frames), now));
}

save_fill save_state::make_fill(task& t, frame_hold frames, timestamp now) {
  save_fill effect{0, {frames.pin, {}, std::max<duration>(t.deadline - now, std::chrono::milliseconds(1))}};
  for (const auto i : frames.asked) {
    const auto& p = t.pages[i];
    effect.request.gathered.items.push_back(static_cast<std::uint8_t>(p.gathered ? errc::ok : p.status));
  }
  effect.call = begin_call(t, phase::io, now, {}, std::move(frames));
  return effect;
}

void save_state::on_fill(call_id id, result<io_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (no_room(reply)) {
    // The request was refused, and only this coordinator can end the pin.
    auto again = make_fill(*t, std::move(what.frames), now);
    postponed_.push_back(std::move(again));
    return;
  }
  leave_window(what.frames);
  std::vector<std::uint32_t> again;
  std::vector<std::uint32_t> filled;
  std::vector<std::uint32_t> failed;
  for (std::size_t i = 0; i < what.frames.asked.size(); ++i) {
    const auto position = what.frames.asked[i];
    if (const auto& p = t->pages[position]; p.in_encoded_frame && p.needs_whole) {
      if (reply && !p.resolved) {
        again.push_back(position);
        continue;
      }
      resolve(*t, position, reply ? errc::cancelled : reply.error().code);
      failed.push_back(position);
      continue;
    }
    if (!t->pages[position].gathered)
      continue; // dropped before
    const auto code = code_at(reply, i);
    if (code == errc::ok && !t->pages[position].resolved) {
      filled.push_back(position);
      continue;
    }
    resolve(*t, position, code); // keeps an earlier result: a page reported as failed is not published
    failed.push_back(position);
  }
  t->ready.insert(t->ready.begin(), again.begin(), again.end());
  if (!failed.empty())
    send_finish(*t, failed, false, now);
  if (!filled.empty())
    send_finish(*t, filled, true, now);
  settle_all(*t);
  pump(now);
}

void save_state::send_finish(task& t, const std::vector<std::uint32_t>& positions, bool commit, timestamp now,
                             std::uint32_t attempt) {
  std::vector<key_digest> keys;
  keys.reserve(positions.size());
  for (const auto i : positions)
    keys.push_back(t.pages[i].key);
  for (const auto& part : split_by_shard(keys, binding().shard_count)) {
    finish_request request{options().ns, options().rank, t.ticket, {}};
    std::vector<std::uint32_t> part_positions;
    for (const auto i : part.positions) {
      part_positions.push_back(positions[i]);
      request.pages.items.push_back(page_ref{t.pages[positions[i]].key, t.pages[positions[i]].where});
    }
    const auto id = begin_call(t, phase::finish, now, std::move(part_positions), {}, part.shard, attempt);
    if (commit) {
      request.origin = t.origin;
      outbox_.emplace_back(save_commit{id, part.shard, std::move(request)});
    } else {
      outbox_.emplace_back(save_abort{id, part.shard, std::move(request)});
    }
  }
}

void save_state::on_commit(call_id id, result<finish_reply> reply, timestamp now) {
  auto [t, what] = end_call(id, now);
  if (t == nullptr)
    return;
  if (!reply && reply.error().code == errc::timeout && !t->answered && now < t->deadline) {
    send_finish(*t, what.positions, true, now, what.attempt + 1);
    return;
  }
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto code = code_at(reply, i);
    if (code == errc::ok && !t->pages[what.positions[i]].resolved)
      t->bytes += options().page_bytes;
    resolve(*t, what.positions[i], code);
  }
  settle_all(*t);
}

void save_state::on_abort(call_id id, result<finish_reply>, timestamp now) {
  // The answer is ignored: a reservation that could not be aborted expires at its own deadline.
  auto [t, what] = end_call(id, now);
  if (t != nullptr)
    settle_all(*t);
}

void save_state::on_tick(timestamp now) {
  // These pages are reserved and not in progress, so their slots would never be filled.
  expire(now, [&](task& t, const std::vector<std::uint32_t>& idle) { abandon(t, idle, now); });
  for (auto& x : std::exchange(postponed_, {}))
    outbox_.emplace_back(std::move(x));
  look_for_room();
  pump(now);
}

void save_state::cancel(std::span<const std::uint64_t> tags, timestamp now) {
  cancel_tasks(tags, [&](task& t, const std::vector<std::uint32_t>& idle) { abandon(t, idle, now); });
}

void save_state::abandon(task& t, const std::vector<std::uint32_t>& positions, timestamp now) {
  if (!positions.empty())
    send_finish(t, positions, false, now);
  settle_all(t);
}

std::vector<save_effect> save_state::take_outbox() {
  return std::exchange(outbox_, {});
}

} // namespace troupe::transfer
