#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

/// The list of nodes in etcd: how nodes ask for it, and what comes of it.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How soon a connection is refused by a port without a listener.
constexpr auto refused_after = milliseconds(1);
/// Within this, a node that leaves has said so to an etcd that is well.
constexpr auto deregistration_limit = seconds(1);

} // namespace

void world::make_catalogue() {
  auto& x = list_.emplace();
  count("an etcd");
  x.lease = seconds(random_.between(2, 4));
  // Changes that were not delivered are in the list that is read once per lease; the rest is pauses and network delay.
  x.bound = 2 * x.lease + seconds(1);
  x.undisturbed = now_;
  is_one_prefix_ = random_.one_in(2);
  const bool has_seeds = random_.one_in(3);
  if (has_seeds)
    count("an etcd beside seeds");
  for (auto& n : nodes_)
    std::erase_if(n.seeds, [&](std::size_t) { return !has_seeds || random_.one_in(2); });
  if (random_.one_in(4)) {
    nodes_[1].called = nodes_[0].called;
    count("two of one name");
  }
}

std::string world::prefix(std::size_t i) const {
  return "/troupe/" + (is_one_prefix_ ? std::string("all") : nodes_[i].of_cluster) + "/nodes/";
}

std::size_t world::at_address(const std::string& address_of) const {
  std::size_t out = 0;
  while (out < nodes_.size() && address(out) != address_of)
    ++out;
  return out;
}

bool world::is_to_find(std::size_t i, std::size_t other) const {
  if (i == other || !lives(i) || !lives(other) || nodes_[i].of_cluster != nodes_[other].of_cluster)
    return false;
  const auto& n = nodes_[i];
  return !list_ || !is_etcd_gone_ || std::ranges::count(n.seeds, other) > 0 ||
         std::ranges::count(n.notified, address(other)) > 0;
}

void world::begin_listing(std::size_t i) {
  auto& n = nodes_[i];
  n.says = is_calm_ || !random_.one_in(12) ? i : random_.below(nodes_.size());
  if (n.says != i)
    count("two say one address");
  n.undisturbed = now_;
  n.cut_from_etcd = {};
  n.watch = 0;
  n.has_put = false;
  cluster::etcd_options options;
  options.endpoints = "etcd:2379";
  options.prefix = prefix(i);
  options.address = address(n.says);
  options.self = {n.called, n.incarnation};
  options.lease = list_->lease;
  options.backoff_min = milliseconds(100);
  options.backoff_max = std::min<duration>(seconds(2), list_->lease / 3);
  options.seed = random_.next();
  n.listing.emplace(std::move(options));
}

void world::take_out(std::size_t i) {
  const auto deregistration = nodes_[i].listing->deregistration();
  if (deregistration && !has(defect::forget_deregistrations))
    ask_etcd(i, *deregistration, [](const auto&) {});
  if (!is_undisturbed(i) || !etcd_is_well() || is_cut_from_etcd(i))
    return;
  after(deregistration_limit, [this, i, left = now_, run = nodes_[i].incarnation] {
    if (list_->undisturbed > left || !etcd_is_well())
      return;
    count("taken out");
    for (const auto& [key, x] : list_->store.keys())
      if (const auto who = cluster::read_listed(x.value); who && who->incarnation == run)
        broken("leave", nodes_[i].name + " has left in good order, and is in the list");
  });
}

void world::leave_out(std::size_t i) {
  auto& n = nodes_[i];
  for (const auto& [peer, at] : n.lines) {
    if (n.members->is_known(peer) || !n.left_out.insert(peer).second)
      continue;
    count("left out");
    n.pages->forget(peer);
    look(i);
  }
}

// -- requests ---------------------------------------------------------------------------------------------------------

duration world::etcd_delay() {
  return random_.skewed_time(std::chrono::microseconds(200), is_calm_ ? milliseconds(5) : milliseconds(200));
}

void world::ask_etcd(std::size_t i, const cluster::etcd_request& x, const etcd_answered& then) {
  if (is_cut_from_etcd(i))
    return;
  const auto life = nodes_[i].life;
  const auto refuse = [this, i, life, then] {
    run_on(i, life, [then] { then(fail(errc::unreachable, "connection refused")); });
  };
  if (list_->away > now_)
    return after(refused_after, refuse);
  after(etcd_delay(), [this, i, life, x, then, refuse] {
    if (list_->away > now_)
      return refuse();
    if (list_->still > now_)
      list_->heard.emplace_back([this, i, life, x, then] { serve(i, life, x, then); });
    else
      serve(i, life, x, then);
  });
}

void world::serve(std::size_t i, number life, const cluster::etcd_request& x, const etcd_answered& then) {
  const auto reply = list_->store.answer(x.path, x.body, now_);
  if (const auto lease = cluster::read_grant(reply); lease && x.path == "/v3/lease/grant")
    list_->owners[lease->id] = {i, life};
  carry_lines();
  auto time = etcd_delay();
  if (list_->slow > now_ || (!is_calm_ && random_.one_in(40)))
    time = random_.time(etcd_limit() / 2, 3 * etcd_limit());
  const auto arrive = [this, i, life, then, reply] {
    if (!is_cut_from_etcd(i))
      run_on(i, life, [then, reply] { then(reply); });
  };
  after(time, arrive);
  if (random_.one_in(20))
    after(time + etcd_delay(), arrive);
}

void world::perform(std::size_t i, const cluster::etcd_request& x) {
  const auto done = std::make_shared<bool>(false);
  const auto cancelled = std::make_shared<bool>(false);
  if (has(defect::forget_keep_alives) && x.path == "/v3/lease/keepalive")
    return later_on(i, refused_after, [this, i, x] {
      const auto made_up = "{\"result\":" + x.body.substr(0, x.body.size() - 1) + ",\"TTL\":\"9\"}}";
      nodes_[i].listing->on_answer(x.number, cluster::etcd_reply{200, made_up}, local(i));
    });
  if (has(defect::put_once) && x.path == "/v3/kv/put" && std::exchange(nodes_[i].has_put, true))
    return later_on(i, refused_after, [this, i, x] {
      const cluster::etcd_reply made_up{200, "{\"header\":{\"revision\":\"1\"}}"};
      nodes_[i].listing->on_answer(x.number, made_up, local(i));
    });
  if (has(defect::lose_etcd_answers) && random_.one_in(8))
    return;
  const auto tell = [this, i, number = x.number](const result<cluster::etcd_reply>& answer) {
    auto& n = nodes_[i];
    if (!answer)
      n.undisturbed = now_;
    if (!answer && has(defect::forget_list_with_etcd))
      n.members->on_listed({}, local(i));
    n.listing->on_answer(number, answer, local(i));
    n.listing->on_time(local(i));
  };
  later_on(i, by_world(i, etcd_limit()), [this, tell, done, cancelled] {
    if (*done)
      return;
    count("etcd not in time");
    *cancelled = true;
    tell(fail(errc::timeout, "it takes too long"));
  });
  // A reply that comes after its deadline is delivered and must change nothing.
  ask_etcd(i, x, [this, tell, done, cancelled](const result<cluster::etcd_reply>& answer) {
    if (std::exchange(*done, true))
      count("answered twice by etcd");
    else if (*cancelled)
      count("answered late by etcd");
    tell(answer);
  });
}

// -- watches ----------------------------------------------------------------------------------------------------------

void world::perform(std::size_t i, const cluster::etcd_watch& x) {
  auto& n = nodes_[i];
  n.watch = x.number;
  for (auto r = list_->readers.begin(); r != list_->readers.end();) {
    if (r->second.who != i) {
      ++r;
      continue;
    }
    list_->store.end_watch(r->first);
    r = list_->readers.erase(r);
  }
  const auto ends = [this, i, x] {
    count("watch ended");
    nodes_[i].listing->on_watch_end(x.number, local(i));
  };
  if (list_->away > now_)
    return later_on(i, refused_after, ends);
  after(etcd_delay(), [this, i, life = n.life, x, ends] {
    auto& reader = nodes_[i];
    if (!reader.lives || reader.life != life || reader.watch != x.number)
      return;
    if (list_->away > now_ || list_->still > now_ || is_cut_from_etcd(i))
      return later_on(i, by_world(i, etcd_limit()), ends);
    count("watch begun");
    list_->readers[list_->store.watch(x.body)] = {i, life, x.number, now_};
    carry_lines();
  });
}

void world::carry_lines() {
  follow_lists();
  if (list_->still > now_)
    return;
  for (const auto& line : list_->store.take_lines()) {
    const auto found = list_->readers.find(line.watch);
    if (found == list_->readers.end())
      continue;
    auto& x = found->second;
    if (is_cut_from_etcd(x.who)) {
      end_watch(line.watch, true);
      continue;
    }
    // In order, because it is one connection.
    x.last = std::max(later(x.last, duration(1)), later(now_, etcd_delay()));
    at(x.last, [this, i = x.who, life = x.life, watch = x.watch, text = line.text] {
      // By value: it may have to wait until the node resumes.
      run_on(i, life, [this, i, watch, text] { nodes_[i].listing->on_watch(watch, text, local(i)); });
    });
    if (!line.ended)
      continue;
    count("watch compacted");
    end_watch(line.watch, false);
  }
}

void world::end_watch(std::uint64_t which, bool in_silence) {
  const auto x = list_->readers.extract(which).mapped();
  list_->store.end_watch(which);
  count(in_silence ? "watch stopped without an error" : "watch ended");
  if (!in_silence)
    at(std::max(later(x.last, duration(1)), later(now_, etcd_delay())),
       [this, x] { run_on(x.who, x.life, [this, x] { nodes_[x.who].listing->on_watch_end(x.watch, local(x.who)); }); });
}

void world::end_watches(bool in_silence) {
  while (!list_->readers.empty())
    end_watch(list_->readers.begin()->first, in_silence);
}

// -- what comes of it -------------------------------------------------------------------------------------------------

void world::perform(std::size_t i, const cluster::etcd_members& x) {
  auto& n = nodes_[i];
  auto addresses = x.addresses;
  const auto is_in = [](const auto& list, const std::string& what) { return std::ranges::count(list, what) > 0; };
  if (has(defect::keep_the_unlisted))
    for (const auto& known : n.notified)
      if (!is_in(addresses, known))
        addresses.push_back(known);
  if (has(defect::take_nonsense))
    for (const auto& [key, entry] : list_->store.keys())
      if (key.starts_with(prefix(i)) && !is_in(addresses, key.substr(prefix(i).size())))
        addresses.push_back(key.substr(prefix(i).size()));
  if (has(defect::one_node_per_name)) {
    std::set<std::string> names;
    std::erase_if(addresses, [&](const std::string& address_of) {
      const auto at = at_address(address_of);
      return at < nodes_.size() && !names.insert(nodes_[at].called).second;
    });
  }
  std::vector<peer_number> up;
  for (const auto peer : n.members->numbers())
    if (n.members->is_up(peer))
      up.push_back(peer);
  if (has(defect::drop_the_unlisted))
    for (const auto peer : up)
      if (!is_in(addresses, n.members->address(peer)))
        n.members->on_lost(peer, local(i));
  count("news of the list");
  for (const auto& address_of : addresses)
    if (!list_->ever[prefix(i)].contains(address_of))
      broken("nonsense", n.name + " takes an entry that makes no sense for a node: " + address_of);
  n.notified = std::move(addresses);
  n.members->on_listed(n.notified, local(i));
  n.members->on_time(local(i));
  for (const auto peer : up)
    if (!n.members->is_up(peer))
      broken("hint", n.name + " drops a reachable node because the list does not have it");
}

void world::perform(std::size_t i, const cluster::etcd_login&) {
  broken("listed", nodes_[i].name + " logs in at an etcd that has no users");
}

void world::perform(std::size_t, const cluster::etcd_notified& x) {
  count(x.bad ? "bad news of etcd" : "good news of etcd");
}

} // namespace troupe::cluster_simulation
