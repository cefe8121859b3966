#include "actors/node/io_worker/io_worker.hpp"

#include "actors/node/io_worker/page_checker.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/shard_batches.hpp"
#include "base/log.hpp"

namespace troupe {

namespace {

/// How late a damaged slab is noticed, and how old latencies in the metrics are: one fstat a second costs nothing.
constexpr duration slab_look = std::chrono::seconds(1);

/// How late a request that waits for memory learns that its time is over.
constexpr duration wait_tick = std::chrono::milliseconds(50);

/// How late memory is used that the host has just given.
constexpr duration extent_tick = std::chrono::milliseconds(2);

} // namespace

io_worker::io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts)
    : io_worker_actor::base(config), parts_(std::move(parts)), state_(parts_->options) {}

timestamp io_worker::now() const {
  return clock().now();
}

template <class Reply>
caf::result<Reply> io_worker::wait_for(const result<io_worker_state::request_id>& begun) {
  if (!begun)
    return to_caf(begun.error());
  auto promise = make_response_promise();
  requests_.emplace(*begun, waiting_request{promise, now()});
  flush();
  return promise;
}

io_worker::behavior_type io_worker::make_behavior() {
  if (parts_->target)
    parts_->target->set(caf::actor_cast<io_worker_actor>(this));
  if (parts_->store)
    checker_ = spawn<page_checker, caf::linked>(
        page_checker_options{parts_->name.space, parts_->name.rank, parts_->page_bytes, parts_->extents->memory()});
  wind_clock();
  return {
      [this](place_atom, owner_id owner, const frame_request& x) {
        return wait_for<frame_reply>(state_.place(owner, x, now()));
      },
      [this](fetch_atom, owner_id owner, const frame_request& x) {
        return wait_for<frame_reply>(state_.fetch(owner, x, now()));
      },
      [this](fill_atom, owner_id owner, const fill_request& x) {
        return wait_for<io_reply>(state_.fill(owner, x, now()));
      },
      [this](unpin_atom, owner_id owner, pin_number pin) -> caf::result<void> {
        const auto ended = state_.unpin(owner, pin, now());
        flush();
        return to_caf(ended);
      },
      [this](fence_atom, const slot_batch& batch) -> caf::result<void> {
        if (batch.slots.size() > parts_->options.slots)
          return to_caf(more_slots_than_exist(batch.slots.size(), parts_->options.slots));
        auto promise = make_response_promise();
        fences_.emplace(state_.fence(batch.slots.items, now()), promise);
        flush();
        return promise;
      },
      [this](bind_atom, const registry_peers& peers) -> caf::result<void> {
        if (std::exchange(bound_, true))
          return to_caf(error{errc::exists, "the io worker knows the shards already"});
        shards_ = peers.shards;
        return caf::unit;
      },
      [this](grow_atom, std::uint32_t wanted) -> caf::result<std::uint32_t> {
        auto promise = make_response_promise();
        growers_.push_back({promise, state_.frames().size() + wanted});
        flush();
        return promise;
      },
      [this](owner_died_atom, owner_id owner) -> caf::result<void> {
        state_.owner_died(owner, now());
        flush();
        return caf::unit;
      },
      [this](owner_at_rest_atom, owner_id owner) -> caf::result<void> {
        state_.owner_at_rest(owner, now());
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
        state_.complete(completions, now());
        flush();
      },
      [this](caf::tick_atom) {
        if (now() >= next_tick_)
          next_tick_ = timestamp::max();
        if (now() >= next_look_at_slab_) {
          next_look_at_slab_ = now() + slab_look;
          check_slab();
          send_samples();
        }
        state_.tick(now());
        flush();
      },
  };
}

void io_worker::wind_clock() {
  auto pause = slab_look;
  if (state_.needs_ticks())
    pause = wait_tick;
  if (state_.waits_for_extent() || !growers_.empty())
    pause = extent_tick;
  // One that was wound before may be due later: then there are two, and the other one finds little to do.
  const auto due = now() + pause;
  if (due >= next_tick_)
    return;
  next_tick_ = due;
  delayed_send(this, pause, caf::tick_atom_v);
}

// What the state has decided, carried out: after each call of the state that may decide anything. Memory comes first,
// since requests may have waited for nothing else; then what the kernel can work on while the rest is done here.
void io_worker::flush() {
  borrow();
  if (auto requests = state_.take_requests(); !requests.empty())
    parts_->store->submit(requests);
  send_checks();
  for (auto& x : state_.take_frames())
    answer(x);
  for (auto& x : state_.take_fills())
    answer(x);
  if (samples_.full())
    send_samples();
  for (const auto id : state_.take_fenced())
    fences_.extract(id).mapped().deliver(caf::unit);
  tell_of_damage();
  if (state_.draining() && state_.at_rest())
    for (auto& promise : std::exchange(drains_, {}))
      promise.deliver(caf::unit);
  wind_clock();
}

result<frame_table::extent> io_worker::lend() {
  const auto lent = parts_->extents->lend();
  if (!lent)
    return tl::unexpected(lent.error());
  frame_table::extent out{lent->number, lent->offset, lent->bytes, 0};
  if (!parts_->store)
    return out;
  const auto known = parts_->store->add_buffer(lent->bytes);
  if (!known) {
    log::get("io")->warn("{}: memory cannot be used: {}", parts_->name.space_name, known.error().text);
    parts_->extents->take_back(lent->number);
    return tl::unexpected(known.error());
  }
  out.buffer = *known;
  return out;
}

void io_worker::borrow() {
  while (state_.wants_extent())
    if (const auto lent = lend())
      state_.add_extent(*lent, now());
    else
      state_.no_extent(lent.error().code == errc::busy, now());
  while (!growers_.empty()) {
    auto& x = growers_.front();
    while (state_.frames().size() < x.frames) {
      const auto lent = lend();
      if (!lent && lent.error().code == errc::busy)
        return; // asked again by the clock
      if (!lent)
        break;
      state_.add_extent(*lent, now());
    }
    x.promise.deliver(static_cast<std::uint32_t>(state_.frames().size()));
    growers_.pop_front();
  }
}

void io_worker::send_checks() {
  auto checks = state_.take_checks();
  if (checks.empty())
    return;
  check_order order;
  std::vector<std::uint64_t> numbers;
  for (const auto& x : checks) {
    order.items.items.push_back({x.page, x.offset});
    numbers.push_back(x.number);
  }
  const auto verdicts = [this, numbers](const auto& code_of) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      state_.checked(numbers[i], code_of(i), now());
    flush();
  };
  request(checker_, caf::infinite, std::move(order))
      .then(
          [verdicts](const io_reply& reply) {
            verdicts([&](std::size_t i) {
              return i < reply.results.size() && reply.results[i] < errc_count ? static_cast<errc>(reply.results[i])
                                                                               : errc::internal;
            });
          },
          [verdicts](const caf::error& e) { verdicts([&](std::size_t) { return from_caf(e).code; }); });
}

void io_worker::answer(io_worker_state::answered_frames& x) {
  auto node = requests_.extract(x.request);
  if (node.empty())
    return;
  auto& waiting = node.mapped();
  if (x.fetched)
    samples_.add(request_kind::read, x.pages, now() - waiting.started);
  if (x.refused != errc::ok)
    waiting.promise.deliver(to_caf(error{x.refused, "the client is gone"}));
  else
    waiting.promise.deliver(std::move(x.reply));
}

void io_worker::answer(io_worker_state::answered_fill& x) {
  auto node = requests_.extract(x.request);
  if (node.empty())
    return;
  auto& waiting = node.mapped();
  samples_.add(request_kind::write, x.reply.results.size(), now() - waiting.started);
  waiting.promise.deliver(std::move(x.reply));
}

// Such a page must not be found any more. Whoever scribbled on it is a client of this node.
void io_worker::tell_of_damage() {
  const auto damaged = state_.take_damaged();
  if (damaged.empty() || shards_.empty())
    return;
  std::vector<page_ref> pages;
  pages.reserve(damaged.size());
  for (const auto& [page, why] : damaged)
    pages.push_back(page);
  for (const auto& part : transfer::split_by_shard(pages, static_cast<std::uint32_t>(shards_.size()))) {
    invalidate_request told{parts_->name.space, parts_->name.rank, {}, {}};
    for (const auto i : part.positions) {
      told.pages.items.push_back(pages[i]);
      told.reasons.items.push_back(static_cast<std::uint8_t>(damaged[i].second));
    }
    request(shards_[part.shard], caf::infinite, std::move(told))
        .then([](const finish_reply&) {}, [](const caf::error&) {});
  }
}

void io_worker::send_samples() {
  if (auto collected = samples_.take(); !collected.samples.empty() && parts_->metrics)
    send(parts_->metrics, std::move(collected));
}

void io_worker::check_slab() {
  if (!parts_->store || state_.damaged())
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
  if (parts_->target)
    parts_->target->clear();
  if (parts_->store)
    parts_->store->stop(); // what is in flight ends
  const auto gone = to_caf(error{errc::shutting_down, "the node is ending"});
  for (auto& [id, waiting] : requests_)
    waiting.promise.deliver(gone);
  for (auto& [id, promise] : fences_)
    promise.deliver(gone);
  for (auto& promise : drains_)
    promise.deliver(gone);
  for (auto& x : growers_)
    x.promise.deliver(gone);
  requests_.clear();
  fences_.clear();
  drains_.clear();
  growers_.clear();
  if (checker_)
    send_exit(checker_, caf::exit_reason::user_shutdown);
  checker_ = nullptr;
  shards_.clear();
  const auto memory = parts_->extents;
  parts_.reset(); // closes the slab and gives up its lock
  // Clients that are not at rest may still touch the memory, so nobody else gets it then: it goes back with the node.
  if (state_.frames().pinned() == 0)
    for (const auto& x : state_.frames().extents())
      memory->take_back(x.number);
}

} // namespace troupe
