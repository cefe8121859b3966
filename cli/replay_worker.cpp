#include "cli/replay_worker.hpp"

#include "actors/support/actor_support.hpp"
#include "workload/replay/keys.hpp"

#include <algorithm>

namespace troupe::cli {

using replay::phase;

replay_worker::replay_worker(caf::actor_config& config, std::shared_ptr<replay_job> job,
                             std::vector<std::vector<std::uint32_t>> blocks)
    : caf::event_based_actor(config), job_(std::move(job)), blocks_(std::move(blocks)) {}

caf::behavior replay_worker::make_behavior() {
  return {
      [this](caf::ok_atom) { next_request(); },
  };
}

void replay_worker::next_request() {
  if (job_->stop || (request_ = job_->next++) >= job_->trace.requests.size()) {
    quit();
    return;
  }
  keys_ = replay::chain_keys(job_->trace.requests[request_].hash_ids, job_->salt);
  begin_request();
}

void replay_worker::begin_request() {
  lost_ = false;
  matched_ = 0;
  lease_ = {};
  if (keys_.empty()) {
    finish_request();
    return;
  }
  const auto started = now();
  request(job_->lookup, caf::infinite, lookup_task{keys_, job_->lease})
      .then(
          [this, started](const lookup_result& found) {
            {
              std::lock_guard guard(job_->mutex);
              job_->lookup_times.record(now() - started);
              job_->phases.add(phase::lookup, now() - started);
            }
            looked_up(found);
          },
          [this](const caf::error& e) { node_lost(from_caf(e)); });
}

void replay_worker::looked_up(const lookup_result& found) {
  matched_ = found.matched;
  lease_ = found.lease;
  good_.assign(blocks_.size(), std::vector<bool>(matched_, false));
  if (matched_ > 0)
    load();
  else
    save();
}

void replay_worker::load() {
  for (rank_number rank = 0; rank < blocks_.size() && job_->report.compared; ++rank)
    for (std::size_t i = 0; i < matched_; ++i)
      job_->devices[rank]->poison(blocks_[rank][i]);
  for (rank_number rank = 0; rank < blocks_.size(); ++rank) {
    for (std::size_t first = 0; first < matched_; first += job_->batch_keys) {
      const auto last = std::min<std::size_t>(matched_, first + job_->batch_keys);
      transfer_task task;
      task.keys.items.assign(keys_.begin() + static_cast<std::ptrdiff_t>(first),
                             keys_.begin() + static_cast<std::ptrdiff_t>(last));
      task.blocks.items.assign(blocks_[rank].begin() + static_cast<std::ptrdiff_t>(first),
                               blocks_[rank].begin() + static_cast<std::ptrdiff_t>(last));
      task.deadline = job_->task_deadline;
      const auto started = now();
      {
        std::lock_guard guard(job_->mutex);
        job_->load_busy.begin(started);
      }
      ++waiting_;
      request(job_->load[rank], caf::infinite, std::move(task))
          .then([this, rank, first, started](const transfer_result& x) { loaded(rank, first, x, started); },
                [this, rank, first, started](const caf::error& e) {
                  loaded(rank, first, failed<transfer_result>(e), started);
                });
    }
  }
}

void replay_worker::loaded(rank_number rank, std::size_t first, const result<transfer_result>& outcome,
                           timestamp started) {
  const auto ended = now();
  const auto count = std::min<std::size_t>(matched_ - first, job_->batch_keys);
  std::uint64_t right = 0;
  std::uint64_t wrong = 0;
  std::uint64_t missing = 0;
  std::string first_wrong;
  if (outcome) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = static_cast<errc>(outcome->results[i]);
      if (code == errc::unreachable)
        lost_ = true;
      if (code != errc::ok) {
        ++missing;
        continue;
      }
      const auto block = first + i;
      if (const auto bad = job_->report.compared ? job_->devices[rank]->verify(blocks_[rank][block], keys_[block], rank)
                                                 : std::nullopt) {
        ++wrong;
        if (first_wrong.empty())
          first_wrong = "request " + std::to_string(request_) + ", block " + std::to_string(block) + ", rank " +
                        std::to_string(rank) + ": " + to_string(*bad);
        continue;
      }
      good_[rank][block] = true;
      ++right;
    }
  } else {
    missing = count;
    lost_ = lost_ || outcome.error().code == errc::unreachable;
  }
  {
    std::lock_guard guard(job_->mutex);
    job_->load_busy.end(ended);
    job_->load_times.record(ended - started);
    job_->report.loaded_pages += right + wrong;
    job_->report.loaded_bytes += (right + wrong) * job_->page_bytes;
    job_->report.verify_failures += wrong;
    job_->report.load_failures += missing;
    if (job_->first_wrong.empty())
      job_->first_wrong = first_wrong;
    job_->phases.add(phase::compare, now() - ended, (right + wrong) * job_->page_bytes);
    if (outcome) {
      job_->phases.add(phase::locate, outcome->timing.registry);
      job_->phases.add(phase::read, outcome->timing.io, outcome->bytes);
      job_->phases.add(phase::scatter, outcome->timing.move, outcome->bytes);
    }
  }
  if (--waiting_ == 0)
    lost_ ? node_lost({errc::unreachable, "the node was lost during a load"}) : save();
}

void replay_worker::save() {
  const auto started = now();
  std::uint64_t produced = 0;
  for (rank_number rank = 0; rank < blocks_.size(); ++rank)
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (i < matched_ && good_[rank][i])
        continue;
      if (job_->report.compared)
        job_->devices[rank]->fill(blocks_[rank][i], keys_[i], rank);
      ++produced;
    }
  if (produced > 0) {
    std::lock_guard guard(job_->mutex);
    job_->phases.add(phase::produce, now() - started, produced * job_->page_bytes);
  }
  // A prefix block that could not be loaded is saved again; so the blocks to save need not be in one piece.
  ++waiting_;
  for (rank_number rank = 0; rank < blocks_.size(); ++rank)
    for (std::size_t i = 0; i < keys_.size();) {
      if (i < matched_ && good_[rank][i]) {
        ++i;
        continue;
      }
      auto last = i;
      while (last < keys_.size() && last - i < job_->batch_keys && (last >= matched_ || !good_[rank][last]))
        ++last;
      save_run(rank, i, last);
      i = last;
    }
  if (--waiting_ == 0)
    finish_request();
}

void replay_worker::save_run(rank_number rank, std::size_t first, std::size_t last) {
  transfer_task task;
  task.keys.items.assign(keys_.begin() + static_cast<std::ptrdiff_t>(first),
                         keys_.begin() + static_cast<std::ptrdiff_t>(last));
  task.blocks.items.assign(blocks_[rank].begin() + static_cast<std::ptrdiff_t>(first),
                           blocks_[rank].begin() + static_cast<std::ptrdiff_t>(last));
  if (first > 0)
    task.parent = keys_[first - 1];
  task.deadline = job_->task_deadline;
  const auto started = now();
  {
    std::lock_guard guard(job_->mutex);
    job_->save_busy.begin(started);
  }
  ++waiting_;
  const auto count = last - first;
  request(job_->save[rank], caf::infinite, std::move(task))
      .then([this, count, started](const transfer_result& x) { saved(count, x, started); },
            [this, count, started](const caf::error& e) { saved(count, failed<transfer_result>(e), started); });
}

void replay_worker::saved(std::size_t count, const result<transfer_result>& outcome, timestamp started) {
  const auto ended = now();
  std::uint64_t written = 0;
  std::uint64_t failures = 0;
  bool degraded = false;
  if (outcome) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = static_cast<errc>(outcome->results[i]);
      if (code == errc::ok)
        ++written;
      else if (code != errc::exists && code != errc::busy) // somebody else stored it, or is about to
        ++failures;
      degraded = degraded || code == errc::slab_damaged;
      lost_ = lost_ || code == errc::unreachable;
    }
  } else {
    failures = count;
    lost_ = lost_ || outcome.error().code == errc::unreachable;
  }
  {
    std::lock_guard guard(job_->mutex);
    job_->save_busy.end(ended);
    job_->save_times.record(ended - started);
    job_->report.saved_pages += written;
    job_->report.saved_bytes += written * job_->page_bytes;
    job_->report.save_failures += failures;
    job_->node_degraded = job_->node_degraded || degraded;
    if (outcome) {
      job_->phases.add(phase::reserve, outcome->timing.registry);
      job_->phases.add(phase::gather, outcome->timing.move, outcome->bytes);
      job_->phases.add(phase::write, outcome->timing.io, outcome->bytes);
      job_->phases.add(phase::commit, outcome->timing.finish);
    }
  }
  if (--waiting_ == 0)
    lost_ ? node_lost({errc::unreachable, "the node was lost during a save"}) : finish_request();
}

void replay_worker::finish_request() {
  if (lease_.owner != 0)
    request(job_->lookup, caf::infinite, release_atom_v, lease_)
        .then([] {},
              [](const caf::error&) {
                // it has run out, which a long request may see
              });
  {
    std::lock_guard guard(job_->mutex);
    ++job_->report.requests;
    job_->report.blocks += keys_.size();
    job_->report.hit_blocks += matched_;
  }
  // Through the mailbox, so that a long run of short requests does not grow the stack.
  send(this, caf::ok_atom_v);
}

void replay_worker::node_lost(const error& why) {
  if (why.code != errc::unreachable) {
    give_up(why);
    return;
  }
  // The request begins anew when the node is back: it is empty then, so nothing is counted twice as a hit.
  request(job_->link, caf::infinite, wait_attached_atom_v, job_->reconnect_limit)
      .then([this](const attach_reply&) { job_->stop ? quit() : begin_request(); },
            [this](const caf::error& e) { give_up(from_caf(e)); });
}

void replay_worker::give_up(const error& why) {
  job_->stop = true;
  {
    std::lock_guard guard(job_->mutex);
    if (!job_->given_up)
      job_->given_up = why;
  }
  quit();
}

} // namespace troupe::cli
