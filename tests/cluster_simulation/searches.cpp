#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

/// Engines whose layers are in several groups: they look up single pages, and choose which ones they need.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::milliseconds;

} // namespace

void world::look_up_pages(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool must_find) {
  auto& n = nodes_[i];
  searching_engine engine{ns, {}, {}, now_, n.pauses, must_find};
  const auto here = n.has.match_each(ns, keys);
  for (const auto& key : keys)
    if (std::ranges::count(here, key) == 0)
      engine.keys.push_back(key);
  if (engine.keys.empty())
    return;
  count("searched");
  search_peers_request wanted{ns, {engine.keys}, {}};
  const auto who = n.searches->search(wanted, local(i));
  n.searching.emplace(who, std::move(engine));
  settle(i);
}

void world::check_waited(std::size_t i, const searching_engine& engine) {
  if (nodes_[i].pauses == engine.pauses && later(engine.begun, by_world(i, wait_limit + slack)) < now_)
    broken("ends", "an engine of " + nodes_[i].name + " has waited too long for single pages");
}

void world::perform(std::size_t i, const cluster::search_ask& x) {
  ask_peer(i, {x.call | search_call, x.peer, x.ns, x.keys}, true);
}

void world::perform(std::size_t i, const cluster::search_retain& x) {
  const auto found = nodes_[i].sessions.find({x.peer, x.ns});
  if (found == nodes_[i].sessions.end() || found->second.attachment != x.lease.owner)
    return;
  const auto at = node_of(i, x.peer);
  carry(i, at, found->second.peer_life, [this, at, x] { nodes_[at].has.retain(x.lease, x.keys); });
}

void world::perform(std::size_t i, const cluster::search_found& x) {
  auto& n = nodes_[i];
  auto found = n.searching.extract(x.search);
  if (found.empty())
    return broken("ends", "an engine of " + n.name + " is answered twice");
  auto& engine = found.mapped();
  check_waited(i, engine);
  if (x.reply.search == 0) {
    count("searched in vain");
    if (engine.must_find)
      broken("found", n.name + " finds no pages that another node has, when all is well" + how_it_is(i, engine.ns));
    return;
  }
  if (!is_calm_ && random_.one_in(8))
    return count("search abandoned"); // the engine has ended
  // It knows later what the other groups have.
  const auto pause = random_.skewed_time(milliseconds(1), milliseconds(is_calm_ ? 20 : 900));
  later_on(i, pause, [this, i, x, what = std::move(engine)] { fetch_pages(i, x.search, x.reply.found, what); });
}

void world::fetch_pages(std::size_t i, cluster::search_number search, const packed<std::uint8_t>& found,
                        searching_engine engine) {
  auto& n = nodes_[i];
  fetch_pages_request wanted{engine.ns, search, {}, {}};
  const bool chained = random_.one_in(2);
  const bool nothing = !is_calm_ && random_.one_in(8);
  for (std::size_t k = 0; k < engine.keys.size(); ++k) {
    const bool has_it = k < found.size() && found[k] != 0;
    if (engine.must_find && !has_it)
      broken("found", n.name + " does not find a page that another node has, when all is well");
    if (nothing || !has_it || (!engine.must_find && random_.one_in(4)))
      continue;
    wanted.keys.items.push_back(engine.keys[k]);
    if (chained)
      wanted.parents.items.push_back(k > 0 ? engine.keys[k - 1] : key_digest{});
  }
  if (wanted.keys.empty())
    count("search ended");
  engine.wanted = wanted.keys.items;
  const auto who = n.searches->fetch(wanted, local(i));
  n.searching.emplace(who, std::move(engine));
  settle(i);
}

void world::perform(std::size_t i, const cluster::search_fetched& x) {
  auto& n = nodes_[i];
  const auto found = n.searching.extract(x.search);
  if (found.empty())
    return broken("ends", "an engine of " + n.name + " is answered twice");
  const auto& engine = found.mapped();
  check_waited(i, engine);
  if (x.keys > engine.wanted.size())
    broken("ends", n.name + " has fetched more pages than were named");
  count(x.keys == 0 ? "fetched nothing" : x.keys < engine.wanted.size() ? "fetched some" : "fetched all");
  const auto here = n.has.match_each(engine.ns, engine.wanted);
  for (const auto& key : here)
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      if (n.has.page(engine.ns, key, rank) != truth(i, engine.ns, key, rank))
        broken("bytes", "an engine of " + n.name + " loads other bytes than were saved");
  if (engine.must_find && here.size() < engine.wanted.size())
    broken("found", n.name + " does not get pages that another node has, when all is well" + how_it_is(i, engine.ns));
}

} // namespace troupe::cluster_simulation
