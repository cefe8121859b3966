#include "workload/runner/replayer.hpp"

#include "actors/support/actor_support.hpp"
#include "messages/answer_codes.hpp"
#include "workload/replay/keys.hpp"

#include <algorithm>
#include <utility>

namespace troupe::replay {

replayer::replayer(caf::actor_config& config, std::shared_ptr<const replay_context> scene, caf::actor controller,
                   std::vector<std::vector<std::uint32_t>> blocks)
    : caf::event_based_actor(config), scene_(std::move(scene)), controller_(std::move(controller)),
      blocks_(std::move(blocks)) {}

caf::behavior replayer::make_behavior() {
  return {
      [this](caf::ok_atom) { ask_for_request(); },
  };
}

void replayer::tell(run_event event) {
  send(controller_, std::move(event));
}

void replayer::ask_for_request() {
  request(controller_, caf::infinite, next_request{})
      .then(
          [this](std::uint64_t number) {
            request_ = number;
            if (number == scene_->what->requests.size()) {
              quit();
              return;
            }
            keys_ = chain_keys(scene_->what->requests[number].hash_ids, scene_->options.salt);
            begin_request();
          },
          [this](const caf::error&) { quit(); });
}

void replayer::begin_request() {
  lost_ = false;
  matched_ = 0;
  lease_ = {};
  if (keys_.empty()) {
    finish_request();
    return;
  }
  const auto began = now();
  request(scene_->lookup, caf::infinite, lookup_task{keys_, scene_->options.lease, true})
      .then(
          [this, began](const lookup_result& found) {
            tell(lookup_ended{now() - began});
            looked_up(found);
          },
          [this](const caf::error& e) { node_lost(from_caf(e)); });
}

void replayer::looked_up(const lookup_result& found) {
  matched_ = found.matched;
  lease_ = found.lease;
  good_.assign(blocks_.size(), std::vector<bool>(matched_, false));
  if (matched_ > 0)
    load();
  else
    save();
}

transfer_task replayer::task_for(rank_number rank, std::size_t first, std::size_t last) const {
  const auto part = [first, last](const auto& of) {
    return std::vector(of.begin() + static_cast<std::ptrdiff_t>(first), of.begin() + static_cast<std::ptrdiff_t>(last));
  };
  transfer_task out;
  out.keys = part(keys_);
  out.blocks = part(blocks_[rank]);
  out.deadline = scene_->options.task_deadline;
  return out;
}

void replayer::load() {
  for (rank_number rank = 0; rank < blocks_.size() && scene_->compared; ++rank)
    for (std::size_t i = 0; i < matched_; ++i)
      scene_->devices[rank]->poison(blocks_[rank][i]);
  for (rank_number rank = 0; rank < blocks_.size(); ++rank) {
    for (std::size_t first = 0; first < matched_; first += scene_->batch_keys) {
      const auto last = std::min<std::size_t>(matched_, first + scene_->batch_keys);
      const auto began = now();
      tell(transfer_began{transfer_kind::load, began});
      ++waiting_;
      request(scene_->load[rank], caf::infinite, task_for(rank, first, last))
          .then([this, rank, first, began](const transfer_result& x) { loaded(rank, first, x, began); },
                [this, rank, first, began](const caf::error& e) {
                  loaded(rank, first, failed<transfer_result>(e), began);
                });
    }
  }
}

void replayer::loaded(rank_number rank, std::size_t first, const result<transfer_result>& outcome, timestamp began) {
  load_ended counts;
  counts.began = began;
  counts.ended = now();
  if (outcome) {
    counts.timing = outcome->timing;
    counts.bytes = outcome->bytes;
    counts.from_disk = outcome->from_disk;
    compare(rank, first, *outcome, counts);
  } else {
    counts.missing = std::min<std::size_t>(matched_ - first, scene_->batch_keys);
    counts.codes[outcome.error().code] = counts.missing;
    lost_ = lost_ || outcome.error().code == errc::unreachable;
  }
  counts.comparing = now() - counts.ended;
  tell(std::move(counts));
  if (--waiting_ == 0)
    lost_ ? node_lost({errc::unreachable, "the node was lost during a load"}) : save();
}

void replayer::compare(rank_number rank, std::size_t first, const transfer_result& outcome, load_ended& counts) {
  const auto count = std::min<std::size_t>(matched_ - first, scene_->batch_keys);
  for (std::size_t i = 0; i < count; ++i) {
    const auto code = code_at(outcome.results, i);
    lost_ = lost_ || code == errc::unreachable;
    if (code != errc::ok) {
      ++counts.missing;
      ++counts.codes[code];
      continue;
    }
    const auto block = first + i;
    const auto& device = *scene_->devices[rank];
    if (const auto bad = scene_->compared ? device.verify(blocks_[rank][block], keys_[block], rank) : std::nullopt) {
      ++counts.wrong;
      if (counts.first_wrong.empty())
        counts.first_wrong = "request " + std::to_string(request_) + ", block " + std::to_string(block) + ", rank " +
                             std::to_string(rank) + ": " + to_string(*bad);
      continue;
    }
    good_[rank][block] = true;
    ++counts.right;
  }
}

void replayer::save() {
  const auto began = now();
  std::uint64_t produced = 0;
  for (rank_number rank = 0; rank < blocks_.size(); ++rank)
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (has(rank, i))
        continue;
      if (scene_->compared)
        scene_->devices[rank]->fill(blocks_[rank][i], keys_[i], rank);
      ++produced;
    }
  if (produced > 0)
    tell(blocks_produced{now() - began, produced});
  // A prefix block that could not be loaded is saved again; so the blocks to save need not be contiguous.
  ++waiting_;
  for (rank_number rank = 0; rank < blocks_.size(); ++rank)
    for (std::size_t i = 0; i < keys_.size();) {
      if (has(rank, i)) {
        ++i;
        continue;
      }
      auto last = i;
      while (last < keys_.size() && last - i < scene_->batch_keys && !has(rank, last))
        ++last;
      save_run(rank, i, last);
      i = last;
    }
  if (--waiting_ == 0)
    finish_request();
}

void replayer::save_run(rank_number rank, std::size_t first, std::size_t last) {
  auto task = task_for(rank, first, last);
  if (first > 0)
    task.parent = keys_[first - 1];
  const auto began = now();
  tell(transfer_began{transfer_kind::save, began});
  ++waiting_;
  const auto count = last - first;
  request(scene_->save[rank], caf::infinite, std::move(task))
      .then([this, count, began](const transfer_result& x) { saved(count, x, began); },
            [this, count, began](const caf::error& e) { saved(count, failed<transfer_result>(e), began); });
}

void replayer::saved(std::size_t count, const result<transfer_result>& outcome, timestamp began) {
  save_ended counts;
  counts.began = began;
  counts.ended = now();
  if (outcome) {
    counts.timing = outcome->timing;
    counts.bytes = outcome->bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = code_at(outcome->results, i);
      if (code == errc::ok)
        ++counts.written;
      else if (code != errc::exists && code != errc::busy) { // another writer stored it, or is about to
        ++counts.failures;
        ++counts.codes[code];
      }
      counts.slab_damaged = counts.slab_damaged || code == errc::slab_damaged;
      lost_ = lost_ || code == errc::unreachable;
    }
  } else {
    counts.failures = count;
    counts.codes[outcome.error().code] = count;
    lost_ = lost_ || outcome.error().code == errc::unreachable;
  }
  tell(std::move(counts));
  if (--waiting_ == 0)
    lost_ ? node_lost({errc::unreachable, "the node was lost during a save"}) : finish_request();
}

void replayer::finish_request() {
  if (lease_.owner != 0)
    request(scene_->lookup, caf::infinite, release_atom_v, lease_)
        .then([] {},
              [](const caf::error&) {
                // it has expired, which can happen to a long request
              });
  tell(request_ended{keys_.size(), matched_});
  ask_for_request();
}

void replayer::node_lost(const error& why) {
  if (why.code != errc::unreachable) {
    abandon(why);
    return;
  }
  // The request restarts when the node is back: it is empty then, so nothing is counted twice as a hit.
  request(scene_->link, caf::infinite, wait_attached_atom_v, scene_->options.patience)
      .then(
          [this](const attach_reply&) {
            request(controller_, caf::infinite, still_wanted{})
                .then([this](bool wanted) { wanted ? begin_request() : quit(); },
                      [this](const caf::error&) { quit(); });
          },
          [this](const caf::error& e) { abandon(from_caf(e)); });
}

void replayer::abandon(const error& why) {
  tell(run_abandoned{why});
  quit();
}

} // namespace troupe::replay
