#include "actors/node/registry/registry.hpp"

#include "actors/node/registry/registry_records.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/store_writer.hpp"
#include "base/log.hpp"

#include <chrono>
#include <type_traits>

namespace troupe {

namespace {

// None of these comes from the config: they are intervals and timeouts of this actor. Clients only notice how soon
// expired items end.

/// The longest delay between the deadline of a lease or reservation and its end, if no request ends it earlier.
constexpr auto registry_tick = std::chrono::milliseconds(200);

/// How long an allocator may wait for evicted slots before a reservation is answered with the slots there are. Longer
/// than busy shards take to evict, shorter than the timeout of clients.
constexpr auto take_time = std::chrono::seconds(2);

/// How many plans of others, one after the other, a request of a slot client waits for; after that, keys in progress
/// are busy. One is usual; several occur when several other requests name its keys at the same time.
constexpr int max_waits = 4;

/// Damaged pages that are logged one by one in each interval.
constexpr std::uint32_t damage_lines = 10;
constexpr auto damage_interval = std::chrono::seconds(10);

/// A write of the index that takes longer is reported as slow. A healthy disk syncs in far less; clients' timeouts are
/// longer.
constexpr auto slow_write = std::chrono::seconds(2);

std::chrono::sys_seconds today() {
  return std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
}

} // namespace

registry::registry(caf::actor_config& config, const registry_options& options,
                   const std::vector<namespace_spec>& namespaces, metrics_actor metrics,
                   std::shared_ptr<store::metadata_store> store)
    : registry_actor::base(config), state_(options), store_(std::move(store)), metrics_(std::move(metrics)),
      damage_(damage_lines, damage_interval) {
  if (store_)
    journal_.emplace();
  for (const auto& spec : namespaces)
    if (auto added = state_.add_namespace(spec, {.origin = namespace_origin::config}); !added)
      log::get("registry")->error("namespace not served: '{}' ({})", spec.name, to_string(added.error()));
}

template <class Call>
auto registry::look(request_kind kind, std::size_t items, Call call) {
  const auto started = now();
  auto answer = call();
  sample(kind, items, started);
  return to_caf(std::move(answer));
}

template <class Call>
auto registry::serve(request_kind kind, std::size_t items, Call call) {
  const auto started = now();
  auto answer = call(started);
  flush();
  sample(kind, items, started);
  return to_caf(std::move(answer));
}

template <class Call>
auto registry::serve_change(request_kind kind, std::size_t items, Call call) {
  using answer_type = decltype(call(now()));
  using returned = decltype(to_caf(std::declval<answer_type>()));
  // Checked before the call, so that a refused call has changed nothing.
  if (journal_ && journal_->waiting() >= state_.options().max_waiting_for_store)
    return returned(to_caf(answer_type(tl::unexpected<error>(
        error{errc::limit_exceeded, "the disk of the index is too slow; try again in a moment"}))));
  return returned(serve_any_change(kind, items, std::move(call)));
}

template <class Call>
auto registry::serve_any_change(request_kind kind, std::size_t items, Call call) {
  using answer_type = decltype(call(now()));
  using returned = decltype(to_caf(std::declval<answer_type>()));
  const auto started = now();
  auto answer = call(started);
  flush();
  sample(kind, items, started);
  if (!journal_ || journal_->durable())
    return to_caf(std::move(answer));
  auto promise = make_response_promise();
  journal_->when_durable([promise, answer = std::move(answer)](const error* failed) mutable {
    if (failed != nullptr)
      promise.deliver(to_caf(*failed));
    else if (!answer)
      promise.deliver(to_caf(answer.error()));
    else if constexpr (std::is_void_v<typename answer_type::value_type>)
      promise.deliver(caf::unit);
    else
      promise.deliver(std::move(*answer));
  });
  return returned(promise);
}

template <class Request, class Begin>
caf::result<reserve_reply> registry::write(const Request& wanted, Begin begin) {
  const auto started = now();
  auto plan = begin(started);
  flush();
  sample(request_kind::reserve, wanted.keys.size(), started);
  if (!plan)
    return to_caf(plan.error());
  if (plan->what == reserve_plan::kind::answered)
    return std::move(plan->reply);
  auto promise = make_response_promise();
  go_on(wanted, std::move(plan), promise, max_waits);
  return promise;
}

template <class Request>
void registry::go_on(const Request& wanted, result<reserve_plan> plan, caf::response_promise promise, int waits) {
  if (!plan)
    return promise.deliver(to_caf(plan.error()));
  if (plan->what == reserve_plan::kind::answered)
    return promise.deliver(std::move(plan->reply));
  if constexpr (std::is_same_v<Request, allocate_request>)
    if (plan->what == reserve_plan::kind::wait) {
      waiting_[plan->plan].push_back({wanted, std::move(promise), waits - 1});
      return;
    }
  plans_[plan->plan].push_back(std::move(promise));
  if (plan->what == reserve_plan::kind::needs_slots)
    take_slots(plan->plan, wanted.ns, wanted.rank, plan->slots_needed);
}

registry::behavior_type registry::make_behavior() {
  tick_later();
  flush(); // stores the namespaces of the constructor
  // Frequent requests come first: CAF tries one handler after the other, at about 120 instructions each.
  return {
      [this](const exists_request& x) {
        return look(request_kind::match, x.keys.size(), [&] { return state_.exists(x); });
      },
      [this](const protect_request& x) {
        return serve(request_kind::locate, x.keys.size(), [&](timestamp t) { return state_.protect(x, t); });
      },
      [this](const allocate_request& x) {
        return write(x, [&](timestamp t) { return state_.begin_allocate(x, t, true); });
      },
      [this](const confirm_request& x) {
        return serve_change(request_kind::commit, x.pages.size(), [&](timestamp t) { return state_.confirm(x, t); });
      },
      [this](const match_request& x) {
        return serve(request_kind::match, x.keys.size(), [&](timestamp t) { return state_.match(x, t); });
      },
      [this](const locate_request& x) {
        return serve(request_kind::locate, x.keys.size(), [&](timestamp t) { return state_.locate(x, t); });
      },
      [this](const release_request& x) {
        return serve(request_kind::release, 1, [&](timestamp t) { return state_.release(x, t); });
      },
      [this](const renew_request& x) {
        return serve(request_kind::release, 1, [&](timestamp t) { return state_.renew(x, t); });
      },
      [this](const reserve_request& x) { return write(x, [&](timestamp t) { return state_.begin_reserve(x, t); }); },
      [this](commit_atom, const finish_request& x) {
        return serve_change(request_kind::commit, x.pages.size(), [&](timestamp t) { return state_.commit(x, t); });
      },
      [this](abort_atom, const finish_request& x) {
        return serve_change(request_kind::abort, x.pages.size(), [&](timestamp t) { return state_.abort(x, t); });
      },
      [this](const invalidate_request& x) {
        return serve_change(request_kind::invalidate, x.pages.size(), [&](timestamp t) { return invalidate(x, t); });
      },
      [this](const dropped_pages_request& x) {
        // Not refused: these pages no longer exist. A key that stayed would be found, and could be neither loaded nor
        // saved again.
        return serve_any_change(request_kind::invalidate, x.pages.size(),
                                [&](timestamp t) { return state_.drop_pages(x, t); });
      },
      [this](const children_request& x) -> caf::result<void> {
        const auto counted = state_.count_children(x, now());
        flush();
        return to_caf(counted);
      },
      [this](const evict_request& x) {
        return serve_change(request_kind::evict, x.wanted, [&](timestamp t) { return state_.evict(x, t); });
      },
      [this](owner_died_atom, owner_id owner) -> caf::result<void> {
        if (state_.owner_died(owner, now()))
          tick_at_once();
        flush();
        return caf::unit;
      },
      [this](bind_atom, const registry_peers& peers) -> caf::result<void> { return bind(peers); },
      [this](stats_atom) { return state_.stats(); },
      [this](const reuse_request& x) { return to_caf(state_.report_reuse(x)); },
      [this](const learn_request& x) { return to_caf(state_.learn_reuse(x)); },
      [this](const reclaim_request& x) {
        return serve_change(request_kind::abort, x.slots.size(), [&](timestamp t) { return state_.reclaim(x, t); });
      },
      [this](const erase_request& x) {
        return serve_change(request_kind::invalidate, x.keys.size(), [&](timestamp t) { return state_.erase(x, t); });
      },
      [this](const clear_request& x) {
        return serve_change(request_kind::invalidate, 1, [&](timestamp t) { return state_.clear(x, t); });
      },
      [this](const add_namespace_request& x) {
        return serve_change(request_kind::invalidate, 1,
                            [&](timestamp) { return state_.add_namespace(x.spec, x.options); });
      },
      [this](const remove_namespace_request& x) -> caf::result<remove_namespace_reply> {
        if (state_.removal_waits(x.ns, now())) {
          auto promise = make_response_promise();
          removals_.push_back(promise);
          return promise;
        }
        // Not refused: a removal that has begun on one shard cannot be undone.
        return serve_any_change(request_kind::invalidate, 1, [&](timestamp t) { return remove_namespace(x, t); });
      },
      [this](const add_rank_request& x) {
        const auto add = [&](timestamp) { return add_rank(x); };
        // A retired rank must be able to register again, with new or old settings, also while the index is slow.
        return state_.is_retired(x.ns, x.rank) ? serve_any_change(request_kind::invalidate, 1, add)
                                               : serve_change(request_kind::invalidate, 1, add);
      },
      [this](const retire_rank_request& x) {
        return serve(request_kind::invalidate, 1, [&](timestamp t) { return state_.retire_rank(x.ns, x.rank, t); });
      },
      [this](const describe_request& x) { return to_caf(state_.describe(x)); },
      [this](const list_pages_request& x) { return to_caf(state_.list_pages(x)); },
      [this](const key_request& x) { return to_caf(state_.look_up(x, now())); },
      [this](const restore_request& x) {
        auto restored = state_.restore(x.pages.items);
        flush();
        return to_caf(std::move(restored));
      },
      [this](const drop_restored_request& x) {
        auto dropped = state_.drop_restored(x.ns, x.rank, x.slots.items);
        flush();
        return to_caf(std::move(dropped));
      },
      [this](restored_atom) {
        // The answer also waits until the store has dropped all pages that were not restored.
        return serve_change(request_kind::invalidate, 1, [&](timestamp) { return state_.restored(); });
      },
      [this](describe_pages_request& x) {
        const auto pages = x.pages.keys.size();
        return serve(request_kind::match, pages, [&](timestamp) { return state_.describe_pages(std::move(x)); });
      },
      [this](written_atom, std::uint8_t code, const std::string& text) { written(code, text); },
      [this](caf::tick_atom) {
        ticks_ -= ticks_ > 0 ? 1 : 0;
        const bool more = state_.tick(now());
        flush();
        if (journal_) {
          write_changes();
          watch_store();
        }
        if (const auto more_damage = damage_.take_suppressed(now()); more_damage > 0)
          log::get("registry")->warn("damaged pages: {} more since the last ones logged", more_damage);
        if (!samples_.empty())
          send_samples();
        if (more)
          tick_at_once();
        else if (ticks_ == 0)
          tick_later();
      },
  };
}

void registry::tick_at_once() {
  ++ticks_;
  send(this, caf::tick_atom_v);
}

void registry::tick_later() {
  ++ticks_;
  delayed_send(this, registry_tick, caf::tick_atom_v);
}

caf::result<void> registry::bind(const registry_peers& peers) {
  if (peers.namespaces.size() != peers.allocators.size() || peers.ranks.size() != peers.allocators.size())
    return to_caf(error{errc::invalid_argument, "each allocator needs one namespace and one rank"});
  if (!peers.workers.empty() && peers.workers.size() != peers.allocators.size())
    return to_caf(error{errc::invalid_argument, "the number of io workers must equal that of allocators, or be 0"});
  // A second list would replace allocators whose slots have pages.
  if (std::exchange(bound_, true))
    return to_caf(error{errc::exists, "the registry is already bound to its peers"});
  shards_ = peers.shards;
  for (std::size_t i = 0; i < peers.allocators.size(); ++i)
    allocators_.add(peers.namespaces[i], peers.ranks[i], peers.allocators[i]);
  for (std::size_t i = 0; i < peers.workers.size(); ++i)
    if (peers.workers[i])
      workers_.add(peers.namespaces[i], peers.ranks[i], peers.workers[i]);
  return caf::unit;
}

void registry::take_slots(plan_id plan, const namespace_id& ns, rank_number rank, std::uint32_t count) {
  const auto* slots = allocators_.find(ns, rank);
  // A retired allocator gets its slots back and grants none, because another one may replace it.
  if (slots == nullptr || state_.is_retired(ns, rank)) {
    granted(plan, {});
    return;
  }
  // The store may still have pages of an earlier registration in these slots. Until the record of this one is durable,
  // a crash would bring them back, and a writer must not have written over them by then.
  if (unrecorded_.contains({ns, rank})) {
    journal_->when_durable([this, plan, ns, rank, count](const error* failed) {
      if (failed == nullptr)
        take_slots(plan, ns, rank, count);
    });
    return;
  }
  // The allocator answers within `take_time` or a little more. There is no shorter timeout: slots in an answer that
  // arrives after it would be lost.
  request(*slots, caf::infinite, take_atom_v, count, duration(take_time))
      .then(
          [this, plan, ns, rank, from = *slots](const take_reply& reply) {
            if (serves(from, ns, rank))
              return granted(plan, reply.slots.items);
            // The rank was registered again meanwhile; its new allocator does not know these slots.
            granted(plan, {});
            caf::anon_send(from, abort_atom_v, slot_batch{reply.slots});
          },
          [this, plan](const caf::error& e) {
            log::get("registry")->warn("reservation gets no slots: its allocator failed ({})", to_string(from_caf(e)));
            granted(plan, {});
          });
}

bool registry::serves(const allocator_actor& slots, const namespace_id& ns, rank_number rank) const {
  const auto* known = allocators_.find(ns, rank);
  return known != nullptr && *known == slots;
}

void registry::granted(plan_id plan, const std::vector<slot_ref>& slots) {
  const auto reply = state_.finish_reserve(plan, slots, now());
  // Late or surplus slots go back before any answer is sent, because the answer may cause further requests.
  flush();
  if (auto asked = plans_.extract(plan); !asked.empty())
    for (auto& promise : asked.mapped()) {
      if (reply)
        promise.deliver(*reply);
      else
        promise.deliver(to_caf(reply.error()));
    }
  for (auto& promise : std::exchange(removals_, {}))
    promise.deliver(remove_namespace_reply{true});
  auto waited = waiting_.extract(plan);
  if (waited.empty())
    return;
  // Extracted before the loop: these requests may now wait for another plan, even one with the same number.
  for (auto& x : waited.mapped()) {
    auto next = state_.begin_allocate(x.wanted, now(), x.waits > 0);
    flush();
    go_on(x.wanted, std::move(next), std::move(x.promise), x.waits);
  }
}

result<void> registry::add_rank(const add_rank_request& x) {
  const bool anew = x.allocator && state_.is_retired(x.ns, x.rank);
  if (auto other = allocators_.check(x.ns, x.rank, x.allocator); x.allocator && !anew && !other)
    return other;
  auto added = state_.add_rank(x.ns, x.rank, x.slots, x.incarnation);
  if (added && anew) {
    // The old allocator receives its slots while it is still known.
    flush();
    allocators_.remove(x.ns, x.rank);
    workers_.remove(x.ns, x.rank);
  }
  if (added && x.allocator)
    allocators_.add(x.ns, x.rank, x.allocator);
  if (added && x.worker)
    workers_.add(x.ns, x.rank, x.worker);
  if (added)
    await_record(x.ns, x.rank);
  return added;
}

void registry::await_record(const namespace_id& ns, rank_number rank) {
  if (!journal_)
    return;
  flush();
  if (journal_->durable())
    return;
  ++unrecorded_[{ns, rank}];
  journal_->when_durable([this, name = std::pair(ns, rank)](const error* failed) {
    if (failed != nullptr)
      return;
    if (const auto found = unrecorded_.find(name); --found->second == 0)
      unrecorded_.erase(found);
  });
}

result<remove_namespace_reply> registry::remove_namespace(const remove_namespace_request& x, timestamp t) {
  auto removed = state_.remove_namespace(x, t);
  if (removed && !removed->more) {
    // Allocators receive their slots while they are still known.
    flush();
    // An allocator that is still referenced keeps its share of memory.
    allocators_.remove(x.ns);
    workers_.remove(x.ns);
  }
  return removed;
}

result<finish_reply> registry::invalidate(const invalidate_request& x, timestamp t) {
  auto ended = state_.invalidate(x, t);
  if (!ended)
    return ended;
  for (std::size_t i = 0; i < ended->results.size(); ++i) {
    if (ended->results[i] != static_cast<std::uint8_t>(errc::ok) || !damage_.tell(t))
      continue;
    const auto& page = x.pages[i];
    const auto reason = i < x.reasons.size() && x.reasons[i] < errc_count ? to_string(static_cast<errc>(x.reasons[i]))
                                                                          : std::string_view("no reason given");
    log::get("registry")
        ->warn(
            "namespace '{}' rank {} slot {}: the page of key {} is damaged ({}); it is not served any more and can be "
            "saved again",
            state_.namespace_name(x.ns), x.rank, page.where.slot, to_string(page.key), reason);
  }
  return ended;
}

void registry::flush() {
  auto out = state_.take_outbox();
  // Children come before slots: an allocator that gets a slot back may ask the other shards to evict, and they must
  // know by then which of their keys have no children any more.
  for (auto& children : out.children)
    if (children.shard < shards_.size())
      request(shards_[children.shard], caf::infinite, std::move(children.request))
          .then([] {},
                [](const caf::error& e) {
                  log::get("registry")
                      ->error("another shard refused changes of child counts: {}", to_string(from_caf(e)));
                });
  for (auto& x : out.workers)
    notify_worker(x);
  if (!out.events.empty())
    state_.options().events->push(std::move(out.events));
  if (!journal_) {
    for (const auto& batch : out.slots)
      if (const auto* to = allocators_.find(batch.ns, batch.rank))
        notify_allocator(*to, batch);
    return;
  }
  if (!out.changes.empty()) {
    const auto at = today();
    for (const auto& change : out.changes)
      troupe::write(journal_->pending(), change, at);
    write_changes();
  }
  for (auto& batch : out.slots)
    // Uses the rank's current allocator: later the rank may be retired.
    if (const auto* to = allocators_.find(batch.ns, batch.rank))
      journal_->when_durable([this, to = *to, batch = std::move(batch)](const error* failed) {
        if (failed == nullptr)
          notify_allocator(to, batch);
      });
}

// A prefetch needs no answer. The end of one is a request, because it may wait behind others and its completion must be
// observable.
void registry::notify_worker(worker_notice& x) {
  const auto* to = workers_.find(x.ns, x.rank);
  if (to == nullptr)
    return;
  if (auto* found = std::get_if<prefetch_request>(&x.what))
    send(*to, std::move(*found));
  else
    request(*to, caf::infinite, std::get<prefetch_end>(x.what)).then([] {}, [](const caf::error&) {});
}

void registry::written(std::uint8_t code, const std::string& text) {
  if (!journal_)
    return;
  if (const auto taken = take_written(*journal_, code, text); !taken)
    return store_failed(taken.error());
  write_changes();
}

void registry::write_changes() {
  // A batch that is refused is passed on again by the next tick.
  const auto next = write_next(*journal_, *store_, caf::actor_cast<registry_actor>(this));
  if (!next)
    return store_failed(next.error());
  if (*next == batch_state::taken)
    write_began_ = now();
}

void registry::watch_store() {
  const auto& condition = state_.options().condition;
  if (!condition)
    return;
  const auto shard = state_.options().shard;
  const auto no_room = store_->stats().no_room;
  // All shards share one store; shard 0 reports its state.
  if (shard == 0 && no_room)
    condition->begins(trouble::index_full, shard,
                      no_room->text + "; saves and erases wait until there is room, stored pages can be loaded");
  else if (shard == 0)
    condition->ends(trouble::index_full, shard);
  if (no_room || !journal_->writing() || now() - write_began_ < slow_write) {
    if (condition->ends(trouble::index_slow, shard))
      log::get("registry")->info("disk of the index recovered: shard {}", shard);
    return;
  }
  auto text = "the disk of the index is slow: a write of shard " + std::to_string(shard) + " has taken " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now() - write_began_).count()) +
              " s so far; answers to saves wait for it";
  if (condition->begins(trouble::index_slow, shard, text))
    log::get("registry")->warn("{}", text);
}

void registry::store_failed(const error& why) {
  if (const auto& condition = state_.options().condition)
    condition->index_failed("the index is not durable any more: " + why.text);
  fail_with_store(*this, *journal_, "index", why);
}

void registry::notify_allocator(const allocator_actor& to, const slots_to_allocator& batch) {
  const auto check = [this, &batch, id = to.id()](const char* verb) {
    return std::pair(
        [verb](const slot_results& reply) {
          for (const auto code : reply.results)
            if (code != 0)
              log::get("registry")->error("allocator refused to {} a slot: {}", verb, to_string(errc_from_wire(code)));
        },
        [this, verb, id, ns = batch.ns, rank = batch.rank](const caf::error& e) {
          // An allocator that was replaced has ended together with its slots.
          if (const auto* known = allocators_.find(ns, rank); known != nullptr && known->id() == id)
            log::get("registry")->error("allocator failed to {} slots: {}", verb, to_string(from_caf(e)));
        });
  };
  if (!batch.publish.slots.empty()) {
    const auto [ok, bad] = check("publish");
    request(to, caf::infinite, publish_page_atom_v, batch.publish).then(ok, bad);
  }
  for (const auto* part : {&batch.abort, &batch.unused})
    if (!part->slots.empty()) {
      const auto [ok, bad] = check("abort");
      request(to, caf::infinite, abort_atom_v, *part).then(ok, bad);
    }
  for (const auto* part : {&batch.release, &batch.suspect})
    if (!part->slots.empty()) {
      const auto [ok, bad] = check("release");
      request(to, caf::infinite, release_atom_v, *part).then(ok, bad);
    }
}

void registry::sample(request_kind kind, std::size_t items, timestamp started) {
  samples_.add(kind, items, now() - started);
  if (samples_.full())
    send_samples();
}

void registry::send_samples() {
  if (metrics_)
    send(metrics_, samples_.take());
}

void registry::on_exit() {
  const auto gone = to_caf(error{errc::shutting_down, "the registry is shutting down"});
  for (auto& [plan, waiting] : plans_)
    for (auto& promise : waiting)
      promise.deliver(gone);
  plans_.clear();
  for (auto& [plan, waiting] : waiting_)
    for (auto& x : waiting)
      x.promise.deliver(gone);
  waiting_.clear();
  for (auto& promise : std::exchange(removals_, {}))
    promise.deliver(gone);
  if (journal_)
    journal_->fail({errc::shutting_down, "the registry is shutting down"});
  shards_.clear();
  allocators_.clear();
  workers_.clear();
  metrics_ = nullptr;
  store_ = nullptr; // the store may be closed once this actor has ended
}

} // namespace troupe
