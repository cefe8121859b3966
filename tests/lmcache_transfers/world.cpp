#include "tests/lmcache_transfers/world.hpp"

#include <algorithm>
#include <span>

namespace troupe::lmcache_transfers {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t workers_max = 3;
constexpr transfer_rules::terms worker_terms{2, 2, 8, minutes(1)};

transfer::coordinator_options options_of(bool by_node, bool stores) {
  transfer::coordinator_options out;
  out.page_bytes = node_model::frame_bytes;
  out.slot_bytes = node_model::frame_bytes;
  out.batch_pages = 2;
  out.tasks_max = 4096;
  out.one_order = !by_node;
  out.cancels_gathered = true;
  out.all_or_none = !stores;
  out.frame_patience = stores ? transfer_rules::place_patience : seconds(20);
  return out;
}

transfer::node_binding binding_of(change_number of, bool stores) {
  transfer::node_binding out;
  out.owner = of;
  out.ticket_stream = stores ? 1 : 0;
  out.shard_count = 1;
  out.batch_keys_max = worker_terms.keys_max;
  out.batch_pages_max = worker_terms.pages_max;
  out.reservation_max = worker_terms.reservation;
  out.lease_max = minutes(1);
  out.window_pages = worker_terms.window_pages;
  return out;
}

} // namespace

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), steps_(steps), defect_(built_in) {}

void world::broken(std::string_view property, std::string what) {
  if (!out_.property.empty())
    return;
  out_.property = property;
  out_.failure = std::move(what);
}

// -- requests ---------------------------------------------------------------------------------------------------------

void world::begin(const request_ptr& x) {
  open_.add(x, now_);
  const auto of = stopped_ ? 0 : rules_.current({x->client, *x->instance});
  if (of == 0) {
    if (x->what == operation::commit_store || x->what == operation::commit_retrieve)
      end_job_of_lost(x);
    answer(x, false);
    return;
  }
  switch (x->what) {
  case operation::store:
  case operation::retrieve:
    transfers_.copy(x, of, worker_terms, {{0, x->chunks.end}}, now_);
    break;
  case operation::prepare_store:
  case operation::prepare_retrieve:
    prepare_frames(x, of);
    break;
  default:
    if (x->what == operation::commit_retrieve) {
      sessions_.retrieved(x->chunks.request, 0, x->chunks.begin, x->chunks.end);
      end_unneeded();
    }
    transfers_.commit(x, of, now_);
  }
  flush();
}

void world::prepare_frames(const request_ptr& x, change_number of) {
  auto groups = workers_.at(made_.at(of).of).groups;
  const std::vector<transfer_rules::terms> how(groups.size(), worker_terms);
  const auto& chunks = x->chunks;
  if (x->what == operation::prepare_retrieve) {
    for (auto& group : groups)
      if (has(defect::load_short_windows) && group.window_chunks > 1)
        --group.window_chunks;
    return transfers_.prepare(x, of, how, lmcache::chunks_to_load(groups, chunks.end - chunks.begin), now_);
  }
  auto computed = sessions_.computed_from(chunks.request, chunks.begin);
  if (has(defect::store_missing_blocks))
    computed = 0;
  transfers_.prepare(x, of, how, lmcache::chunks_to_store(groups, {chunks.begin, chunks.end, x->skipped, computed}),
                     now_);
}

bool world::answer(const request_ptr& x, bool done) {
  if (!open_.close(x))
    return false;
  waited_for_.answered(x.get());
  auto& sent = asked_.at(x.get());
  if (std::exchange(sent.answered, true))
    broken("answers", "a request is answered twice");
  count(std::string(lmcache::protocol::to_string(x->what)) + (done ? ": yes" : ": no"));
  // Retrieves are answered when nothing is written any more.
  if (x->what != operation::retrieve && now_ > later(sent.due, seconds(3)))
    broken("answers", std::string(lmcache::protocol::to_string(x->what)) + " is answered too late");
  const bool is_prepared = x->what == operation::prepare_store || x->what == operation::prepare_retrieve;
  if (!done || !is_prepared)
    fire(x, done);
  auto& y = workers_.at(static_cast<worker_number>(*x->instance));
  const auto mine = y.busy.extract(x.get());
  if (mine.empty())
    return true;
  for (std::size_t i = 0; i < mine.mapped().size(); ++i) {
    auto& block = y.blocks[mine.mapped()[i]];
    if (done && x->what == operation::retrieve && block != meaning(0, x->chunks.keys[i]) && y.client == x->client &&
        rules_.current({x->client, *x->instance}) == y.last_change)
      broken("bytes", "a retrieve is done, and a block holds something else");
    block = ++last_junk_;
  }
  return true;
}

void world::send_away() {
  std::vector<change_number> there;
  for (const auto& [of, x] : made_)
    if (rules_.is_current(of) && !workers_.at(x.of).dead)
      there.push_back(of);
  if (there.empty())
    return;
  count("sent away");
  const auto of = random_.pick(there);
  rules_.sent_away(of, now_);
  flush();
  after(random_.skewed_time(seconds(1), minutes(1)), [this, of, life = workers_.at(made_.at(of).of).life] {
    if (auto* const x = alive(made_.at(of).of, life); x != nullptr && x->client == made_.at(of).client)
      enroll(*x);
  });
}

void world::end_job_of_lost(const request_ptr& x) {
  const auto known = lost_.find({x->client, *x->instance});
  if (known == lost_.end())
    return;
  known->second.jobs.erase(transfer_rules::name_of(*x));
  if (!known->second.jobs.empty())
    return;
  count("jobs of those sent away ended");
  for (auto& node : nodes_)
    node.rest(known->second.of);
  lost_.erase(known);
}

void world::stop() {
  count("stopped");
  stopped_ = true;
  rules_.stop(now_);
  for (const auto& x : open_.take_all()) {
    open_.add(x, now_);
    answer(x, false);
  }
  flush();
}

void world::tick() {
  for (const auto& x : open_.take_late(now_)) {
    count("late");
    open_.add(x, now_);
    answer(x, false);
    transfers_.late(x, now_);
  }
  if (has(defect::answer_while_writing))
    for (const auto& [number, x] : asked_)
      if (!x.answered && x.due <= now_)
        answer(x.what, false);
  rules_.tick(now_);
  sessions_.tick(now_);
  end_unneeded();
  for (auto& [of, x] : made_)
    if (!x.over) {
      for (auto& group : x.groups) {
        group.save.on_tick(now_);
        group.load.on_tick(now_);
      }
      pump(of);
    }
  flush();
}

// -- what the rules want ----------------------------------------------------------------------------------------------

void world::flush() {
  if (std::exchange(flushing_, true))
    return;
  for (;;) {
    const auto transfers = transfers_.take_outbox();
    for (const auto& effect : transfers)
      std::visit([this](const auto& x) { perform(x); }, effect);
    const auto effects = rules_.take_outbox();
    for (const auto& effect : effects)
      std::visit([this](const auto& x) { perform(x); }, effect);
    if (transfers.empty() && effects.empty())
      break;
  }
  flushing_ = false;
}

void world::perform(const server_rules::prepare& x) {
  after(random_.skewed_time(milliseconds(1), seconds(2)), [this, number = x.change] {
    const auto& of = workers_.at(changes_.at(number).first);
    auto& own = made_.emplace(number, made{of.number, of.client, of.by_node}).first->second;
    for (std::size_t group = 0; group < of.groups.size(); ++group) {
      own.groups.push_back({of.groups.size() == 1 ? 0 : group + 1, transfer::save_state(options_of(of.by_node, true)),
                            transfer::load_state(options_of(of.by_node, false))});
      own.groups.back().save.bind(binding_of(number, true));
      own.groups.back().load.bind(binding_of(number, false));
    }
    rules_.prepared(number, now_);
    flush();
  });
}

void world::perform(const server_rules::settle& x) {
  // From now on its engine gives all blocks to others.
  const auto& [who, client] = changes_.at(x.change);
  auto& of = workers_.at(who);
  if (of.last_change == x.change && of.client == client) {
    of.is_settled = true;
    of.busy.clear();
  }
}

void world::perform(const server_rules::end& x) {
  if (has(defect::answer_orders_at_the_end))
    for (const auto& [number, y] : std::map(orders_))
      if (y.of == x.change && !made_.at(y.of).by_node) {
        copy_reply reply;
        reply.results.items.assign(y.pages, static_cast<std::uint8_t>(errc::cancelled));
        answer_order(number, reply);
      }
  transfers_.ended(x.change, now_);
}

void world::perform(const server_rules::release& x) {
  const auto of = x.change;
  if (!has(defect::end_coordinators_last))
    end_coordinators(of);
  using end_reason = server_rules::end_reason;
  const bool may_touch = transfers_.may_touch(of);
  auto jobs = transfers_.forget(of);
  const auto& y = made_.at(of);
  const bool is_sent_away = x.why == end_reason::sent_away;
  const bool quiesced = y.by_node || x.why == end_reason::replaced ||
                        (is_sent_away && (!may_touch || has(defect::free_frames_of_those_sent_away))) ||
                        (!is_sent_away && has(defect::free_frames_of_the_disconnected));
  if (is_sent_away && !quiesced)
    lost_[{y.client, static_cast<lmcache::instance_id>(y.of)}] = {of, std::move(jobs)};
  if (has(defect::end_coordinators_last))
    return after(seconds(1), [this, of, quiesced] {
      end_coordinators(of);
      end_attachment(of, quiesced);
    });
  end_attachment(of, quiesced);
}

void world::end_coordinators(change_number of) {
  auto& x = made_.at(of);
  for (std::uint32_t group = 0; group < x.groups.size(); ++group) {
    auto& own = x.groups[group];
    own.save.unbind(errc::shutting_down);
    own.load.unbind(errc::shutting_down);
    for (auto& effect : own.save.take_outbox())
      if (const auto* ended = std::get_if<transfer::task_finished>(&effect))
        finished(of, group, true, *ended);
    for (auto& effect : own.load.take_outbox())
      if (const auto* ended = std::get_if<transfer::task_finished>(&effect))
        finished(of, group, false, *ended);
  }
  x.over = true;
}

void world::end_attachment(change_number of, bool quiesced) {
  count(quiesced ? "detached and quiesced" : "left in use");
  for (auto& node : nodes_) {
    node.leave(of);
    if (quiesced || workers_.at(made_.at(of).of).dead)
      node.rest(of);
  }
}

void world::perform(const transfer_rules::start& x) {
  auto& of = made_.at(x.of);
  if (of.over)
    return transfers_.part_failed(x.part, errc::cancelled, now_);
  transfer_task work;
  const auto keys = std::span(x.request->chunks.keys).subspan(x.request->chunks.begin);
  for (auto i = x.chunks.first; i < x.chunks.first + x.chunks.count; ++i) {
    work.keys.items.push_back(keys[i]);
    work.blocks.items.push_back(of.by_node ? x.request->blocks[i] : i);
  }
  work.chained = workers_.at(of.of).groups[x.chunks.group].window_chunks == 0;
  work.deadline = x.deadline;
  work.tag = x.part;
  work.ready_event = of.by_node ? 0 : x.part;
  after(milliseconds(1), [this, x, work] {
    auto& to = made_.at(x.of);
    if (to.over)
      return transfers_.part_failed(x.part, errc::unreachable, now_);
    auto& own = to.groups[x.chunks.group];
    const auto task = x.stores ? own.save.start(work, now_) : own.load.start(work, now_);
    if (!task)
      return transfers_.part_failed(x.part, task.error().code, now_);
    (x.stores ? own.saves : own.loads)[*task] = x.part;
    pump(x.of);
    flush();
  });
}

void world::perform(const transfer_rules::cancel& x) {
  count("cancelled");
  if (has(defect::forget_to_cancel))
    return;
  after(milliseconds(1), [this, x] {
    auto& to = made_.at(x.of);
    if (to.over)
      return;
    auto& own = to.groups[x.group];
    x.stores ? own.save.cancel(x.parts, now_) : own.load.cancel(x.parts, now_);
    pump(x.of);
    flush();
  });
}

void world::perform(const transfer_rules::check& x) {
  after(random_.skewed_time(milliseconds(1), seconds(rarely(10) ? 40 : 1)), [this, x] {
    std::vector<errc> codes;
    for (const auto& page : x.pages) {
      auto& node = node_of(x.of, page.group);
      auto& frame = node.at(page.offset);
      if (!node.is_pinned(x.of, page.offset))
        broken("frames", "a lane works in a frame that is not pinned");
      if (x.seal) {
        frame.page = page.page;
        frame.sum = frame.holds;
      }
      const bool sound = frame.page == page.page && frame.sum == frame.holds;
      codes.push_back(sound || has(defect::report_unverified) ? errc::ok : errc::corrupt);
    }
    transfers_.checked(x.job, codes, now_);
    flush();
  });
}

void world::perform(const transfer_rules::end_order& x) {
  if (has(defect::drop_the_end_of_orders))
    return;
  copy_reply reply;
  for (const auto code : x.codes)
    reply.results.items.push_back(static_cast<std::uint8_t>(code));
  answer_order(x.order, std::move(reply));
}

void world::perform(const transfer_rules::refuse& x) {
  answer(x.request, false);
}

void world::perform(const transfer_rules::prepared& x) {
  if (x.request->what == operation::prepare_retrieve)
    check_loaded(x);
  if (answer(x.request, true))
    notified(x);
}

void world::perform(const transfer_rules::done& x) {
  answer(x.request, true);
}

// -- the course of it -------------------------------------------------------------------------------------------------

void world::damage() {
  auto& node = nodes_[random_.below(nodes_.size())];
  if (node.index().empty())
    return;
  const auto at = static_cast<std::ptrdiff_t>(random_.below(node.index().size()));
  if (node.damage(std::next(node.index().begin(), at)->first))
    count("damaged");
}

void world::step() {
  if (is_calm_)
    return;
  auto* const x = pick();
  const auto alive = std::ranges::count_if(workers_, [](const auto& y) { return !y.second.dead; });
  const auto dice = random_.below(100);
  if (x == nullptr || (dice < 6 && alive < static_cast<std::ptrdiff_t>(workers_max)))
    return start();
  if (dice < 9)
    die(*x);
  else if (dice < 12)
    reconnect(*x);
  else if (dice < 17)
    enroll(*x);
  else if (dice < 19)
    unregister(*x);
  else if (dice < 22)
    damage();
  else if (dice < 24 && has(defect::unpin_after_a_time))
    nodes_[random_.below(nodes_.size())].drop_oldest_pin();
  else if (dice < 26)
    send_away();
  else if (dice < 36)
    evict();
  else
    transfer(*x);
}

void world::finish() {
  is_calm_ = true;
  const bool stops = random_.one_in(4);
  after(stops ? random_.time(seconds(1), minutes(15)) : minutes(15), [this, stops] {
    if (stops)
      return stop();
    for (auto& [number, x] : workers_)
      if (!x.dead)
        unregister(x);
  });
  after(minutes(25), [this] {
    for (auto& [number, x] : workers_)
      if (!x.dead)
        die(x);
  });
  after(minutes(30), [this] { check_in_the_end(); });
}

void world::check_in_the_end() {
  for (const auto& [number, x] : asked_)
    if (!x.answered)
      broken("answers", std::string(lmcache::protocol::to_string(x.what->what)) + " is not answered");
  if (transfers_.jobs() > 0)
    broken("left", "a store or retrieve is left");
  if (stopped_ && !rules_.drained())
    broken("left", "the server never ends");
  if (!orders_.empty())
    broken("left", "an order is not answered");
  for (const auto& [of, x] : made_) {
    if (!x.over)
      broken("left", "the coordinators of registration " + std::to_string(of) + " are left");
    for (const auto& node : nodes_)
      if (node.pins_of(of) > 0)
        broken("left", "frames of registration " + std::to_string(of) + " are left");
  }
  for (const auto& node : nodes_)
    for (const auto& [key, x] : node.index()) {
      if (x.reserved && x.until > now_)
        broken("left", "a reservation is left");
      if (node.is_held(key) && sessions_.sessions() == 0)
        broken("leases", "a lease is left");
    }
}

outcome world::run() {
  auto time = now_;
  // The actor's ticks have no fixed distance from the events.
  auto next_tick = later(now_, random_.time(milliseconds(0), milliseconds(999)));
  for (std::uint64_t i = 0; i < steps_; ++i) {
    const auto next = later(time, random_.skewed_time(milliseconds(1), seconds(8)));
    at(next, [this] { step(); });
    for (; next_tick < next; next_tick = later(next_tick, seconds(1)))
      at(next_tick, [this] { tick(); });
    time = next;
  }
  for (const auto end = later(time, minutes(30)); next_tick < end; next_tick = later(next_tick, seconds(1)))
    at(next_tick, [this] { tick(); });
  at(later(time, seconds(1)), [this] { finish(); });
  while (!agenda_.empty() && out_.property.empty()) {
    auto next = agenda_.extract(agenda_.begin());
    now_ = next.key().first;
    ++out_.events;
    const auto x = static_cast<std::uint64_t>(now_.time_since_epoch().count());
    out_.trace_hash = (out_.trace_hash ^ x) * 0x100000001b3ULL;
    next.mapped()();
  }
  return out_;
}

} // namespace troupe::lmcache_transfers
