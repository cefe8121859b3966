#include "actors/node/io_worker/io_worker.hpp"

#include "actors/node/io_worker/page_checker.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/shard_batches.hpp"
#include "base/log.hpp"
#include "messages/answer_codes.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// The interval of checks for a damaged slab, and of reports of latencies to the metrics; one fstat per second costs
/// nothing.
constexpr duration slab_look = std::chrono::seconds(1);

/// The delay with which a request that waits for memory notices its timeout.
constexpr duration wait_tick = std::chrono::milliseconds(50);

/// The delay with which newly provided memory is used.
constexpr duration extent_tick = std::chrono::milliseconds(2);

/// The most pages in one notice to a shard, which can serve other requests between two of them.
constexpr std::size_t reported_pages_max = 8192;

/// The interval of checks whether the extent that is being emptied has become empty.
constexpr duration emptying_tick = std::chrono::milliseconds(5);

/// The shortest interval between two checks whether a page may be scrubbed.
constexpr duration scrub_tick = std::chrono::milliseconds(1);

/// The pause between two steps of moving pages, in which other messages are handled.
constexpr duration emptying_pause = std::chrono::microseconds(10);

} // namespace

io_worker::io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts)
    : io_worker_actor::base(config), parts_(std::move(parts)), state_(parts_->options),
      memory_({parts_->name.ns, parts_->name.rank, parts_->numa_node, parts_->broker != nullptr}, state_,
              parts_->extents.get(), parts_->store.get()),
      growth_(parts_->options.sparse ? parts_->store->growth() : nullptr) {
  if (!growth_)
    return;
  state_.slab_found(parts_->store->occupied(), parts_->has_pages);
  state_.slab_granted(growth_->take_granted());
}

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
        page_checker_options{parts_->name.ns, parts_->name.rank, parts_->page_bytes, parts_->extents->memory()});
  schedule_tick();
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
        know_allocator(peers);
        begin_scrub();
        flush();
        return caf::unit;
      },
      [this](grow_atom, std::uint32_t wanted) -> caf::result<std::uint32_t> {
        memory_.grow(wanted, now());
        auto promise = growers_.emplace_back(make_response_promise());
        flush();
        return promise;
      },
      [this](owner_died_atom, owner_id owner) -> caf::result<void> {
        state_.owner_died(owner, now());
        flush();
        return caf::unit;
      },
      [this](owner_quiesced_atom, owner_id owner) -> caf::result<void> {
        state_.owner_quiesced(owner, now());
        flush();
        return caf::unit;
      },
      [this](const prefetch_request& x) -> caf::result<void> {
        state_.prefetch(x, now());
        flush();
        return caf::unit;
      },
      [this](const prefetch_end& x) -> caf::result<void> {
        state_.end_prefetch(x, now());
        flush();
        return caf::unit;
      },
      [this](drain_atom) -> caf::result<void> {
        state_.drain(now());
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
          completions.push_back({x.tag, errc_from_wire(x.status), x.system_errno});
        state_.complete(completions, now());
        flush();
      },
      [this](caf::tick_atom) {
        tick_.came(now());
        if (now() >= next_look_at_slab_) {
          next_look_at_slab_ = now() + slab_look;
          check_slab();
          report_scrub();
          send_samples();
          memory_.report(now());
        }
        state_.tick(now());
        state_.empty_some(now());
        flush();
      },
      [this](lend_atom, std::uint32_t number) {
        const bool taken = memory_.accept(number, now());
        flush();
        return taken;
      },
      [this](give_back_atom, bool must, duration patience) -> caf::result<std::uint32_t> {
        if (auto begun = state_.begin_emptying(must, patience, now()); !begun)
          return to_caf(begun.error());
        auto promise = make_response_promise();
        giving_ = promise;
        flush();
        return promise;
      },
  };
}

void io_worker::know_allocator(const registry_peers& peers) {
  if (!parts_->options.reports_frames() && !growth_)
    return;
  for (std::size_t i = 0; i < peers.allocators.size(); ++i)
    if (i < peers.namespaces.size() && peers.namespaces[i] == parts_->name.ns && i < peers.ranks.size() &&
        peers.ranks[i] == parts_->name.rank)
      allocator_ = peers.allocators[i];
}

void io_worker::schedule_tick() {
  auto pause = slab_look;
  if (state_.needs_ticks())
    pause = wait_tick;
  if (state_.waits_for_extent() || memory_.has_growers())
    pause = extent_tick;
  if (const auto next = state_.next_scrub())
    pause = std::min(pause, std::max<duration>(*next - now(), scrub_tick));
  if (state_.emptying())
    pause = std::min(pause, state_.may_empty_more() ? emptying_pause : emptying_tick);
  // A tick that was scheduled before may come later; then there are two, and the later one finds little to do.
  if (tick_.plan(now() + pause))
    delayed_send(this, pause, caf::tick_atom_v);
}

// Carries out the decisions of the state; called after each call of the state that may decide anything. Memory comes
// first, since requests may have waited only for that. Then come I/O requests, so that the kernel works during the
// rest. But the frame of a dropped page is not reused before the shards that list the page have been notified.
void io_worker::flush() {
  if (growth_ && growth_->granted() != state_.granted_slab_pages())
    state_.slab_granted(growth_->take_granted());
  request_extents();
  // Shards are notified of lost pages before their frames are reused.
  report_damage();
  report_dropped();
  report_writes();
  state_.scrub_some(now());
  if (auto requests = state_.take_requests(); !requests.empty())
    parts_->store->submit(requests);
  give_back();
  send_checks();
  check_scrubbed();
  ask_what_to_scrub();
  for (auto& x : state_.take_frames())
    answer(x);
  for (auto& x : state_.take_fills())
    answer(x);
  if (samples_.full())
    send_samples();
  for (const auto id : state_.take_fenced())
    fences_.extract(id).mapped().deliver(caf::unit);
  notify_allocator();
  send_reports();
  if (state_.draining() && state_.quiesced() && pending_reports_ == 0)
    for (auto& promise : std::exchange(drains_, {}))
      promise.deliver(caf::unit);
  schedule_tick();
}

void io_worker::request_extents() {
  memory_.request_extents(now());
  for (const auto frames : memory_.take_grown()) {
    growers_.front().deliver(frames);
    growers_.pop_front();
  }
  for (const auto& why : memory_.take_refusals())
    log::get("io")->warn("memory not usable for {}: {}", parts_->name.namespace_name, why);
}

void io_worker::give_back() {
  const auto ended = memory_.take_returned();
  if (!ended || !giving_)
    return;
  auto promise = *std::exchange(giving_, std::nullopt);
  if (*ended)
    promise.deliver(**ended);
  else
    promise.deliver(to_caf(ended->error()));
}

void io_worker::notify_allocator() {
  if (!allocator_)
    return;
  if (const auto room = state_.take_changed_room())
    request(allocator_, caf::infinite, grow_atom_v, *room).then([] {}, [](const caf::error&) {});
  const auto frames = memory_.take_changed_frames();
  if (frames && parts_->options.reports_frames())
    request(allocator_, caf::infinite, resize_atom_v, *frames).then([] {}, [](const caf::error&) {});
}

void io_worker::send_reports() {
  memory_.report_extents(now());
  for (const auto& x : memory_.take_reports())
    request(parts_->broker, caf::infinite, x).then([] {}, [](const caf::error&) {});
}

void io_worker::send_checks() {
  auto checks = state_.take_checks();
  if (checks.empty())
    return;
  check_order order;
  std::vector<std::uint64_t> numbers;
  for (const auto& x : checks) {
    order.items.items.push_back({x.page, x.offset, x.bytes});
    numbers.push_back(x.number);
  }
  const auto verdicts = [this, numbers](const auto& code_of) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      state_.checked(numbers[i], code_of(i), now());
    flush();
  };
  request(checker_, caf::infinite, std::move(order))
      .then([verdicts](const io_reply& reply) { verdicts([&](std::size_t i) { return code_at(reply.results, i); }); },
            [verdicts](const caf::error& e) { verdicts([&](std::size_t) { return from_caf(e).code; }); });
}

void io_worker::answer(io_worker_state::answered_frames& x) {
  auto node = requests_.extract(x.request);
  if (node.empty())
    return;
  auto& waiting = node.mapped();
  if (x.fetched)
    samples_.add(x.from_disk ? request_kind::read_disk : request_kind::read, x.pages, now() - waiting.started);
  if (x.refused != errc::ok)
    waiting.promise.deliver(to_caf(error{x.refused, "the client has disconnected"}));
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

// Unpublishes damaged pages at the shards. The corruption in memory was caused by a client of this node.
void io_worker::report_damage() {
  const auto damaged = state_.take_damaged();
  if (damaged.empty() || shards_.empty())
    return;
  std::vector<page_ref> pages;
  pages.reserve(damaged.size());
  for (const auto& x : damaged)
    pages.push_back(x.page);
  for (const auto& part : transfer::split_by_shard(pages, static_cast<std::uint32_t>(shards_.size())))
    for (std::size_t first = 0; first < part.positions.size(); first += reported_pages_max) {
      const auto last = std::min(part.positions.size(), first + reported_pages_max);
      invalidate_request notified{parts_->name.ns, parts_->name.rank, {}, {}, {}};
      for (const auto i : std::span(part.positions).subspan(first, last - first)) {
        notified.pages.items.push_back(pages[i]);
        notified.reasons.items.push_back(static_cast<std::uint8_t>(damaged[i].why));
        notified.tiers.items.push_back(static_cast<std::uint8_t>(damaged[i].tier));
      }
      request(shards_[part.shard], caf::infinite, std::move(notified))
          .then([](const finish_reply&) {}, [](const caf::error&) {});
    }
}

void io_worker::report_dropped() {
  const auto pages = state_.take_dropped();
  if (pages.empty() || shards_.empty())
    return;
  const auto heard = [this] {
    if (--pending_reports_ == 0 && state_.draining())
      flush();
  };
  for (auto& part : transfer::split_by_shard(pages, static_cast<std::uint32_t>(shards_.size())))
    for (std::size_t first = 0; first < part.items.size(); first += reported_pages_max) {
      const auto last = std::min(part.items.size(), first + reported_pages_max);
      dropped_pages_request notified{parts_->name.ns, parts_->name.rank, {}};
      notified.pages.items.assign(part.items.begin() + static_cast<std::ptrdiff_t>(first),
                                  part.items.begin() + static_cast<std::ptrdiff_t>(last));
      ++pending_reports_;
      request(shards_[part.shard], caf::infinite, std::move(notified))
          .then([heard](const result_codes&) { heard(); }, [heard](const caf::error&) { heard(); });
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
  const auto& [ns, namespace_name, rank] = parts_->name;
  if (parts_->condition)
    parts_->condition->slab_damaged(ns, rank,
                                    "the slab of namespace '" + namespace_name + "' rank " + std::to_string(rank) +
                                        " is damaged: " + sound.error().text +
                                        "; restart the node, which creates a missing slab file again, empty");
  log::get("io")->error(
      "slab damaged: {} ({}); nothing more is saved in namespace '{}' on any rank, reads are tried and verified. "
      "Restart the node, which creates a missing slab file again, empty.",
      parts_->store->traits().place, sound.error().text, namespace_name);
}

void io_worker::report_writes() {
  const auto code = state_.write_trouble();
  if (code == std::exchange(reported_write_trouble_, code))
    return;
  const auto& [ns, namespace_name, rank] = parts_->name;
  const auto of = "namespace '" + namespace_name + "' rank " + std::to_string(rank);
  if (code == errc::ok) {
    log::get("io")->info("writes to the slab of {} have not failed for a while", of);
    if (parts_->condition)
      parts_->condition->ends(trouble::writes_fail, ns, rank);
    return;
  }
  auto text =
      "writes to the slab of " + of + " fail (" + std::string(to_string(code)) + ": " + parts_->store->traits().place +
      "): saved pages stay in memory as long as there is room, and their writes are retried; make room on that disk, "
      "raise its quota, or check it for errors";
  log::get("io")->warn("{}", text);
  if (parts_->condition)
    parts_->condition->begins(trouble::writes_fail, ns, rank, std::move(text));
}

// The order matters: nothing is freed, unmapped or closed before the kernel has released it.
void io_worker::on_exit() {
  // From here on completions are not delivered: this actor takes no more messages, and a handle to it in the target
  // would keep both alive for ever.
  if (parts_->target)
    parts_->target->clear();
  if (parts_->store)
    parts_->store->stop(); // ends transfers in progress
  const auto gone = to_caf(error{errc::shutting_down, "the node is ending"});
  for (auto& [id, waiting] : requests_)
    waiting.promise.deliver(gone);
  for (auto& [id, promise] : fences_)
    promise.deliver(gone);
  for (auto& promise : drains_)
    promise.deliver(gone);
  for (auto& promise : growers_)
    promise.deliver(gone);
  if (giving_)
    giving_->deliver(gone);
  requests_.clear();
  fences_.clear();
  drains_.clear();
  growers_.clear();
  giving_.reset();
  allocator_ = nullptr;
  growth_.reset();
  if (checker_)
    send_exit(checker_, caf::exit_reason::user_shutdown);
  if (scrub_checker_)
    send_exit(scrub_checker_, caf::exit_reason::user_shutdown);
  checker_ = scrub_checker_ = nullptr;
  shards_.clear();
  const auto memory = parts_->returns_memory ? parts_->extents : nullptr;
  const auto namespace_name = parts_->name.namespace_name;
  parts_.reset(); // closes the slab and releases its lock
  if (!memory)
    return;
  // Clients that are not quiesced may still access what they have pinned, so such an extent is not given to another
  // rank before the node ends.
  const auto left = state_.frames().memory_not_pinned();
  for (const auto& x : left)
    memory->take_back(x.number);
  if (const auto kept = state_.frames().extents() - left.size(); kept > 0)
    log::get("io")->warn(
        "{}: {} extents stay set aside until the node ends: disconnected clients may still write to them",
        namespace_name, kept);
}

} // namespace troupe
