#include "connector/worker/worker_state.hpp"

#include "base/identifiers.hpp"
#include "connector/load_marks.hpp"
#include "messages/answer_codes.hpp"

#include <algorithm>

namespace troupe::connector {

namespace {

double seconds(duration x) {
  return std::chrono::duration<double>(x).count();
}

/// The statistics stop growing if they are not taken.
void record(std::vector<double>& samples, duration x) {
  if (samples.size() < worker_state::samples_max)
    samples.push_back(seconds(x));
}

} // namespace

worker_state::session& worker_state::session_of(session_id id, const std::string& request) {
  auto& x = sessions_[id];
  x.request = request;
  return x;
}

void worker_state::handle_preemptions(std::span<const session_id> preempted, timestamp now) {
  if (preempted.empty())
    return;
  std::vector<task_tag> waiting;
  cancel_saves cancel;
  for (auto& [tag, t] : tasks_) {
    if (t.load || t.cancelled || std::find(preempted.begin(), preempted.end(), t.owner) == preempted.end())
      continue;
    if (t.handed_on) {
      t.cancelled = true;
      cancel.tags.push_back(tag);
    } else
      waiting.push_back(tag);
  }
  for (const auto tag : waiting)
    drop_waiting(tag, errc::cancelled, now);
  if (!cancel.tags.empty()) {
    ++cancels_under_way_;
    outbox_.emplace_back(std::move(cancel));
  }
}

void worker_state::on_cancelled(timestamp now) {
  --cancels_under_way_;
  pump(now);
}

void worker_state::start_load_kv(timestamp now, std::uint64_t ready_event) {
  handle_preemptions(bound_.preempted, now);
  for (auto& op : std::exchange(bound_.loads, {}))
    begin_load(op, ready_event, now);
  pump(now);
}

void worker_state::begin_load(load_op& op, std::uint64_t ready_event, timestamp now) {
  const bool sound = op.blocks.size() == op.keys.size() * options_.blocks_per_page;
  if (!sound || !takes_tasks() || op.keys.empty())
    return refuse_load(op);
  auto& x = session_of(op.session, op.request);
  const task_terms terms{
      .owner = op.session, .load = true, .synchronous = op.synchronous(), .store = op.id, .ready_event = ready_event};
  const auto count = add_tasks(terms, op.keys, op.blocks, now);
  if (op.synchronous()) {
    x.synchronous_loads += count;
    synchronous_loads_ += count;
  } else
    x.loads += count;
  if (op.id != 0)
    stores_.emplace(op.id, open_store{std::vector<std::uint8_t>(op.keys.size(), 0), count});
}

void worker_state::refuse_load(load_op& op) {
  std::erase(op.blocks, null_block);
  if (op.id != 0)
    outcomes_.push_back({op.id, std::vector<std::uint8_t>(op.keys.size(), takes_tasks() ? page_failed : page_untried)});
  if (op.synchronous()) {
    load_errors_.insert(load_errors_.end(), op.blocks.begin(), op.blocks.end());
    return;
  }
  auto& x = session_of(op.session, op.request);
  x.errors.insert(x.errors.end(), op.blocks.begin(), op.blocks.end());
  x.refused = x.refused || !op.keys.empty();
  settle(op.session, true);
}

void worker_state::wait_for_save(timestamp now, std::uint64_t ready_event) {
  for (auto& op : std::exchange(bound_.stores, {})) {
    if (!options_.writer)
      continue;
    const bool sound = op.blocks.size() == op.keys.size() * options_.blocks_per_page;
    if (!sound || !takes_tasks() || op.keys.empty()) {
      outcomes_.push_back({op.id, std::vector<std::uint8_t>(op.keys.size(), 0)});
      continue;
    }
    auto& x = session_of(op.session, op.request);
    const task_terms terms{
        .owner = op.session, .store = op.id, .parent = op.parent, .chained = op.chained, .ready_event = ready_event};
    const auto count = add_tasks(terms, op.keys, op.blocks, now);
    x.saves += count;
    stores_.emplace(op.id, open_store{std::vector<std::uint8_t>(op.keys.size(), 0), count});
  }
  pump(now);
}

std::uint32_t worker_state::add_tasks(const task_terms& terms, const std::vector<key_digest>& keys,
                                      const std::vector<block_id>& blocks, timestamp now) {
  std::uint32_t count = 0;
  const std::size_t per_key = options_.blocks_per_page;
  auto& waiting = terms.synchronous ? waiting_synchronous_loads_ : terms.load ? waiting_loads_ : waiting_saves_;
  auto parent = terms.parent;
  for (std::size_t first = 0; first < keys.size(); first += options_.task_keys_max) {
    const auto last = std::min<std::size_t>(keys.size(), first + options_.task_keys_max);
    task t{.owner = terms.owner,
           .load = terms.load,
           .since = now,
           .store = terms.store,
           .first = first,
           .synchronous = terms.synchronous,
           .work = {}};
    t.work.keys.items.assign(keys.begin() + static_cast<std::ptrdiff_t>(first),
                             keys.begin() + static_cast<std::ptrdiff_t>(last));
    t.work.blocks.items.assign(blocks.begin() + static_cast<std::ptrdiff_t>(first * per_key),
                               blocks.begin() + static_cast<std::ptrdiff_t>(last * per_key));
    t.work.parent = parent;
    t.work.chained = terms.chained;
    t.work.deadline = terms.synchronous ? options_.synchronous_load_limit : options_.task_deadline;
    t.work.ready_event = terms.ready_event;
    t.work.tag = ++last_tag_;
    parent = keys[last - 1];
    waiting.push_back(last_tag_);
    tasks_.emplace(last_tag_, std::move(t));
    ++count;
  }
  return count;
}

void worker_state::pump(timestamp now) {
  if (preempting())
    return;
  const auto next = [&](std::deque<task_tag>& waiting, std::uint32_t& handed_on) {
    while (!waiting.empty() && handed_on < options_.tasks_max) {
      const auto tag = waiting.front();
      waiting.pop_front();
      if (!tasks_.contains(tag))
        continue; // cancelled meanwhile
      ++handed_on;
      hand_on(tag, now);
    }
  };
  next(waiting_synchronous_loads_, loads_handed_on_);
  if (waiting_synchronous_loads_.empty())
    next(waiting_loads_, loads_handed_on_);
  if (waiting_synchronous_loads_.empty() && waiting_loads_.empty())
    next(waiting_saves_, saves_handed_on_);
}

void worker_state::hand_on(task_tag tag, timestamp now) {
  auto& t = tasks_.at(tag);
  record(stats_.queue_wait, now - t.since);
  t.handed_on = true;
  t.since = now;
  if (t.load)
    outbox_.emplace_back(submit_load{tag, t.work});
  else
    outbox_.emplace_back(submit_save{tag, t.work});
}

void worker_state::on_task(task_tag tag, const result<transfer_result>& outcome, timestamp now) {
  const auto i = tasks_.find(tag);
  if (i == tasks_.end() || !i->second.handed_on)
    return;
  --(i->second.load ? loads_handed_on_ : saves_handed_on_);
  end_task(tag, outcome, now);
  pump(now);
}

void worker_state::drop_waiting(task_tag tag, errc why, timestamp now) {
  end_task(tag, fail(why, "cancelled before it began"), now);
}

void worker_state::end_task(task_tag tag, const result<transfer_result>& outcome, timestamp now) {
  const auto i = tasks_.find(tag);
  const auto t = std::move(i->second);
  tasks_.erase(i);
  ++stats_.num_transfer_task;
  if (outcome)
    record(stats_.metadata_duration, outcome->timing.registry + outcome->timing.finish);
  if (t.load)
    end_load(t, outcome, now);
  else
    end_save(t, outcome, now);
}

void worker_state::end_load(const task& t, const result<transfer_result>& outcome, timestamp now) {
  auto& x = sessions_.at(t.owner);
  const std::size_t per_key = options_.blocks_per_page;
  auto& errors = t.synchronous ? load_errors_ : x.errors;
  bool whole = true;
  for (std::size_t i = 0; i < t.work.keys.size(); ++i) {
    const bool filled = code_at(outcome, i) == errc::ok;
    whole = whole && filled;
    for (std::size_t b = i * per_key; b < (i + 1) * per_key; ++b) {
      if (t.work.blocks[b] == null_block)
        continue;
      if (filled)
        stats_.hit_tokens += options_.block_tokens;
      else
        errors.push_back(t.work.blocks[b]);
    }
  }
  if (outcome) {
    stats_.loaded_bytes += outcome->bytes;
    stats_.disk_tokens += outcome->from_disk * std::uint64_t{options_.blocks_per_page} * options_.block_tokens;
  }
  if (whole)
    record(stats_.load_duration, now - t.since);
  else
    ++stats_.num_failed_load;
  if (t.store != 0)
    report_load(t, outcome);
  if (t.synchronous) {
    --synchronous_loads_;
    --x.synchronous_loads;
  } else
    --x.loads;
  settle(t.owner, !t.synchronous);
}

void worker_state::report_load(const task& t, const result<transfer_result>& outcome) {
  auto& op = stores_.at(t.store);
  for (std::size_t i = 0; i < t.work.keys.size(); ++i)
    op.stored[t.first + i] = load_mark_of(code_at(outcome, i));
  end_part(t.store);
}

void worker_state::end_part(store_id op) {
  const auto i = stores_.find(op);
  if (--i->second.tasks_left > 0)
    return;
  outcomes_.push_back({i->first, std::move(i->second.stored)});
  stores_.erase(i);
}

void worker_state::end_save(const task& t, const result<transfer_result>& outcome, timestamp now) {
  const auto store = stores_.find(t.store);
  bool whole = true;
  for (std::size_t i = 0; i < t.work.keys.size(); ++i) {
    const auto code = code_at(outcome, i);
    if (code == errc::ok || code == errc::exists)
      store->second.stored[t.first + i] = 1;
    if (code == errc::slab_damaged)
      ++stats_.refused_pages;
    // Another writer is writing it: neither a failure nor a success.
    if (code == errc::exists || code == errc::busy)
      ++stats_.skipped_pages;
    else if (code != errc::ok)
      whole = false;
  }
  if (outcome)
    stats_.saved_bytes += outcome->bytes;
  if (whole)
    record(stats_.save_duration, now - t.since);
  else
    ++stats_.num_failed_save;
  end_part(t.store);
  --sessions_.at(t.owner).saves;
  settle(t.owner, false);
}

void worker_state::settle(session_id id, bool load_ended) {
  const auto i = sessions_.find(id);
  auto& x = i->second;
  if (load_ended && x.loads == 0) {
    if (!x.errors.empty() || x.refused)
      reports_.failed.push_back(x.request);
    x.refused = false;
    load_errors_.insert(load_errors_.end(), x.errors.begin(), x.errors.end());
    x.errors.clear();
    reports_.received.push_back(x.request);
  }
  if (x.leaving && x.saves == 0) {
    x.leaving = false;
    reports_.sent.push_back(x.request);
  }
  if (x.loads == 0 && x.saves == 0 && x.synchronous_loads == 0)
    sessions_.erase(i);
}

finished_requests worker_state::get_finished() {
  for (const auto& op : std::exchange(bound_.finished, {})) {
    if (op.received)
      continue; // its load names it, or has done so
    const auto i = sessions_.find(op.session);
    if (i != sessions_.end() && i->second.saves > 0)
      i->second.leaving = true;
    else
      reports_.sent.push_back(op.request);
  }
  return std::exchange(reports_, {});
}

connector_stats worker_state::take_stats() {
  stats_.queue_depth = tasks_.size();
  return stats_.clone_and_reset();
}

void worker_state::attach(const worker_options& options) {
  options_ = options;
  attached_ = true;
}

void worker_state::detach(timestamp now) {
  attached_ = false;
  drop_all_waiting(errc::unreachable, now);
}

void worker_state::close(timestamp now) {
  closed_ = true;
  drop_all_waiting(errc::shutting_down, now);
}

void worker_state::drop_all_waiting(errc why, timestamp now) {
  for (auto* queue : {&waiting_synchronous_loads_, &waiting_loads_, &waiting_saves_})
    for (const auto tag : std::exchange(*queue, {}))
      if (tasks_.contains(tag))
        drop_waiting(tag, why, now);
}

} // namespace troupe::connector
