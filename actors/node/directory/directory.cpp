#include "actors/node/directory/directory.hpp"

#include "actors/node/directory/answer_bounds.hpp"
#include "actors/support/store_writer.hpp"
#include "base/incarnation.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// The precision of deadlines.
constexpr auto shortest_tick = std::chrono::milliseconds(2);

/// The retry interval when the store or a connection is full.
constexpr auto retry_tick = std::chrono::milliseconds(50);

/// Limit on changes that wait for the store while it writes earlier ones: payloads replaced or withdrawn meanwhile
/// occupy memory here only. The store takes a batch of this size in addition to those of others.
constexpr std::size_t pending_bytes_max = std::size_t{32} << 20U;

std::size_t payload_bytes(const handshake_publish_request& x) {
  return x.payload.size();
}

template <class Request>
std::size_t payload_bytes(const Request&) {
  return 0;
}

handshake::directory_options with_store(handshake::directory_options x, bool has_store) {
  x.hold_back = has_store;
  return x;
}

} // namespace

directory::directory(caf::actor_config& config, const handshake::directory_options& options,
                     std::shared_ptr<store::metadata_store> store, const restored_handshakes& restored,
                     std::shared_ptr<outgoing_budget> outgoing)
    : directory_actor::base(config), options_(with_store(options, store != nullptr)), state_(options_),
      store_(std::move(store)), outgoing_(std::move(outgoing)) {
  if (store_)
    journal_.emplace();
  restore(restored);
  set_down_handler([this](caf::down_msg& down) {
    asker_is_gone(down.source);
    const auto gone = std::ranges::find_if(watchers_, [&](const auto& x) { return tells_of(down, x.second); });
    if (gone != watchers_.end())
      unwatch(gone->first);
  });
}

void directory::restore(const restored_handshakes& from) {
  const auto at = clocks();
  if (!from.believed) {
    if (journal_)
      for (const auto& x : from.engines)
        write(journal_->pending(), handshake::engine_erased{x.engine}, at);
    return;
  }
  for (const auto& x : from.engines)
    state_.restore(read(x, at), at.now);
  for (const auto& x : from.ranks)
    state_.restore(read(x), at.now);
  if (const auto known = state_.stats(); known.engines > 0)
    log::get("directory")->info("handshakes restored: {} engines, {} ranks", known.engines, known.ranks);
}

directory::behavior_type directory::make_behavior() {
  flush();
  return {
      [this](const handshake_publish_request& x) { return change(x, &handshake::directory_state::publish); },
      [this](const handshake_heartbeat_request& x) { return change(x, &handshake::directory_state::heartbeat); },
      [this](const handshake_withdraw_request& x) { return change(x, &handshake::directory_state::withdraw); },
      [this](const handshake_fetch_request& x) { return fetch(x); },
      [this](const handshake_list_request& x) {
        auto out = state_.list(x, now());
        flush();
        return out;
      },
      [this](watch_atom, const std::string& engine, const handshake_watcher_actor& who) { return watch(engine, who); },
      [this](const handshake_seen_request& x) -> caf::result<void> {
        const auto is_known = state_.seen(x.watch);
        flush();
        if (!is_known)
          return to_caf(error{errc::not_found, "this watch has ended: start another one"});
        return caf::unit;
      },
      [this](caf::leave_atom, std::uint64_t who) -> caf::result<void> {
        unwatch(who);
        return caf::unit;
      },
      [this](stats_atom) {
        auto out = state_.stats();
        out.refused_disk += refused_changes_;
        out.refused_answers = outgoing_ ? outgoing_->refused() : 0;
        return out;
      },
      [this](drain_atom) -> caf::result<void> {
        state_.stop_waiting({errc::shutting_down, "the directory is shutting down"});
        flush();
        return caf::unit;
      },
      [this](caf::tick_atom) {
        tick_.came(now());
        state_.advance(now());
        flush();
      },
      [this](written_atom, std::uint8_t code, const std::string& text) {
        if (const auto taken = take_written(*journal_, code, text); !taken)
          return fail_with_store(*this, *journal_, "handshakes", taken.error());
        flush();
      },
  };
}

bool directory::may_wait_for_store(std::size_t bytes) const {
  if (waiting_for_store_ >= options_.changes_waiting_max)
    return false;
  const auto pending = journal_ ? journal_->pending().bytes() : 0;
  return pending == 0 || pending + bytes <= pending_bytes_max;
}

template <class Request>
caf::result<handshake_reply>
directory::change(const Request& x, handshake_reply (handshake::directory_state::*how)(const Request&, timestamp)) {
  if (!may_wait_for_store(payload_bytes(x))) {
    ++refused_changes_;
    handshake_reply refusal;
    refusal.code = static_cast<std::uint8_t>(errc::limit_exceeded);
    refusal.text = "the disk of the index is too slow; try again in a moment";
    return refusal;
  }
  auto answer = (state_.*how)(x, now());
  flush();
  // A refusal names a later start, which must be durable before it is reported too.
  if (!journal_)
    return answer;
  auto promise = make_response_promise();
  ++waiting_for_store_;
  journal_->when_durable([this, promise, answer = std::move(answer), asked_at = now()](const error* failed) mutable {
    --waiting_for_store_;
    if (failed != nullptr)
      return promise.deliver(to_caf(*failed));
    // Time has passed since the entry was made.
    answer.expires_in = std::max(answer.expires_in - (now() - asked_at), duration::zero());
    promise.deliver(std::move(answer));
  });
  return promise;
}

caf::result<handshake_fetch_reply> directory::fetch(const handshake_fetch_request& x) {
  const auto who = ++last_;
  auto answer = state_.fetch(x, who, now());
  if (answer) {
    flush();
    return std::move(*answer);
  }
  const auto asker = current_sender();
  if (!asker) {
    state_.cancel(who);
    return handshake_fetch_reply{};
  }
  auto promise = make_response_promise();
  waiting_.emplace(who, waiting_one{promise, caf::actor_cast<caf::actor_addr>(asker)});
  follow(asker, who);
  flush();
  return promise;
}

void directory::follow(const caf::strong_actor_ptr& asker, number who) {
  auto& waits_for = askers_[caf::actor_cast<caf::actor_addr>(asker)];
  if (waits_for.empty())
    monitor(asker);
  waits_for.insert(who);
}

void directory::unfollow(number who) {
  const auto asker = waiting_.at(who).asker;
  const auto found = askers_.find(asker);
  found->second.erase(who);
  if (!found->second.empty())
    return;
  askers_.erase(found);
  // An actor that also watches must stay monitored.
  const auto* mine = caf::actor_cast<caf::actor_control_block*>(asker);
  const auto watches = [&](const auto& x) { return caf::actor_cast<caf::actor_control_block*>(x.second) == mine; };
  if (std::ranges::none_of(watchers_, watches))
    demonitor(asker);
}

void directory::asker_is_gone(const caf::actor_addr& asker) {
  const auto found = askers_.extract(asker);
  if (found.empty())
    return;
  for (const auto who : found.mapped()) {
    state_.cancel(who);
    waiting_.erase(who);
  }
}

caf::result<std::uint64_t> directory::watch(const std::string& engine, const handshake_watcher_actor& who) {
  if (!who)
    return to_caf(error{errc::invalid_argument, "a watch needs an actor to notify"});
  // A repeated request checks whether the watch still exists.
  const auto same = std::ranges::find_if(
      watchers_, [&](const auto& x) { return x.second == who && state_.is_watching(x.first, engine); });
  if (same != watchers_.end())
    return same->first;
  // A random number, so that a client cannot name the watch of another one.
  const auto watch = fresh_incarnation();
  const auto bytes_max =
      outgoing_ && is_elsewhere(who) ? outgoing_->message_bytes_max() / 2 : handshake::directory_state::no_bound;
  if (auto begun = state_.watch(engine, watch, now(), bytes_max); !begun)
    return to_caf(begun.error());
  watchers_.emplace(watch, who);
  monitor(who);
  flush();
  return watch;
}

void directory::unwatch(number who) {
  state_.unwatch(who);
  if (const auto found = watchers_.find(who); found != watchers_.end()) {
    const auto address = found->second.address();
    watchers_.erase(found);
    // A dropped watcher may already have requested another watch.
    const auto watches = [&](const auto& x) { return x.second.address() == address; };
    if (!askers_.contains(address) && std::ranges::none_of(watchers_, watches))
      demonitor(address);
  }
}

void directory::flush() {
  const auto changes = state_.take_changes();
  if (journal_) {
    const auto at = clocks();
    for (const auto& x : changes)
      write(journal_->pending(), x, at);
    if (!changes.empty())
      journal_->when_durable([this, last = state_.last_change()](const error* failed) {
        if (failed == nullptr)
          state_.durable(last, now());
      });
    write_changes();
  }
  while (auto next = state_.next_answer())
    if (waiting_.contains(next->first)) {
      unfollow(next->first);
      waiting_.extract(next->first).mapped().promise.deliver(std::move(next->second));
    }
  notify_watchers();
  plan_tick();
}

void directory::notify_watchers() {
  if (no_room_until_ && *no_room_until_ <= now())
    no_room_until_.reset();
  auto news = state_.take_updates(now(), [this](number who) {
    const auto found = watchers_.find(who);
    return !no_room_until_ || found == watchers_.end() || !is_elsewhere(found->second);
  });
  for (const auto who : news.dropped) {
    log::get("directory")->warn("watcher dropped: it reads updates too slowly");
    unwatch(who);
  }
  // Sent without a sender: this actor's handle must not leave the process.
  for (auto& [who, update] : news.notified) {
    const auto found = watchers_.find(who);
    if (found == watchers_.end())
      continue;
    if (outgoing_ && is_elsewhere(found->second)) {
      update.claim = outgoing_->take(message_bytes(update));
      if (!update.claim) {
        wait_for_room(who, update);
        continue;
      }
    }
    caf::anon_send(found->second, std::move(update));
  }
}

void directory::wait_for_room(number who, const handshake_update& update) {
  state_.put_back(who, update);
  if (no_room_until_)
    return;
  no_room_until_ = later(now(), retry_tick);
}

void directory::write_changes() {
  if (!store_ || (store_full_until_ && now() < *store_full_until_))
    return;
  store_full_until_.reset();
  const auto next = write_next(*journal_, *store_, caf::actor_cast<directory_actor>(this));
  if (!next)
    return fail_with_store(*this, *journal_, "handshakes", next.error());
  if (*next == batch_state::refused)
    store_full_until_ = later(now(), retry_tick);
}

void directory::plan_tick() {
  auto next = state_.next_deadline().value_or(timestamp::max());
  for (const auto& pause : {no_room_until_, store_full_until_})
    next = std::min(next, pause.value_or(timestamp::max()));
  next = std::max(next, later(now(), shortest_tick));
  if (tick_.plan(next))
    delayed_send(this, next - now(), caf::tick_atom_v);
}

void directory::on_exit() {
  const error gone{errc::shutting_down, "the directory is shutting down"};
  askers_.clear();
  for (auto& [who, x] : std::exchange(waiting_, {}))
    x.promise.deliver(to_caf(gone));
  if (journal_)
    journal_->fail(gone);
  watchers_.clear();
  store_ = nullptr;
}

} // namespace troupe
