#include "tests/cluster_actors/caller.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::cluster_actors {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

/// For turns of actors, which take some time each.
constexpr duration slack = milliseconds(300);

} // namespace

caller::caller(host& home)
    : home_(home), world_(home.world()), random_(world_.random.fork()),
      waited_for_([this](const std::string& name) { world_.env.count(name); }) {
  for (const auto& ns : world_.p.namespaces)
    namespaces_.push_back(ns.id());
}

key_digest caller::key(std::uint32_t chain, std::uint32_t position) {
  return {chain + 1, position + 1};
}

const namespace_id& caller::any_namespace() {
  return random_.pick(namespaces_);
}

void caller::start() {
  asker_ = simulation::asker::make(home_.in()->system());
}

void caller::forget() {
  if (asker_)
    static_cast<simulation::asker*>(asker_->get())->forget();
  asker_ = nullptr;
  open_.clear();
  waited_for_.forget_all();
}

void caller::leave() {
  world_.env.count("caller ended");
  static_cast<simulation::asker*>(asker_->get())->end();
  open_.clear();
  waited_for_.abandon_all();
  start();
}

template <class Reply>
void caller::ask(const char* what, duration limit, caf::message request,
                 std::function<void(const result<Reply>&)> then) {
  const auto number = ++last_;
  const auto now = world_.now();
  open_[number] = {what, now, now + limit + slack, home_.in()->paused_in_all()};
  world_.env.count(std::string("request: ") + what);
  waited_for_.asked(number, what);
  if (world_.has(defect::lose_requests) && random_.one_in(20))
    return;
  static_cast<simulation::asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(home_.actor()), std::move(request),
            [this, number, then = std::move(then)](const caf::message& answer) {
              waited_for_.answered(number);
              if (open_.erase(number) > 0)
                then(simulation::answer_as<Reply>(answer));
            });
}

std::string caller::late() const {
  for (const auto& [number, x] : open_)
    if (home_.runs() && !home_.in()->paused() && x.due + (home_.in()->paused_in_all() - x.paused) < world_.now())
      return std::string("a request is not answered in time: ") + x.what;
  return {};
}

void caller::save(const namespace_id& ns, const std::vector<key_digest>& keys) {
  if (!home_.has(ns))
    return;
  for (const auto& key : keys)
    for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
      static_cast<void>(
          home_.pages().store(ns, rank, key, expected_page(home_.of_cluster(), ns, rank, key, world_.p.page_bytes())));
}

// -- work -------------------------------------------------------------------------------------------------------------

void caller::work() {
  if (!home_.runs() || home_.is_leaving() || home_.in()->paused())
    return;
  if (random_.one_in(40))
    leave();
  const auto chain = random_.number(0, world_.p.chains - 1);
  switch (random_.below(10)) {
  case 0:
  case 1: {
    std::vector<key_digest> keys;
    for (auto i = random_.number(0, world_.p.chain_length - 1); i < world_.p.chain_length; ++i)
      keys.push_back(key(chain, i));
    return save(any_namespace(), keys);
  }
  case 2: {
    std::vector<key_digest> keys;
    for (std::uint32_t i = 0, end = random_.number(1, world_.p.chain_length); i < end; ++i)
      keys.push_back(key(chain, i));
    return save(any_namespace(), keys);
  }
  case 3:
  case 4:
    // Other keys need the room.
    for (const auto& [ns, key] : home_.pages().all())
      if (random_.one_in(4) && home_.pages().evict(ns, key, world_.now()))
        world_.env.count("evicted");
    return;
  case 5:
  case 6:
  case 7:
    return fetch_prefix();
  default:
    return search();
  }
}

void caller::fetch_prefix() {
  const auto& ns = any_namespace();
  const auto chain = random_.number(0, world_.p.chains - 1);
  prefix_fetch_request wanted{ns, {}, {}, {}};
  std::uint32_t first = 0;
  while (first + 1 < world_.p.chain_length && home_.pages().is_complete(ns, key(chain, first)))
    ++first;
  if (first > 0)
    wanted.parent = key(chain, first - 1);
  for (auto i = first, end = random_.number(first + 1, world_.p.chain_length); i < end; ++i)
    wanted.keys.items.push_back(key(chain, i));
  if (random_.one_in(4))
    wanted.waited = random_.time(duration::zero(), 2 * world_.p.fetch_time);
  const auto left = world_.p.fetch_time - std::min(wanted.waited, world_.p.fetch_time);
  ask<prefix_fetch_reply>(
      "prefix", left, caf::make_message(wanted),
      [this, ns, keys = wanted.keys.items, begun = world_.now()](const result<prefix_fetch_reply>& reply) {
        if (!reply)
          return world_.env.judge("answers", home_.is_leaving() ? "" : "a fetch fails: " + to_string(reply.error()));
        judge_prefix(ns, keys, reply->keys, begun);
      });
}

void caller::judge_prefix(const namespace_id& ns, const std::vector<key_digest>& keys, std::uint32_t found,
                          timestamp begun) {
  world_.env.count(found == 0 ? "fetched nothing" : found < keys.size() ? "fetched some" : "fetched all");
  if (found > keys.size())
    return world_.env.fail("promise", "more keys were fetched than requested");
  // The keys of a fetch that was in progress already may have been evicted before.
  const auto since = begun - world_.p.ask_time - world_.p.task_deadline - slack;
  for (std::uint32_t i = 0; i < found; ++i)
    if (!home_.pages().is_complete(ns, keys[i]) && !home_.pages().lost_since(ns, keys[i], since))
      return world_.env.fail("promise", "a key is reported as fetched whose pages are not here");
}

void caller::fetch_chain(const namespace_id& ns, std::uint32_t chain, std::function<void(std::uint32_t)> then) {
  prefix_fetch_request wanted{ns, {}, {}, {}};
  for (std::uint32_t i = 0; i < world_.p.chain_length; ++i)
    wanted.keys.items.push_back(key(chain, i));
  ask<prefix_fetch_reply>(
      "prefix", world_.p.fetch_time, caf::make_message(wanted),
      [then = std::move(then)](const result<prefix_fetch_reply>& reply) { then(reply ? reply->keys : 0); });
}

void caller::search() {
  search_peers_request wanted{any_namespace(), {}, {}};
  for (std::uint32_t i = 0, end = random_.number(1, world_.p.chain_length); i < end; ++i)
    wanted.keys.items.push_back(
        key(random_.number(0, world_.p.chains - 1), random_.number(0, world_.p.chain_length - 1)));
  std::ranges::sort(wanted.keys.items);
  wanted.keys.items.erase(std::unique(wanted.keys.begin(), wanted.keys.end()), wanted.keys.end());
  if (random_.one_in(4))
    wanted.waited = random_.time(duration::zero(), world_.p.fetch_time);
  const auto left = world_.p.fetch_time - wanted.waited;
  ask<search_peers_reply>("search", left, caf::make_message(wanted),
                          [this, wanted, end = world_.now() + left](const result<search_peers_reply>& found) {
                            if (found)
                              on_search(wanted, *found, std::max(end - world_.now(), duration::zero()));
                            else
                              world_.env.judge("answers",
                                               home_.is_leaving() ? "" : "a search fails: " + to_string(found.error()));
                          });
}

void caller::on_search(const search_peers_request& wanted, const search_peers_reply& found, duration left) {
  if (found.search == 0)
    return world_.env.count("searched in vain");
  world_.env.count("searched");
  if (random_.one_in(4))
    return world_.env.count("search abandoned");
  fetch_pages_request pages{wanted.ns, found.search, {}, {}};
  if (random_.one_in(20))
    pages.search += 1000; // of another caller, or of none
  for (std::size_t i = 0; i < wanted.keys.size(); ++i)
    if (i < found.found.size() && found.found[i] != 0 && !random_.one_in(4))
      pages.keys.items.push_back(wanted.keys[i]);
  // In another turn: this one is of the actor that has answered.
  home_.later(random_.skewed_time(microseconds(20), left + milliseconds(20)), [this, pages, left] {
    if (!asker_ || home_.is_leaving())
      return;
    ask<prefix_fetch_reply>("fetch", left, caf::make_message(pages), [this](const result<prefix_fetch_reply>& reply) {
      if (reply)
        world_.env.count(reply->keys > 0 ? "fetched single pages" : "fetched no single page");
      else
        world_.env.judge("answers", home_.is_leaving() ? "" : "a fetch fails: " + to_string(reply.error()));
    });
  });
}

void caller::ask_for_stats(std::function<void(const cluster_stats&)> then) {
  ask<cluster_stats>("stats", duration::zero(), caf::make_message(stats_atom_v),
                     [then = std::move(then)](const result<cluster_stats>& reply) {
                       if (reply)
                         then(*reply);
                     });
  if (!world_.env.winding_down && random_.one_in(200))
    leave();
}

} // namespace troupe::cluster_actors
