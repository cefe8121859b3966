// The allocators and io workers of the simulated node, as actors/node/allocator/allocator.cpp and
// actors/node/io_worker/io_worker.cpp run them.

#include "tests/simulation/node.hpp"
#include "tests/simulation/segment_pool.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace troupe::simulation {

// -- allocator --------------------------------------------------------------------------------------------------------

void node::take(rank_number rank, std::uint32_t count, const promise<take_reply>& answer) {
  auto& r = parts_->ranks[rank];
  const auto id = ++r.last_take;
  r.takes.emplace(id, answer);
  r.allocator->take(id, count, world_.now() + world_.p.take_time, world_.now());
  flush_allocator(rank);
}

void node::hear(rank_number rank, slot_word word, const std::vector<slot_ref>& slots) {
  if (auto wrong = ledger_.heard(rank, word, slots); !wrong.empty())
    world_.fail("slots", std::move(wrong));
  auto& allocator = *parts_->ranks[rank].allocator;
  switch (word) {
  case slot_word::publish:
    accept(rank, "publish", allocator.publish(slots));
    break;
  case slot_word::abort:
    accept(rank, "abort", allocator.abort(slots));
    break;
  case slot_word::release:
    accept(rank, "release", allocator.release(slots));
    break;
  }
  flush_allocator(rank);
}

void node::accept(rank_number rank, const char* verb, const std::vector<errc>& codes) {
  for (const auto code : codes)
    if (code != errc::ok)
      world_.fail("slots", "rank " + std::to_string(rank) + ": the allocator refuses to " + verb +
                               " a slot: " + std::string(to_string(code)));
}

void node::flush_allocator(rank_number rank) {
  auto& r = parts_->ranks[rank];
  auto out = r.allocator->take_outbox();
  for (auto& answer : out.answers) {
    auto waiting = r.takes.extract(answer.request);
    if (waiting.empty()) {
      world_.fail("rank " + std::to_string(rank) + ": the allocator answers a request twice");
      continue;
    }
    world_.count("take", answer.code);
    ledger_.granted(rank, answer.reply.slots.items);
    waiting.mapped().deliver(std::move(answer.reply));
  }
  if (!out.fence.empty())
    fence(rank, out.fence);
  if (out.evict > 0)
    ask_to_evict(rank, out.evict);
}

void node::fence(rank_number rank, const std::vector<slot_ref>& slots) {
  ledger_.fencing(rank, slots);
  const auto done = [this, rank, slots](const result<void>&) {
    ledger_.fenced(rank, slots);
    accept(rank, "free", parts_->ranks[rank].allocator->fenced(slots));
    flush_allocator(rank);
  };
  if (world_.has(defect::skip_fence)) {
    done({});
    return;
  }
  net_.request<void>(
      allocator(rank), worker(rank), local, duration::zero(), "fence",
      [this, rank, slots](const promise<void>& answer) {
        auto& r = parts_->ranks[rank];
        for (const auto& x : slots)
          if (disks_[rank]->transfers_of(x) > 1)
            world_.count("fence: waits for several transfers of a slot");
        r.fences.emplace(r.worker->fence(slots), rank_parts::open_fence{slots, answer});
        flush_worker(rank);
      },
      done);
}

void node::ask_to_evict(rank_number rank, std::uint32_t wanted) {
  struct gathering {
    std::size_t waiting = 0;
    std::uint64_t freed = 0;
    bool more = false;
  };
  const auto shards = world_.p.shards;
  auto shared = std::make_shared<gathering>();
  shared->waiting = shards;
  const evict_request share{space_, rank, (wanted + shards - 1) / shards};
  for (std::uint32_t i = 0; i < shards; ++i)
    net_.request<evict_reply>(
        allocator(rank), shard(i), local, duration::zero(), "evict",
        [this, i, share](const promise<evict_reply>& answer) {
          const auto reply = evict(i, share);
          flush_shard(i);
          answer.deliver(reply);
        },
        [this, rank, shared](const result<evict_reply>& reply) {
          shared->freed += reply->slots;
          shared->more = shared->more || reply->more;
          if (--shared->waiting > 0)
            return;
          parts_->ranks[rank].allocator->eviction_done(shared->freed, shared->more);
          flush_allocator(rank);
        });
}

void node::keep_ticking_allocator(rank_number rank) {
  net_.after(node_process, world_.p.allocator_tick, [this, rank] {
    parts_->ranks[rank].allocator->tick(world_.now());
    flush_allocator(rank);
    keep_ticking_allocator(rank);
  });
}

// -- io worker --------------------------------------------------------------------------------------------------------

void node::open_segment(rank_number rank, owner_id owner, std::uint64_t bytes, const promise<opened_segment>& answer) {
  auto& r = parts_->ranks[rank];
  if (auto allowed = r.worker->may_open_segment(owner, bytes); !allowed) {
    answer.deliver(tl::unexpected<error>(allowed.error()));
    return;
  }
  auto memory = take_segment(bytes);
  const auto id = r.worker->add_segment(owner, memory->bytes(), 0);
  r.segments.emplace(id, rank_parts::client_memory{owner, memory});
  answer.deliver(opened_segment{id, memory});
}

void node::transfer(rank_number rank, io::operation op, const io_batch& batch, const promise<io_reply>& answer) {
  auto& r = parts_->ranks[rank];
  const auto id = r.worker->begin(op, batch, world_.now());
  if (!id) {
    world_.count(op == io::operation::read ? "read batch refused" : "write batch refused", id.error().code);
    answer.deliver(tl::unexpected<error>(id.error()));
    return;
  }
  r.batches.emplace(*id, answer);
  submit(rank, batch);
  flush_worker(rank);
}

void node::submit(rank_number rank, const io_batch& batch) {
  auto& r = parts_->ranks[rank];
  // The worker's requests are a part of the batch's items, in their order.
  auto item = batch.items.begin();
  for (const auto& request : r.worker->take_requests()) {
    const auto base = r.segments.at(batch.segment).bytes->bytes().data();
    while (item != batch.items.end() && (item->where != request.where || base + item->buffer_offset != request.data))
      ++item;
    if (item == batch.items.end()) {
      world_.fail("rank " + std::to_string(rank) + ": the io worker transfers what nobody asked for");
      return;
    }
    if (request.op == io::operation::write && r.slab_is_damaged)
      world_.fail("damage", "rank " + std::to_string(rank) + ": the io worker writes to a slab that is damaged");
    disks_[rank]->submit(request, [this, rank, slot = request.where.slot](const io::completion& c) {
      net_.send(worker(rank), worker(rank), local, "completion", [this, rank, slot, c] {
        parts_->ranks[rank].worker->complete({&c, 1});
        if (world_.has(defect::early_fence))
          end_fences_of(rank, slot);
        flush_worker(rank);
      });
    });
    ++item;
  }
}

void node::flush_worker(rank_number rank) {
  auto& r = parts_->ranks[rank];
  for (auto& ended : r.worker->take_finished()) {
    const auto waiting = r.batches.extract(ended.batch);
    if (waiting.empty()) {
      world_.fail("rank " + std::to_string(rank) + ": the io worker ends a batch twice");
      continue;
    }
    if (world_.has(defect::lose_reply) && random_.one_in(16))
      continue;
    waiting.mapped().deliver(std::move(ended.reply));
  }
  for (const auto id : r.worker->take_fenced())
    end_fence(rank, id);
  for (const auto& [segment, buffer] : r.worker->take_idle_segments())
    drop_segment(rank, segment);
}

void node::end_fence(rank_number rank, io_worker_state::fence_id fence) {
  const auto ended = parts_->ranks[rank].fences.extract(fence);
  if (ended.empty())
    return; // a mistake that is built in was quicker
  for (const auto& where : ended.mapped().slots)
    if (disks_[rank]->transfers_of(where) > 0)
      world_.fail("fence", "rank " + std::to_string(rank) + ": the fence of slot " + std::to_string(where.slot) +
                               " generation " + std::to_string(where.generation) + " ends while it is transferred");
  ended.mapped().answer.deliver({});
}

void node::end_fences_of(rank_number rank, slot_number slot) {
  std::vector<io_worker_state::fence_id> over;
  for (const auto& [id, x] : parts_->ranks[rank].fences)
    if (std::any_of(x.slots.begin(), x.slots.end(), [slot](slot_ref where) { return where.slot == slot; }))
      over.push_back(id);
  std::sort(over.begin(), over.end());
  for (const auto id : over)
    end_fence(rank, id);
}

void node::drop_segment(rank_number rank, std::uint64_t segment) {
  const auto dropped = parts_->ranks[rank].segments.extract(segment);
  if (!dropped.empty() && disks_[rank]->uses(dropped.mapped().bytes->bytes()))
    world_.fail("memory", "rank " + std::to_string(rank) + ": page buffers are given up while the disk transfers them");
}

void node::drop_memory_of(rank_number rank, owner_id owner) {
  std::vector<std::uint64_t> dropped;
  for (const auto& [id, x] : parts_->ranks[rank].segments)
    if (x.owner == owner)
      dropped.push_back(id);
  for (const auto id : dropped)
    drop_segment(rank, id);
}

void node::keep_ticking_worker(rank_number rank) {
  net_.after(node_process, world_.p.worker_tick, [this, rank] {
    auto& worker = *parts_->ranks[rank].worker;
    auto& known = parts_->ranks[rank].slab_is_damaged;
    if (disks_[rank]->damaged() && !known) {
      world_.count("slab found damaged");
      known = true;
      if (!world_.has(defect::forget_damage))
        worker.slab_is_damaged();
    }
    flush_worker(rank);
    keep_ticking_worker(rank);
  });
}

} // namespace troupe::simulation
