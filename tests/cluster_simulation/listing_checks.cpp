#include "tests/cluster_simulation/world.hpp"

#include <algorithm>
#include <array>
#include <string_view>

/// The list of nodes in etcd: its faults, and the properties that must hold all the same.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto look_interval = milliseconds(100);

/// Entries that an administrator or another program may write by mistake.
constexpr std::array<std::string_view, 6> nonsense_values{
    "", "yes", "[]", R"({"node":"","incarnation":"1"})", R"({"node":"x"})", R"({"node":"x","incarnation":"-1"})"};
constexpr std::array<std::string_view, 5> nonsense_addresses{"node-0", "node-0:0", ":7000", "node 0:7000",
                                                             "node-0:70000"};

template <class T>
bool is_among(const T& all, std::string_view what) {
  return std::ranges::find(all, what) != all.end();
}

} // namespace

// -- what goes wrong --------------------------------------------------------------------------------------------------

void world::etcd_step() {
  auto& x = *list_;
  const auto dice = random_.below(100);
  const auto until = later(now_, random_.skewed_time(milliseconds(100), seconds(7)));
  const auto i = random_.below(nodes_.size());
  if (dice < 14) {
    count("etcd away");
    x.away = until;
    end_watches(false);
  } else if (dice < 24) {
    count("etcd stood still");
    x.still = until;
    at(until, [this] { etcd_goes_on(); });
  } else if (dice < 31) {
    count("etcd full");
    x.full = until;
    x.store.set_full(true);
    at(until, [this] { list_->store.set_full(list_->full > now_); });
  } else if (dice < 36) {
    count("etcd slow");
    x.slow = until;
  } else if (dice < 45) {
    return etcd_is_lost();
  } else if (dice < 54) {
    count("etcd compacted");
    x.store.compact();
    return carry_lines();
  } else if (dice < 66) {
    if (!x.readers.empty())
      end_watch(std::next(x.readers.begin(), static_cast<std::ptrdiff_t>(random_.below(x.readers.size())))->first,
                random_.one_in(2));
    return;
  } else if (dice < 74) {
    count("cut off from etcd");
    nodes_[i].cut_from_etcd = until;
    nodes_[i].undisturbed = now_;
    return;
  } else {
    put_nonsense();
    return carry_lines();
  }
  x.undisturbed = now_;
}

void world::etcd_is_lost() {
  auto& x = *list_;
  if (random_.one_in(2) && x.store.has_copy()) {
    count("etcd set back");
    x.store.set_back(now_);
  } else if (random_.one_in(2)) {
    return x.store.keep_copy();
  } else {
    count("etcd lost all");
    x.store.lose_all();
  }
  x.undisturbed = now_;
  end_watches(random_.one_in(3));
  carry_lines();
}

void world::put_nonsense() {
  auto& store = list_->store;
  const auto i = random_.below(nodes_.size());
  const auto under = prefix(i);
  const auto made_up = [&](const std::string& name) {
    return cluster::write_listed({name, 1'000'000'000 + random_.below(3)});
  };
  const auto nonsense = std::string(nonsense_values[random_.below(nonsense_values.size())]);
  switch (random_.below(6)) {
  case 0:
    count("nonsense for an entry");
    return store.put(under + std::string(nonsense_addresses[random_.below(nonsense_addresses.size())]), made_up("x"));
  case 1:
    count("nonsense for an entry");
    return store.put(under + "x-" + std::to_string(random_.below(3)) + ":1", nonsense);
  case 2:
    count("nonsense for an entry");
    return store.put(under + address(i), nonsense);
  case 3:
    count("entry of an unknown node");
    return store.put(under + "absent-" + std::to_string(random_.below(2)) + ":7000", made_up("absent"));
  case 4:
    count("entry of another one");
    return store.put(under + address(i), made_up("another"));
  default:
    if (store.remove(under + (random_.one_in(3) ? "absent-0:7000" : address(i))))
      count("entry removed");
  }
}

void world::etcd_goes_on() {
  if (list_->still > now_)
    return;
  // Its clock has advanced: either comes first.
  if (random_.one_in(2))
    end_leases();
  const auto heard = std::exchange(list_->heard, {});
  for (const auto& what : heard)
    what();
  carry_lines();
}

void world::etcd_calms() {
  auto& x = *list_;
  x.still = now_;
  x.slow = now_;
  x.full = now_;
  x.store.set_full(false);
  x.undisturbed = now_;
  etcd_goes_on();
  for (auto& n : nodes_)
    n.cut_from_etcd = {};
  is_etcd_gone_ = random_.one_in(4);
  x.away = is_etcd_gone_ ? timestamp::max() : now_;
  if (is_etcd_gone_) {
    count("etcd lost for good");
    end_watches(false);
  }
  // The config has been corrected.
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].lives && nodes_[i].says != i)
      end(i, true);
  const std::size_t last = 2;
  if (random_.one_in(2) && nodes_.size() > last && nodes_[last].of_cluster == nodes_[0].of_cluster) {
    count("gone for good");
    end(last, random_.one_in(2));
    nodes_[last].retired = true;
  }
}

void world::end_leases() {
  if (list_->still > now_)
    return;
  auto& store = list_->store;
  for (const auto which : store.over(now_)) {
    const bool in_use = std::ranges::any_of(store.keys(), [&](const auto& x) { return x.second.lease == which; });
    const auto [i, life] = list_->owners[which];
    if (in_use)
      count("lease ran out");
    if (in_use && nodes_[i].lives && nodes_[i].life == life && is_undisturbed(i))
      broken("steady", "the lease of " + nodes_[i].name + " has expired, although nothing has kept it from etcd");
    store.end_lease(which);
  }
  carry_lines();
}

// -- properties -------------------------------------------------------------------------------------------------------

bool world::etcd_is_well() const {
  return std::max({list_->away, list_->still, list_->full, list_->slow}) <= now_;
}

bool world::is_undisturbed(std::size_t i) const {
  return nodes_[i].lives && has_lasted(std::max(nodes_[i].undisturbed, list_->undisturbed));
}

void world::follow_lists() {
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    follow_list(prefix(i));
}

void world::follow_list(const std::string& under) {
  std::set<std::string> addresses;
  for (const auto& [key, x] : list_->store.keys())
    if (key.starts_with(under) && !is_among(nonsense_values, x.value) &&
        !is_among(nonsense_addresses, key.substr(under.size())))
      addresses.insert(key.substr(under.size()));
  auto& [known, since] = list_->lists[under];
  if (addresses == known)
    return;
  for (const auto& x : known)
    list_->missing.try_emplace(under + x, now_);
  for (const auto& x : addresses)
    list_->missing.erase(under + x);
  list_->ever[under].insert(addresses.begin(), addresses.end());
  known = std::move(addresses);
  since = now_;
}

void world::look_at_lists() {
  end_leases();
  if (!etcd_is_well())
    list_->undisturbed = now_;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto& n = nodes_[i];
    if (!n.lives || n.paused_until > now_ || is_cut_from_etcd(i))
      n.undisturbed = now_;
    if (!n.lives)
      continue;
    for (const auto& x : n.notified)
      if (std::ranges::none_of(n.members->numbers(), [&](auto p) { return n.members->address(p) == x; }))
        broken("hint", n.name + " has forgotten " + x + ", which was in the list that it has read last");
    if (!is_undisturbed(i))
      continue;
    check_list(i);
    check_forgotten(i);
  }
  if (has_lasted(list_->undisturbed))
    check_entries();
  after(look_interval, [this] { look_at_lists(); });
}

void world::check_list(std::size_t i) {
  const auto& n = nodes_[i];
  const auto& [list, since] = list_->lists[prefix(i)];
  const auto own = address(n.says);
  if (list.contains(own)) {
    count("in the list");
  } else {
    const auto missing = list_->missing.find(prefix(i) + own);
    if (missing == list_->missing.end() || has_lasted(missing->second))
      broken("listed", n.name + " is there, and etcd as well, but it is not in the list");
  }
  if (has_lasted(since) && !std::ranges::equal(list, n.notified))
    broken("list", n.name + " has another list than etcd, which has answered all the time");
}

void world::check_forgotten(std::size_t i) {
  const auto& n = nodes_[i];
  for (const auto peer : n.members->numbers()) {
    // It keeps looking for the nodes of its config.
    if (peer < n.seeds.size())
      continue;
    const auto& at = n.members->address(peer);
    const auto who = at_address(at);
    const bool is_gone = who == nodes_.size() || (!nodes_[who].lives && has_lasted(nodes_[who].ended));
    const auto missing = list_->missing.find(prefix(i) + at);
    if (is_gone && missing != list_->missing.end() && has_lasted(missing->second))
      broken("forgotten", n.name + " looks for " + at + ", which is neither there nor in the list any more");
  }
}

void world::check_entries() {
  for (const auto& [key, x] : list_->store.keys()) {
    const auto who = cluster::read_listed(x.value);
    const auto ended = who ? list_->ended.find(who->incarnation) : list_->ended.end();
    if (ended != list_->ended.end() && has_lasted(ended->second))
      broken("forgotten", key + " is in the list, and has ended long ago");
  }
}

} // namespace troupe::cluster_simulation
