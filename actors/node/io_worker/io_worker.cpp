#include "actors/node/io_worker/io_worker.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

namespace troupe {

namespace {

/// How late a damaged slab is noticed, and how old latencies in the metrics are: one fstat a second costs nothing.
constexpr auto io_worker_tick = std::chrono::seconds(1);

} // namespace

io_worker::io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts)
    : io_worker_actor::base(config), parts_(std::move(parts)), state_(parts_->options) {}

timestamp io_worker::now() const {
  return clock().now();
}

io_worker::behavior_type io_worker::make_behavior() {
  parts_->target->set(caf::actor_cast<io_worker_actor>(this));
  delayed_send(this, io_worker_tick, caf::tick_atom_v);
  return {
      [this](open_segment_atom, owner_id owner, std::uint64_t bytes, std::int32_t memory_node) {
        return open_segment(owner, bytes, memory_node);
      },
      [this](close_segment_atom, std::uint64_t segment) -> caf::result<void> {
        auto closed = state_.close_segment(segment);
        flush();
        return to_caf(closed);
      },
      [this](read_atom, const io_batch& batch) { return begin(io::operation::read, batch); },
      [this](write_atom, const io_batch& batch) { return begin(io::operation::write, batch); },
      [this](fence_atom, const slot_batch& batch) -> caf::result<void> {
        if (batch.slots.size() > parts_->options.slots)
          return to_caf(more_slots_than_exist(batch.slots.size(), parts_->options.slots));
        auto promise = make_response_promise();
        fences_.emplace(state_.fence(batch.slots.items), promise);
        flush();
        return promise;
      },
      [this](owner_died_atom, owner_id owner) -> caf::result<void> {
        state_.owner_died(owner);
        flush();
        return caf::unit;
      },
      [this](drain_atom) -> caf::result<void> {
        state_.drain();
        auto promise = make_response_promise();
        drains_.push_back(promise);
        flush();
        return promise;
      },
      [this](stats_atom) { return state_.stats(); },
      [this](const io_completions& batch) {
        std::vector<io::completion> completions;
        completions.reserve(batch.records.size());
        for (const auto& x : batch.records)
          completions.push_back(
              {x.tag, x.status < errc_count ? static_cast<errc>(x.status) : errc::internal, x.system_errno});
        state_.complete(completions);
        flush();
      },
      [this](caf::tick_atom) {
        check_slab();
        flush();
        send_samples();
        delayed_send(this, io_worker_tick, caf::tick_atom_v);
      },
  };
}

caf::result<segment_info> io_worker::open_segment(owner_id owner, std::uint64_t bytes, std::int32_t memory_node) {
  if (auto allowed = state_.may_open_segment(owner, bytes); !allowed)
    return to_caf(allowed.error());
  auto lent = parts_->buffers->lend(bytes, memory_node);
  if (!lent)
    return to_caf(lent.error());
  const auto memory = lent->buffers->bytes();
  const auto id = state_.add_segment(owner, memory, lent->at_store);
  segment_info info{id, memory.size(), lent->name};
  segments_.emplace(id, std::move(*lent));
  return info;
}

caf::result<io_reply> io_worker::begin(io::operation op, const io_batch& batch) {
  const auto started = now();
  const auto id = state_.begin(op, batch, started);
  if (!id)
    return to_caf(id.error());
  auto promise = make_response_promise();
  batches_.emplace(*id, waiting_batch{promise, op == io::operation::read ? request_kind::read : request_kind::write,
                                      static_cast<std::uint32_t>(batch.items.size()), started});
  flush();
  return promise;
}

// What the state has decided, carried out: after each call of the state that may decide anything. Requests come first,
// so that the kernel works while the rest is done here. Segments come last: only what the state calls idle has no
// transfer under way, neither in the kernel nor in the batch that was just submitted.
void io_worker::flush() {
  if (auto requests = state_.take_requests(); !requests.empty())
    parts_->store->submit(requests);
  for (auto& ended : state_.take_finished()) {
    auto node = batches_.extract(ended.batch);
    auto& waiting = node.mapped();
    samples_.add(waiting.kind, waiting.pages, now() - waiting.started);
    waiting.promise.deliver(std::move(ended.reply));
    if (samples_.full())
      send_samples();
  }
  for (const auto id : state_.take_fenced())
    fences_.extract(id).mapped().deliver(caf::unit);
  for (const auto& [segment, buffer] : state_.take_idle_segments())
    parts_->buffers->take_back(std::move(segments_.extract(segment).mapped()));
  if (state_.draining() && state_.in_flight() == 0)
    for (auto& promise : std::exchange(drains_, {}))
      promise.deliver(caf::unit);
}

void io_worker::send_samples() {
  if (auto collected = samples_.take(); !collected.samples.empty() && parts_->metrics)
    send(parts_->metrics, std::move(collected));
}

void io_worker::check_slab() {
  if (state_.damaged())
    return;
  const auto sound = parts_->store->health();
  if (sound)
    return;
  state_.slab_is_damaged();
  const auto& [space, space_name, rank] = parts_->name;
  if (parts_->condition)
    parts_->condition->slab_damaged(space, rank,
                                    "the slab of namespace '" + space_name + "' rank " + std::to_string(rank) +
                                        " is damaged (" + sound.error().text +
                                        "): start the node again with a new slab");
  log::get("io")->error("{}: {}; nothing more is saved in namespace '{}' on any rank, reads are tried and verified. "
                        "Start the node again with a new slab.",
                        parts_->store->traits().place, sound.error().text, space_name);
}

// In this order: nothing is freed, unmapped or closed before the kernel has let go of it.
void io_worker::on_exit() {
  // From here on completions reach nobody: this actor takes no message any more, and a handle to it in the target would
  // keep both alive for ever.
  parts_->target->clear();
  parts_->store->stop(); // what is in flight ends
  const auto gone = to_caf(error{errc::shutting_down, "the node is ending"});
  for (auto& [id, waiting] : batches_)
    waiting.promise.deliver(gone);
  for (auto& [id, promise] : fences_)
    promise.deliver(gone);
  for (auto& promise : drains_)
    promise.deliver(gone);
  batches_.clear();
  fences_.clear();
  drains_.clear();
  segments_.clear(); // the kernel wrote into them until now
  parts_.reset();    // closes the slab and gives up its lock
}

} // namespace troupe
