#include "actors/node/allocator/allocator.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/gather.hpp"
#include "base/log.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// The longest delay until a timed-out request is answered, or a rested slot is free. Short compared with both times,
/// which are seconds.
constexpr auto allocator_tick = std::chrono::milliseconds(100);

allocator_options with_fence(allocator_options options, bool fenced) {
  options.fenced = fenced;
  return options;
}

} // namespace

allocator::allocator(caf::actor_config& config, const allocator_options& options, const namespace_id& ns,
                     rank_number rank, io_worker_actor worker, memory_share memory, slab_grower_actor grower)
    : allocator_actor::base(config), memory_(std::move(memory)), state_(with_fence(options, static_cast<bool>(worker))),
      ns_(ns), rank_(rank), worker_(std::move(worker)), grower_(std::move(grower)) {}

allocator::behavior_type allocator::make_behavior() {
  delayed_send(this, allocator_tick, caf::tick_atom_v);
  return {
      [this](take_atom, std::uint32_t count, duration wait) -> caf::result<take_reply> {
        const auto id = ++last_request_;
        auto promise = make_response_promise();
        waiting_.emplace(id, promise);
        state_.take(id, count, later(now(), wait), now());
        flush();
        return promise;
      },
      [this](publish_page_atom, const slot_batch& x) {
        return change(x, [&] { return state_.publish(x.slots.items); });
      },
      [this](abort_atom, const slot_batch& x) {
        return change(x, [&] { return state_.abort(x.slots.items, x.rest, now()); });
      },
      [this](release_atom, const slot_batch& x) {
        return change(x, [&] {
          auto codes = state_.release(x.slots.items, x.rest, now());
          shares_.released(x.progress);
          return codes;
        });
      },
      [this](bind_atom, const registry_peers& peers) -> caf::result<void> {
        if (std::exchange(bound_, true))
          return to_caf(error{errc::exists, "the allocator is already bound to its shards"});
        shards_ = peers.shards;
        shares_ = eviction_shares(shards_.size());
        return caf::unit;
      },
      [this](restore_atom, const slot_batch& x) { return change(x, [&] { return state_.restore(x.slots.items); }); },
      [this](restored_atom) {
        slot_batch lost{state_.restored()};
        vacate_free();
        flush();
        return lost;
      },
      [this](resize_atom, std::uint32_t slots) -> caf::result<void> {
        // Without an io worker only time shows that no engine writes a slot any more.
        if (slots == 0 && !worker_)
          state_.close(now());
        else if (state_.has_memory_slots())
          state_.set_frames(slots);
        else
          state_.set_limit(slots);
        flush();
        return caf::unit;
      },
      [this](grow_atom, std::uint32_t room) -> caf::result<void> {
        state_.set_room(room);
        flush();
        return caf::unit;
      },
      [this](stats_atom) { return state_.stats(); },
      [this](caf::tick_atom) {
        state_.tick(now());
        flush();
        delayed_send(this, allocator_tick, caf::tick_atom_v);
      },
  };
}

template <class Call>
caf::result<slot_results> allocator::change(const slot_batch& batch, Call call) {
  if (const auto all = state_.stats().total; batch.slots.size() > all)
    return to_caf(more_slots_than_exist(batch.slots.size(), all));
  auto out = codes(call());
  flush();
  return out;
}

slot_results allocator::codes(const std::vector<errc>& results) {
  slot_results out;
  out.results.items.reserve(results.size());
  for (const auto code : results)
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  return out;
}

void allocator::flush() {
  auto out = state_.take_outbox();
  for (auto& answer : out.answers) {
    auto node = waiting_.extract(answer.request);
    if (!node.empty())
      node.mapped().deliver(std::move(answer.reply));
  }
  if (!out.fence.empty())
    fence(std::move(out.fence));
  if (out.evict > 0)
    evict(out.evict);
  if (out.grow > 0)
    grow(out.grow, out.grow_within_room);
  if (out.grow_frames > 0)
    grow_frames(out.grow_frames);
}

template <class Asked, class Grown, class AsBefore>
void allocator::take_growth(Asked asked, const char* of, Grown grown, AsBefore as_before) {
  asked.then(grown, [this, of, as_before](const caf::error& e) {
    log::get("allocator")->error("no more {}: rank {} ({})", of, rank_, to_string(from_caf(e)));
    as_before();
  });
}

void allocator::grow(std::uint32_t slots, std::uint32_t within_room) {
  if (grower_) {
    const auto grown = [this](std::uint32_t now_there, std::uint32_t granted) {
      state_.grown(now_there, granted);
      flush();
    };
    return take_growth(request(grower_, caf::infinite, grow_atom_v, ns_, rank_, slots, within_room), "slots", grown,
                       [this, grown] { grown(state_.file_slots(), state_.granted()); });
  }
  const auto grown = [this](std::uint32_t now_there) {
    state_.resize(now_there);
    flush();
  };
  take_growth(request(worker_, caf::infinite, grow_atom_v, slots), "slots", grown,
              [this, grown] { grown(state_.slab_slots()); });
}

void allocator::grow_frames(std::uint32_t frames) {
  const auto grown = [this](std::uint32_t now_there) {
    state_.frames_grown(now_there);
    flush();
  };
  take_growth(request(worker_, caf::infinite, grow_atom_v, frames), "memory", grown,
              [this, grown] { grown(state_.frames()); });
}

void allocator::fence(std::vector<slot_ref> slots) {
  // No timeout: a slot is not free while the kernel still holds a transfer. A worker that dies ends the node.
  request(worker_, caf::infinite, fence_atom_v, slot_batch{slots})
      .then(
          [this, slots] {
            fenced(slots);
            flush();
          },
          [this](const caf::error& e) {
            log::get("allocator")
                ->error("fence failed: rank {} ({}); its slots stay in quarantine", rank_, to_string(from_caf(e)));
          });
}

// The io worker counts what a sparse slab holds, and cannot know which of the pages that it found are of no use.
void allocator::vacate_free() {
  if (!grower_ || !worker_)
    return;
  request(worker_, caf::infinite, fence_atom_v, slot_batch{state_.free_slots()})
      .then([] {},
            [](const caf::error& e) {
              log::get("allocator")->error("free slots count as used: {}", to_string(from_caf(e)));
            });
}

void allocator::fenced(const std::vector<slot_ref>& slots) {
  for (const auto code : state_.fenced(slots))
    if (code != errc::ok)
      log::get("allocator")->error("fenced slot not in quarantine: rank {} ({})", rank_, to_string(code));
}

void allocator::evict(std::uint32_t wanted) {
  struct yield {
    std::uint64_t freed = 0;
    bool more = false;
  };
  const auto shares = shares_.divide(wanted);
  const auto asked = static_cast<std::size_t>(std::ranges::count_if(shares, [](auto share) { return share > 0; }));
  const auto all = gather(asked, yield{}, [this](const result<yield>& x) {
    state_.eviction_done(x->freed, x->more || shares_.hopeful());
    flush();
  });
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const auto share = shares[i];
    if (share == 0)
      continue;
    request(shards_[i], caf::infinite, evict_request{ns_, rank_, share, shares_.forced(), shares_.seen(i)})
        .then(
            [this, all, i](const evict_reply& reply) {
              shares_.answered(i, reply);
              all->value().freed += reply.slots;
              all->value().more = all->value().more || reply.more;
              all->part_done();
            },
            // The slots of the other shards are still usable.
            [this, all, i](const caf::error& e) {
              shares_.failed(i);
              log::get("allocator")->error("eviction failed on a shard: {}", to_string(from_caf(e)));
              all->part_done();
            });
  }
}

void allocator::on_exit() {
  for (auto& [id, promise] : waiting_)
    promise.deliver(to_caf(error{errc::shutting_down, "the allocator is shutting down"}));
  waiting_.clear();
  worker_ = nullptr;
  grower_ = nullptr;
  shards_.clear();
}

} // namespace troupe
