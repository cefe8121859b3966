#include "actors/lmcache/lmcache_server.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"

#include <array>
#include <deque>
#include <map>
#include <set>

namespace lmcache_lookups_test {

/// Lookups of LMCache's clients at a node that has peers: the node, its shards and its part in the cluster are probes.

using namespace troupe;
using namespace troupe::test;
using lmcache::protocol::operation;

namespace {

constexpr duration fetch_time = std::chrono::seconds(2);
constexpr lmcache::client_number scheduler = 1;
constexpr lmcache::client_number worker = 2;

std::vector<key_digest> keys_of(std::uint32_t count) {
  return test_task(count).keys.items;
}

/// A namespace as a shard knows it, and its leases by owner.
struct served {
  namespace_spec spec;
  std::set<key_digest> here;
  std::map<ticket, std::set<key_digest>> held;

  void add(std::uint32_t from, std::uint32_t to) {
    const auto keys = keys_of(to);
    here.insert(keys.begin() + from, keys.end());
  }
  /// The keys that all leases hold together.
  std::set<key_digest> all_held() const {
    std::set<key_digest> out;
    for (const auto& [lease, keys] : held)
      out.insert(keys.begin(), keys.end());
    return out;
  }
};

struct lookups_world : sim {
  probe node{system()};
  std::array<probe, 3> shards{probe(system()), probe(system()), probe(system())};
  probe peers{system()};
  probe frames{system()};
  std::shared_ptr<lmcache_inbox> inbox = std::make_shared<lmcache_inbox>();
  std::shared_ptr<lmcache::counters> counts = std::make_shared<lmcache::counters>();
  std::map<std::string, std::deque<std::optional<std::string>>> answers;
  std::map<namespace_id, served> namespaces;
  lmcache_actor server;
  duration lease = std::chrono::minutes(10);
  bool has_peers = true;
  owner_id last_owner = 70;
  std::uint64_t last_number = 0;
  std::size_t matches = 0;
  std::size_t renewals = 0;
  /// Attachments that are quiesced, and attachments that are refused as long as their namespace is being removed.
  std::size_t rests = 0;
  std::size_t busy = 0;
  /// It has ended attachments, and clients do not know it yet.
  bool has_sent_away = false;
  /// Whose end tells clients that they are sent away.
  std::size_t first_shard = 0;

  explicit lookups_world(std::size_t asking_max = 4) {
    lmcache_server_parts parts;
    parts.answer = [this](const lmcache::incoming& to, std::optional<std::string> frame) {
      answers[to.number].push_back(std::move(frame));
    };
    parts.inbox = inbox;
    parts.counters = counts;
    parts.node = node.as<node_actor>();
    parts.extents = std::make_shared<memory_extents>(1, 8192);
    parts.fetch_time = fetch_time;
    parts.asking_max = asking_max;
    server = spawn<lmcache_server>(std::move(parts));
  }

  std::string send(lmcache::incoming x) {
    x.number = std::to_string(++last_number);
    auto number = x.number;
    inbox->put(std::make_shared<lmcache::incoming>(std::move(x)));
    caf::anon_send(server, caf::update_atom_v);
    serve();
    return number;
  }
  void end_client(lmcache::client_number who) {
    inbox->put(who);
    caf::anon_send(server, caf::update_atom_v);
    serve();
  }
  /// The only answer to a request: a number, or nothing.
  std::optional<std::uint64_t> number_in(const std::string& request) {
    REQUIRE(answers[request].size() == 1);
    const auto frame = answers[request].front();
    if (!frame)
      return std::nullopt;
    for (std::uint64_t i = 0; i < 100; ++i)
      if (*frame == lmcache::protocol::answer(i))
        return i;
    FAIL("no number");
    return std::nullopt;
  }

  /// Answers requests to node and shards until there are none.
  void serve() {
    for (bool any = true; any;) {
      run();
      any = false;
      for (const auto& x : node.take<attach_request, caf::actor>()) {
        any = true;
        if (busy > 0 && busy-- > 0)
          node.reply_error(x, errc::busy);
        else
          node.reply(x, caf::make_message(welcome(x.get<attach_request>(0).ns)));
      }
      for (const auto& x : node.take<owner_quiesced_atom, owner_id>()) {
        ++rests;
        node.reply(x, caf::message());
      }
      for (const auto& x : node.take<caf::leave_atom, owner_id, caf::actor>()) {
        any = true;
        if (has_sent_away)
          node.reply_error(x, errc::not_found);
        else
          node.reply(x, caf::message());
      }
      for (auto& shard : shards) {
        for (const auto& x : shard.take<match_request>()) {
          any = true;
          ++matches;
          shard.reply(x, caf::make_message(match(x.get<match_request>(0))));
        }
        for (const auto& x : shard.take<release_request>()) {
          any = true;
          give_back(shard, x.get<release_request>(0));
          shard.reply(x, caf::message());
        }
        for (const auto& x : shard.take<renew_request>()) {
          ++renewals;
          shard.reply(x, caf::message());
        }
      }
    }
  }
  void pass(duration time) {
    for (constexpr duration step = std::chrono::milliseconds(50); time > duration::zero(); time -= step) {
      advance(std::min(step, time));
      serve();
    }
  }
  attach_reply welcome(const namespace_spec& spec) {
    attach_reply out;
    out.owner = ++last_owner;
    out.ns = spec;
    out.ns_id = spec.id();
    out.limits.batch_keys = 64;
    out.limits.batch_pages = 8;
    out.limits.pinned_bytes = std::uint64_t{1} << 20U;
    out.limits.lease = lease;
    for (std::size_t i = 0; i < shards.size(); ++i)
      out.shards.push_back(shards[(first_shard + i) % shards.size()].as<client_shard_actor>());
    out.ranks.push_back({0, 16, frames.as<client_worker_actor>()});
    if (has_peers)
      out.cluster = peers.as<client_cluster_actor>();
    return out;
  }
  match_reply match(const match_request& x) {
    auto& ns = namespaces[x.ns];
    match_reply out;
    for (const auto& key : x.keys) {
      const bool is_here = ns.here.contains(key);
      if (!is_here && !x.each)
        break;
      if (x.each)
        out.found.items.push_back(is_here ? 1 : 0);
      if (is_here) {
        ++out.matched;
        ns.held[x.lease].insert(key);
      }
    }
    return out;
  }
  /// All that is kept is the first keys of the shard's part, in the order of the lookup.
  void give_back(const probe& shard, const release_request& x) {
    auto& ns = namespaces[x.ns];
    std::uint32_t kept = 0;
    for (const auto& key : keys_of(64))
      if (&shards[shard_of(key, 3)] == &shard && ++kept > x.keep)
        ns.held[x.lease].erase(key);
    if (ns.held[x.lease].empty())
      ns.held.erase(x.lease);
  }

  /// A worker with a group of layers for each of these numbers.
  std::vector<served*> enroll_groups(std::int64_t instance, const std::vector<std::uint32_t>& layers) {
    std::vector<served*> out;
    lmcache::incoming x;
    x.client = worker;
    x.what = operation::register_context;
    x.instance = instance;
    x.registration = lmcache::context{};
    for (const auto count : layers) {
      auto spec = small_namespace();
      spec.geometry.layers = count;
      spec.group_of = layers.size() > 1 ? "groups" : "";
      x.registration->groups.push_back({spec, {}});
      out.push_back(&namespaces[spec.id()]);
      out.back()->spec = spec;
    }
    const auto number = send(std::move(x));
    REQUIRE(answers[number].size() == 1);
    return out;
  }
  served& enroll(std::int64_t instance, std::uint32_t layers = 2) { return *enroll_groups(instance, {layers}).front(); }
  bool ping(std::int64_t instance) {
    lmcache::incoming x;
    x.client = worker;
    x.what = operation::ping;
    x.instance = instance;
    return answers[send(std::move(x))].front() == lmcache::protocol::answer(true);
  }
  std::string prepare_store(std::int64_t instance) {
    lmcache::incoming x;
    x.client = worker;
    x.what = operation::prepare_store;
    x.instance = instance;
    x.chunks.model = "model";
    x.chunks.world_size = 1;
    x.chunks.worker = 0;
    x.chunks.request = "store";
    x.chunks.end = 3;
    x.chunks.keys = keys_of(3);
    return send(std::move(x));
  }
  void leave(std::int64_t instance) {
    lmcache::incoming x;
    x.client = worker;
    x.what = operation::unregister_context;
    x.instance = instance;
    send(std::move(x));
  }
  void look_up(const std::string& request, std::uint32_t count, lmcache::client_number client = scheduler) {
    lmcache::incoming x;
    x.client = client;
    x.what = operation::lookup;
    x.chunks.model = "model";
    x.chunks.world_size = 1;
    x.chunks.request = request;
    x.chunks.readers = 1;
    x.chunks.end = count;
    x.chunks.keys = keys_of(count);
    CHECK_FALSE(number_in(send(std::move(x))));
  }
  std::string ask_status(const std::string& request, duration patience, lmcache::client_number client = scheduler) {
    lmcache::incoming x;
    x.client = client;
    x.what = operation::wait_prefetch_status;
    x.patience = patience;
    x.request = request;
    return send(std::move(x));
  }
  /// The result of the lookup, if it is known.
  std::optional<std::uint64_t> status(const std::string& request, lmcache::client_number client = scheduler) {
    return number_in(ask_status(request, duration::zero(), client));
  }
  void end_session(const std::string& request) {
    lmcache::incoming x;
    x.client = scheduler;
    x.what = operation::end_session;
    x.request = request;
    send(std::move(x));
  }
  received asked() { return peers.take_one<prefix_fetch_request>(); }
  void brought(const received& what, std::uint32_t count) {
    peers.reply(what, caf::make_message(prefix_fetch_reply{count}));
    serve();
  }
  std::set<key_digest> first_keys(std::uint32_t count) {
    const auto keys = keys_of(count);
    return {keys.begin(), keys.end()};
  }
};

struct world_for_one_asker : lookups_world {
  world_for_one_asker() : lookups_world(1) {}
};

} // namespace

TEST_CASE_METHOD(lookups_world, "lmcache lookups: pages fetched from other nodes are found and leased",
                 "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 3);
  look_up("a", 10);
  const auto first = asked();
  const auto& wanted = first.get<prefix_fetch_request>(0);
  CHECK(wanted.ns == ns.spec.id());
  CHECK(wanted.parent == keys_of(3).back());
  const auto all = keys_of(10);
  CHECK(wanted.keys.items == std::vector<key_digest>(all.begin() + 3, all.end()));
  CHECK(wanted.waited == duration::zero());
  CHECK(ns.all_held() == first_keys(3));
  CHECK_FALSE(status("a"));
  // The next pages are local by now, and the peers may have the ones behind them.
  pass(std::chrono::milliseconds(300));
  ns.add(3, 8);
  brought(first, 3);
  const auto second = asked();
  CHECK(second.get<prefix_fetch_request>(0).parent == keys_of(8).back());
  CHECK(second.get<prefix_fetch_request>(0).keys.size() == 2);
  CHECK(second.get<prefix_fetch_request>(0).waited >= std::chrono::milliseconds(300));
  CHECK_FALSE(status("a"));
  CHECK(ns.all_held() == first_keys(8));
  brought(second, 0);
  CHECK(status("a") == 8U);
  // Said once.
  CHECK(status("a") == 0U);
  CHECK(ns.held.size() == 1);
  CHECK(ns.all_held() == first_keys(8));
  CHECK(counts->asked_chunks == 10);
  CHECK(counts->found_chunks == 8);
  end_session("a");
  CHECK(ns.held.empty());
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: no peer is asked without a cluster or when all keys are local",
                 "[lmcache][cluster]") {
  has_peers = GENERATE(false, true);
  auto& ns = enroll(1);
  ns.add(0, has_peers ? 10 : 6);
  look_up("a", 10);
  CHECK(status("a") == (has_peers ? 10U : 6U));
  // One message to each shard, and no other one.
  CHECK(matches == 3);
  CHECK(peers.inbox_size() == 0);
  CHECK(ns.all_held() == first_keys(has_peers ? 10 : 6));
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: other requests are answered while a lookup waits for peers",
                 "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("long", 10);
  const auto first = asked();
  const auto waits = ask_status("long", std::chrono::seconds(10));
  look_up("short", 4);
  CHECK(status("short") == 4U);
  look_up("other", 5, 3);
  const auto second = asked();
  CHECK_FALSE(status("other", 3));
  CHECK(answers[waits].empty());
  // The later one is answered first, if what it asks for comes first.
  ns.add(4, 5);
  brought(second, 1);
  CHECK(status("other", 3) == 5U);
  CHECK(answers[waits].empty());
  ns.add(5, 10);
  brought(first, 6);
  CHECK(number_in(waits) == 10U);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: a peer that fails or times out costs only time",
                 "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("a", 10);
  const auto wanted = asked();
  if (GENERATE(false, true)) {
    peers.reply_error(wanted, errc::unreachable);
    serve();
  } else {
    const auto waits = ask_status("a", std::chrono::minutes(1));
    pass(fetch_time);
    // The cluster decides when to answer.
    CHECK(answers[waits].empty());
    pass(std::chrono::milliseconds(2100));
    CHECK(number_in(waits) == 4U);
    // This reply comes too late.
    ns.add(4, 10);
    matches = 0;
    brought(wanted, 6);
    CHECK(matches == 0);
    CHECK(ns.all_held() == first_keys(4));
    look_up("a", 10);
  }
  CHECK(status("a") >= 4U);
  CHECK(peers.take<prefix_fetch_request>().empty());
  end_session("a");
  CHECK(ns.held.empty());
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: an abandoned lookup releases its leases", "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("a", 10);
  const auto wanted = asked();
  CHECK(ns.all_held() == first_keys(4));
  const auto how = GENERATE(0, 1, 2, 3);
  INFO("how " << how);
  if (how == 0)
    end_session("a");
  if (how == 1)
    end_client(scheduler);
  if (how == 2)
    pass(std::chrono::minutes(31));
  if (how == 3) {
    look_up("a", 4);
    CHECK(ns.held.size() == 1);
    CHECK(status("a") == 4U);
    end_session("a");
  }
  CHECK(ns.held.empty());
  matches = 0;
  ns.add(4, 10);
  brought(wanted, 6);
  CHECK(matches == 0);
  CHECK(ns.held.empty());
  CHECK(status("a") == 0U);
  CHECK(peers.inbox_size() == 0);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: only the prefix that all workers find is leased",
                 "[lmcache][cluster]") {
  auto& one = enroll(1, 2);
  auto& two = enroll(2, 3);
  one.add(0, 2);
  two.add(0, 9);
  look_up("a", 10);
  auto wanted = peers.take<prefix_fetch_request>();
  REQUIRE(wanted.size() == 2);
  if (wanted[0].get<prefix_fetch_request>(0).ns != one.spec.id())
    std::swap(wanted[0], wanted[1]);
  CHECK(wanted[0].get<prefix_fetch_request>(0).keys.size() == 8);
  CHECK(wanted[1].get<prefix_fetch_request>(0).keys.size() == 1);
  two.add(9, 10);
  brought(wanted[1], 1);
  CHECK(two.all_held() == first_keys(10));
  CHECK_FALSE(status("a"));
  one.add(2, 5);
  brought(wanted[0], 3);
  CHECK(status("a") == 5U);
  CHECK(one.all_held() == first_keys(5));
  CHECK(two.all_held() == first_keys(5));
  end_session("a");
  CHECK(one.held.empty());
  CHECK(two.held.empty());
}

TEST_CASE_METHOD(world_for_one_asker,
                 "lmcache lookups: a lookup beyond the limit of peer requests finds local pages only",
                 "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("a", 10);
  const auto wanted = asked();
  look_up("b", 10);
  CHECK(status("b") == 4U);
  CHECK(peers.inbox_size() == 0);
  // A cancelled lookup keeps its place until its peers have answered.
  end_session("a");
  look_up("c", 10);
  CHECK(status("c") == 4U);
  brought(wanted, 0);
  look_up("d", 10);
  CHECK_FALSE(status("d"));
  brought(asked(), 0);
  CHECK(status("d") == 4U);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: pages that can no longer be loaded are not found",
                 "[lmcache][cluster]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("a", 10);
  const auto wanted = asked();
  leave(1);
  ns.add(4, 10);
  brought(wanted, 6);
  CHECK(status("a") == 0U);
  CHECK(ns.held.empty());
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: a lease taken before peers were asked is renewed in time",
                 "[lmcache][cluster]") {
  lease = std::chrono::milliseconds(2100);
  auto& ns = enroll(1);
  ns.add(0, 6);
  look_up("a", 10);
  const auto wanted = asked();
  pass(std::chrono::milliseconds(1900));
  CHECK(renewals == 0);
  brought(wanted, 0);
  pass(std::chrono::milliseconds(150));
  CHECK(renewals == 3);
  CHECK(status("a") == 6U);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: leases on groups taken before peers were asked are renewed in time",
                 "[lmcache][cluster]") {
  lease = std::chrono::milliseconds(2100);
  for (auto* const ns : enroll_groups(1, {2, 3}))
    ns->add(0, 6);
  look_up("a", 10);
  const auto wanted = peers.take<search_peers_request>();
  REQUIRE(wanted.size() == 2);
  pass(std::chrono::milliseconds(1900));
  CHECK(renewals == 0);
  for (const auto& x : wanted)
    peers.reply(x, caf::make_message(search_peers_reply{}));
  serve();
  pass(std::chrono::milliseconds(150));
  CHECK(renewals == 6);
  CHECK(status("a") == 6U);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: a namespace removed by force is detached and registered again",
                 "[lmcache]") {
  auto& ns = enroll(1);
  ns.add(0, 4);
  look_up("a", 4);
  CHECK(status("a") == 4U);
  CHECK(ping(1));
  // The shard dies, as for clients that the node disconnects.
  shards[0].die();
  serve();
  // Both the worker's attachment and that of lookups.
  CHECK(rests == 2);
  CHECK_FALSE(ping(1));
  CHECK(ping(1));
  first_shard = 1;
  busy = 2;
  lmcache::incoming again;
  again.client = worker;
  again.what = operation::register_context;
  again.instance = 1;
  again.registration = lmcache::context{{{small_namespace(), {}}}};
  const auto number = send(std::move(again));
  CHECK(answers[number].empty());
  pass(std::chrono::seconds(1));
  REQUIRE(answers[number].size() == 1);
  CHECK(answers[number].front() != lmcache::protocol::refusal(operation::register_context));
  CHECK(ping(1));
  CHECK(rests == 2);
}

TEST_CASE_METHOD(lookups_world, "lmcache lookups: a store that gets no frames is refused in time", "[lmcache]") {
  enroll(1);
  const auto number = prepare_store(1);
  const bool has_slots = GENERATE(false, true);
  if (has_slots)
    for (auto& shard : shards)
      for (const auto& x : shard.take<reserve_request>()) {
        reserve_reply granted;
        granted.results.items.assign(x.get<reserve_request>(0).keys.size(), location{});
        shard.reply(x, caf::make_message(granted));
      }
  serve();
  const auto placing = frames.take<place_atom, frame_request>();
  CHECK(placing.size() == (has_slots ? 1 : 0));
  CHECK(answers[number].empty());
  pass(std::chrono::seconds(32));
  REQUIRE(answers[number].size() == 1);
  CHECK(answers[number].front() == lmcache::protocol::refusal(operation::prepare_store));
  if (!has_slots)
    return;
  // Leases that are granted too late are released.
  frame_reply late{5, {}};
  late.frames.items.assign(3, page_frame{});
  frames.reply(placing.front(), caf::make_message(late));
  run();
  CHECK(frames.take_one<fill_atom, fill_request>().get<fill_request>(1).pin == 5);
  CHECK(answers[number].size() == 1);
}

TEST_CASE_METHOD(lookups_world,
                 "lmcache lookups: clients of the server are quiesced even if they cannot detach any more",
                 "[lmcache]") {
  enroll(1);
  has_sent_away = GENERATE(false, true);
  leave(1);
  CHECK(rests == 2);
}

} // namespace lmcache_lookups_test
