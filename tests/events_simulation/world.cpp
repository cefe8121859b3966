#include "tests/events_simulation/world.hpp"

#include "actors/client/transfer/description_parts.hpp"

#include <algorithm>
#include <variant>

namespace troupe::events_simulation {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t shard_count = 2;
constexpr std::uint64_t keys_most = 40;
constexpr std::uint64_t slots_most = 1U << 16U;
constexpr duration heartbeat = 5s;
constexpr duration batch_time = 10ms;

} // namespace

world::world(std::uint64_t seed, std::uint64_t steps, defect built_in)
    : random_(seed), steps_(steps), defect_(built_in),
      feed_bytes_(random_.one_in(3) || defect_ == defect::forget_overflow ? 1200 : std::size_t{1} << 20U),
      details_max_(random_.one_in(4) ? 1500 : std::uint64_t{1} << 30U) {
  for (std::size_t i = 0; i < 3; ++i) {
    served_model x;
    x.spec.name = "space " + std::to_string(i);
    // Two of them are of one engine, with three KV cache groups, and share a stream.
    x.spec.model = i < 2 ? "a" : "b";
    if (i == 0)
      x.groups = {{1, "full_attention"}};
    if (i == 1)
      x.groups = {{0, "sliding_window", 128}, {2, "sliding_window", 128}};
    x.spec.world_size = i == 1 ? 2 : 1;
    x.id = x.spec.id();
    x.topic = "kv@node@" + x.spec.model;
    models_.push_back(std::move(x));
  }
  const auto listeners = random_.between(1, 4);
  for (std::uint64_t i = 0; i < listeners; ++i)
    listeners_.push_back({.state = {}, .room = random_.between(1, 6)});
  start_node();
}

void world::start_node() {
  feed_ = std::make_shared<events::feed>(feed_bytes_);
  residence_ = std::make_shared<page_residence>();
  shards_.clear();
  for (std::uint32_t i = 0; i < shard_count; ++i) {
    registry_options how;
    how.shard = i;
    how.shard_count = shard_count;
    how.events = feed_;
    how.residence = residence_;
    shards_.push_back(std::make_unique<registry_state>(how));
    for (const auto& x : models_)
      if (auto added = shards_.back()->add_namespace(x.spec); !added)
        broken("start", to_string(added.error()));
  }
  for (auto& x : models_) {
    x.resident.clear();
    x.next_slot.assign(x.spec.world_size, 0);
    for (rank_number rank = 0; rank < x.spec.world_size; ++rank)
      x.resident.push_back(residence_->add(x.id, rank, slots_most));
  }
  events::hub_options how;
  how.node = "node";
  how.form = random_.one_in(2) ? events::event_form::array : events::event_form::map;
  how.first_number = first_number_;
  how.details_max = details_max_;
  how.kept_batches = random_.between(1, 12);
  how.batch_pages = random_.between(1, 12);
  how.batch_time = batch_time;
  how.heartbeat = defect_ == defect::no_heartbeat ? duration(24h) : duration(heartbeat);
  how.replays_max = 8;
  how.counts = counts_;
  hub_ = std::make_unique<events::hub>(how);
  report();
}

void world::restart() {
  count("restarted");
  ledger_.clear();
  overflowed_ = false;
  if (defect_ != defect::same_numbers)
    first_number_ += 1U << 20U;
  start_node();
  // Requests for missed batches are lost with the node, and made again.
  for (auto& x : listeners_)
    x.state.disconnect();
  requests_.forget_all();
}

key_digest world::key_of(key_number n) const {
  return {n + 1, n * 7919 + 3};
}

std::uint64_t world::hash_of(std::size_t ns, key_number n) const {
  // An engine has the same hashes in all of its groups.
  return (models_[ns].spec.model == "a" ? 1'000'000 : 2'000'000) + n;
}

registry_state& world::shard_of_key(key_number n) {
  return *shards_[shard_of(key_of(n), shard_count)];
}

bool world::in_memory(std::size_t ns, key_number n) {
  const auto found = shard_of_key(n).look_up({models_[ns].id, key_of(n)}, now_);
  return found && std::ranges::all_of(found->pages, [&](const key_page& page) {
           return models_[ns].resident[page.rank]->contains(page.where.slot);
         });
}

void world::broken(std::string property, std::string text) {
  if (!result_.property.empty())
    return;
  result_.property = std::move(property);
  result_.failure = std::move(text);
}

// -- the node ---------------------------------------------------------------------------------------------------------

void world::save() {
  const auto ns = random_.below(models_.size());
  auto& x = models_[ns];
  const auto first = random_.below(keys_most);
  const auto last = std::min(keys_most, first + random_.between(1, 6));
  const bool whole = !random_.one_in(4);
  for (rank_number rank = 0; rank < x.spec.world_size; ++rank) {
    if (!whole && random_.one_in(2))
      continue;
    for (auto n = first; n < last; ++n) {
      auto& shard = shard_of_key(n);
      const ticket by{1, ++tickets_};
      const auto plan = shard.begin_reserve({x.id, rank, by, 10s, std::vector{key_of(n)}, {}}, now_);
      if (!plan || plan->what != reserve_plan::kind::needs_slots)
        continue;
      const slot_ref where{x.next_slot[rank]++ % static_cast<slot_number>(slots_most), 1};
      if (!shard.finish_reserve(plan->plan, std::vector{where}, now_))
        continue;
      if (!random_.one_in(3))
        x.resident[rank]->set(where.slot);
      static_cast<void>(shard.commit({x.id, rank, by, std::vector<page_ref>{{key_of(n), where}}}, now_));
      count("saved");
    }
  }
}

void world::describe(std::size_t ns, std::vector<key_number> keys) {
  page_descriptions all;
  all.block_tokens = 2;
  all.groups = models_[ns].groups;
  if (defect_ == defect::one_group && !all.groups.empty())
    all.groups.resize(1);
  for (const auto n : keys) {
    all.keys.items.push_back(key_of(n));
    all.hashes.items.push_back(hash_of(ns, n));
    all.parents.items.push_back(n == 0 ? 0 : hash_of(ns, n - 1));
    all.has_parent.items.push_back(n == 0 ? 0 : 1);
    all.tokens.items.insert(all.tokens.items.end(), 2, static_cast<std::uint32_t>(n));
  }
  for (auto& part : transfer::parts_by_shard(all, shard_count, 4)) {
    const auto reply = shards_[part.shard]->describe_pages({models_[ns].id, part.pages});
    if (!reply)
      return broken("describe", to_string(reply.error()));
    for (const auto n : keys)
      for (std::size_t i = 0; i < part.pages.keys.size(); ++i)
        if (part.pages.keys[i] == key_of(n) && reply->results[i] == 0) {
          ledger_.emplace(ns, n);
          count("described");
        }
  }
}

void world::describe_some() {
  std::vector<key_number> keys;
  for (auto n = random_.below(keys_most); n < keys_most && keys.size() < 8; n += random_.between(1, 3))
    keys.push_back(n);
  describe(random_.below(models_.size()), std::move(keys));
}

void world::take_away() {
  const auto ns = random_.below(models_.size());
  const auto& x = models_[ns];
  const auto n = random_.below(keys_most);
  auto& shard = shard_of_key(n);
  const auto kind = random_.below(4);
  if (kind == 0) {
    const auto rank = random_.number(0, x.spec.world_size - 1);
    static_cast<void>(shard.evict({x.id, rank, random_.number(1, 5), true}, now_));
    return count("evicted");
  }
  if (kind == 1) {
    static_cast<void>(shard.erase({x.id, all_ranks, std::vector{key_of(n), key_of(n)}}, now_));
    return count("erased");
  }
  const auto found = shard.look_up({x.id, key_of(n)}, now_);
  if (!found || found->pages.empty())
    return;
  const auto& page = random_.pick(found->pages.items);
  const std::vector<page_ref> pages{{key_of(n), page.where}};
  if (kind == 2)
    static_cast<void>(shard.invalidate({x.id, page.rank, pages}, now_));
  else
    static_cast<void>(shard.drop_pages({x.id, page.rank, pages}, now_));
  count(kind == 2 ? "damaged" : "dropped");
}

void world::change_tiers() {
  auto& x = models_[random_.below(models_.size())];
  auto& slots = *x.resident[random_.below(x.resident.size())];
  for (int i = 0; i < 10; ++i) {
    const auto slot = random_.number(0, 200);
    if (random_.one_in(2))
      slots.set(slot);
    else
      slots.clear(slot);
  }
}

void world::tick() {
  for (auto& shard : shards_)
    shard->tick(now_);
}

void world::report() {
  for (auto& shard : shards_) {
    auto found = shard->take_outbox().events;
    std::erase_if(found, [&](const events::change& x) {
      return (defect_ == defect::lose_removed && std::holds_alternative<events::keys_removed>(x.what) &&
              random_.one_in(4)) ||
             (defect_ == defect::lose_moved && std::holds_alternative<events::keys_moved>(x.what) && random_.one_in(2));
    });
    if (defect_ == defect::describe_incomplete)
      for (auto& x : found)
        if (auto* const change = std::get_if<events::pages_described>(&x.what)) {
          change->positions.clear();
          for (std::uint32_t i = 0; i < change->pages.keys.size(); ++i)
            change->positions.push_back(i);
          change->in_memory.resize(change->positions.size(), 0);
        }
    feed_->push(std::move(found));
  }
  std::erase_if(ledger_, [&](const auto& x) {
    return !shard_of_key(x.second).is_complete(models_[x.first].id, key_of(x.second));
  });
}

void world::pass_to_hub() {
  auto batch = feed_->take();
  if (batch.overflowed) {
    count("overflowed");
    overflowed_ = true;
    batch.overflowed = defect_ != defect::forget_overflow;
  }
  if (defect_ == defect::unordered && batch.changes.size() > 1 && random_.one_in(3)) {
    const auto at = random_.below(batch.changes.size() - 1);
    std::swap(batch.changes[at], batch.changes[at + 1]);
  }
  hub_->take(std::move(batch), now_, 1.0);
}

// -- subscribers ------------------------------------------------------------------------------------------------------

void world::publish() {
  for (const auto& x : hub_->flush(now_, 1.0)) {
    const std::string topic(x.topic);
    for (auto& to : listeners_) {
      if (!to.connected) {
        count("missed while disconnected");
        continue;
      }
      std::size_t waiting = 0;
      for (const auto& [name, s] : to.state.streams)
        waiting += s.waiting.size();
      if (waiting >= to.room) {
        count("missed because it was slow");
        if (defect_ == defect::silent_drop)
          ++to.hidden[topic];
        continue;
      }
      to.state.arrive({topic, x.batch.number - to.hidden[topic], x.batch.text});
    }
  }
}

void world::use(listener& x) {
  if (!x.connected)
    return;
  for (auto& [topic, s] : x.state.streams)
    while (x.state.look(topic) && !random_.one_in(4)) {
    }
}

void world::send_requests(std::size_t which) {
  auto& x = listeners_[which];
  if (!x.connected)
    return;
  // One request at a time, as its requester has one name.
  for (const auto& [topic, s] : x.state.streams)
    if (s.requested)
      return;
  for (auto& [topic, s] : x.state.streams) {
    if (!s.wanted)
      continue;
    if (!hub_->request(std::to_string(which), *s.wanted + x.hidden[topic], topic, now_))
      return count("refused");
    count("requested");
    requests_.asked(which, "missed batches");
    s.requested = true;
    s.wanted.reset();
    return;
  }
}

void world::replayed(std::size_t which, const events::hub::reply& reply) {
  auto& x = listeners_[which];
  if (reply.end) {
    requests_.answered(which);
    for (auto& [topic, s] : x.state.streams)
      if (s.requested)
        x.state.end_of_replay(topic);
    return;
  }
  if (defect_ == defect::lose_reply && random_.one_in(3))
    return;
  const std::string topic(reply.topic);
  auto& view = x.state.streams[topic].view;
  const auto before = view.blocks;
  const auto cleared = view.cleared;
  x.state.replayed(topic, reply.number - x.hidden[topic], *reply.text);
  if (defect_ == defect::keep_old && view.cleared > cleared)
    view.blocks.insert(before.begin(), before.end());
  if (view.cleared > cleared)
    count("got a snapshot");
}

void world::send_reply() {
  const auto reply = hub_->next_reply(now_, 1.0);
  if (!reply)
    return;
  const auto which = static_cast<std::size_t>(std::stoul(reply->requester));
  if (!listeners_[which].connected) {
    hub_->gone();
    return count("disconnected while it waited");
  }
  if (random_.one_in(5)) {
    hub_->blocked(now_);
    return count("blocked");
  }
  hub_->sent(now_);
  replayed(which, *reply);
}

// -- checks -----------------------------------------------------------------------------------------------------------

bool world::let_arrive() {
  bool quiet = true;
  pass_to_hub();
  now_ += batch_time;
  publish();
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    auto& x = listeners_[i];
    use(x);
    send_requests(i);
    for (const auto& [topic, s] : x.state.streams)
      quiet = quiet && s.waiting.empty() && !s.wanted && !s.requested;
  }
  for (int i = 0; i < 50 && hub_->replays() > 0; ++i) {
    now_ += 5ms;
    send_reply();
  }
  return quiet && hub_->replays() == 0;
}

void world::settle() {
  for (auto& x : listeners_) {
    x.connected = true;
    // They keep up from here on.
    x.room = 100000;
  }
  pass_to_hub();
  if (std::exchange(overflowed_, false)) {
    // Engines describe pages again as they use them.
    const auto known = ledger_;
    for (const auto& [ns, n] : known) {
      describe(ns, {n});
      report();
      pass_to_hub();
    }
  }
  for (std::size_t i = 0; i < 2 * models_.size() + 2; ++i) {
    tick();
    report();
    pass_to_hub();
  }
  // Twice, as the last batch of a request may be lost with it.
  for (int beats = 0; beats < 3; ++beats) {
    now_ += heartbeat;
    bool quiet = false;
    for (int i = 0; i < 400 && !quiet; ++i)
      quiet = let_arrive();
    if (!quiet)
      return broken("arrival", "something is still under way after a long time");
  }
  compare();
  for (auto& x : listeners_)
    x.room = random_.between(1, 6);
}

std::string world::medium_of(std::size_t ns, key_number n) {
  return in_memory(ns, n) ? "CPU" : "STORAGE";
}

std::size_t world::known_groups(const subscriber& of, std::size_t ns, key_number n) {
  const auto& x = models_[ns];
  const auto stream = of.streams.find(x.topic);
  if (stream == of.streams.end())
    return 0;
  const auto knows = [&](std::int64_t group) {
    return stream->second.view.blocks.contains({medium_of(ns, n), group, hash_of(ns, n)});
  };
  if (x.groups.empty())
    return knows(-1) ? 1 : 0;
  return static_cast<std::size_t>(
      std::ranges::count_if(x.groups, [&](const auto& group) { return knows(group.index); }));
}

void world::compare() {
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    const auto& state = listeners_[i].state;
    if (!state.fault.empty())
      return broken("batches", state.fault);
    std::size_t expected = 0;
    std::size_t least = 0;
    for (const auto& [ns, n] : ledger_) {
      const auto& x = models_[ns];
      const auto record = hub_->book().find(hub_->book().id_of(x.id, key_of(n)));
      const bool has_all = record && events::has_tokens(*record, hub_->book().shape(record->shape));
      if (!has_all && details_max_ > 10000)
        return broken("book", "key " + std::to_string(n) + " of " + x.spec.name + " is described, and not published");
      const auto known = known_groups(state, ns, n);
      const auto groups = std::max<std::size_t>(1, x.groups.size());
      if (known != groups && (has_all || known != 0))
        return broken("view", "subscriber " + std::to_string(i) + " does not know key " + std::to_string(n) + " of " +
                                  x.spec.name + " in each of its groups, in " + medium_of(ns, n));
      expected += known;
      least += has_all ? 1 : 0;
    }
    std::size_t all = 0;
    for (const auto& [topic, s] : state.streams)
      all += s.view.blocks.size();
    if (all != expected)
      return broken("view", "subscriber " + std::to_string(i) + " knows " + std::to_string(all) + " pages, of which " +
                                std::to_string(expected) + " are there");
    if (least > 0)
      count("compared");
  }
}

void world::step() {
  now_ += random_.time(1ms, 30ms);
  const auto what = random_.below(100);
  if (what < 25)
    save();
  else if (what < 45)
    describe_some();
  else if (what < 60)
    take_away();
  else if (what < 65)
    change_tiers();
  else if (what < 70)
    tick();
  else if (what < 72) {
    const auto which = random_.below(listeners_.size());
    auto& x = listeners_[which];
    x.connected = !x.connected;
    if (!x.connected) {
      x.state.disconnect();
      requests_.abandoned(which);
    }
  } else if (what == 72 && random_.one_in(3))
    restart();
  else if (what == 73)
    settle();
  report();
  if (random_.one_in(3))
    pass_to_hub();
  if (random_.one_in(2))
    publish();
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (random_.one_in(3))
      use(listeners_[i]);
    if (random_.one_in(2))
      send_requests(i);
  }
  for (auto i = random_.below(4); i > 0; --i)
    send_reply();
}

outcome world::run() {
  for (; result_.events < steps_ && result_.property.empty(); ++result_.events)
    step();
  if (result_.property.empty())
    settle();
  if (counts_->snapshots > 0)
    count("snapshot");
  if (counts_->failed_replays > 0)
    count("replay failed");
  if (counts_->moved > 0)
    count("moved");
  result_.trace_hash = random_.next();
  result_.description = std::to_string(listeners_.size()) + " subscribers";
  return result_;
}

} // namespace troupe::events_simulation
