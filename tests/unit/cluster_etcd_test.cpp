#include "actors/cluster/etcd/etcd_rules.hpp"
#include "fuzz/etcd_answers.hpp"
#include "tests/catch.hpp"
#include "tests/unit/damaged_text.hpp"
#include "tests/unit/transfer_support.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace cluster_etcd_test {

namespace {

using namespace troupe;
using namespace troupe::cluster;
using nlohmann::json;
using test::ms;
using test::t0;

constexpr duration lease = 10000 * ms;
constexpr duration longest_pause = 800 * ms;
const std::string prefix = "/troupe/ours/nodes/";

std::string base64(std::string_view x) {
  // The body is built by the production code, which another test compares with what etcd accepts.
  return json::parse(put_body(x, "", 1)).at("key").get<std::string>();
}

/// A model of etcd with one prefix, as far as the rules see it. Answers are in etcd's format.
struct etcd_model {
  struct row {
    std::string value;
    std::int64_t lease = 0;
    std::int64_t revision = 0;
  };

  json header() const { return {{"revision", std::to_string(revision)}, {"raft_term", "2"}}; }
  static json entry(const std::string& key, const row& x) {
    return {{"key", base64(key)}, {"value", base64(x.value)}, {"mod_revision", std::to_string(x.revision)}};
  }
  std::string line(const json& event) const {
    json inner{{"header", header()}};
    inner["events"] = json::array({event});
    return json{{"result", inner}}.dump();
  }
  static etcd_reply fine(const json& x) { return {200, x.dump()}; }
  static etcd_reply refused(unsigned status, int code, const std::string& why) {
    return {status, json{{"error", why}, {"code", code}}.dump()};
  }

  etcd_reply answer(const etcd_request& x) {
    const auto body = json::parse(x.body);
    if (x.path == "/v3/lease/grant") {
      if (full)
        return refused(429, 8, "etcdserver: mvcc: database space exceeded");
      leases.push_back(++last_lease);
      return fine({{"header", header()}, {"ID", std::to_string(last_lease)}, {"TTL", body.at("TTL")}});
    }
    if (x.path == "/v3/kv/put") {
      if (full)
        return refused(429, 8, "etcdserver: mvcc: database space exceeded");
      const auto id = std::stoll(body.at("lease").get<std::string>());
      if (std::ranges::find(leases, id) == leases.end())
        return refused(404, 5, "etcdserver: requested lease not found");
      // Only this node puts, at its own address.
      put(own_key, write_listed(self), id);
      return fine({{"header", header()}});
    }
    if (x.path == "/v3/lease/keepalive") {
      const auto id = body.at("ID").get<std::string>();
      json inner{{"header", header()}, {"ID", id}};
      if (std::ranges::find(leases, std::stoll(id)) != leases.end())
        inner["TTL"] = "10";
      return fine({{"result", inner}});
    }
    json out{{"header", header()}};
    for (const auto& [key, kept] : rows)
      out["kvs"].push_back(entry(key, kept));
    return fine(out);
  }
  /// Puts a key and returns it as a line of a watch.
  std::string put(const std::string& key, const std::string& value, std::int64_t of = 0) {
    rows[key] = {value, of, ++revision};
    return last_line = line({{"kv", entry(key, rows[key])}});
  }
  std::string remove(const std::string& key) {
    rows.erase(key);
    ++revision;
    const json kv{{"key", base64(key)}, {"mod_revision", std::to_string(revision)}};
    return line({{"type", "DELETE"}, {"kv", kv}});
  }
  void end_leases() {
    leases.clear();
    std::erase_if(rows, [&](const auto& x) { return x.second.lease != 0; });
    ++revision;
  }

  listed_node self{"self", 7};
  std::string own_key = prefix + "me:7000";
  std::map<std::string, row> rows;
  std::vector<std::int64_t> leases;
  std::int64_t revision = 1;
  std::int64_t last_lease = 100;
  bool full = false;
  /// The last change as a watch reports it.
  std::string last_line;
};

struct listed {
  explicit listed(std::uint64_t seed = 3)
      : rules({"etcd:2379", prefix, "me:7000", {"self", 7}, lease, 10 * ms, longest_pause, seed}), effects(rules) {}

  std::optional<etcd_request> request() {
    rules.on_time(now);
    const auto all = effects.take<etcd_request>();
    REQUIRE(all.size() <= 1);
    if (all.empty())
      return std::nullopt;
    return all.front();
  }
  /// Answers due requests until there are none, at the present time.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      const auto x = request();
      if (!x)
        return;
      rules.on_answer(x->number, etcd.answer(*x), now);
      look();
      if (x->path == "/v3/kv/put" && !watches.empty())
        rules.on_watch(watches.back().number, etcd.last_line, now);
    }
    FAIL("it never becomes quiet");
  }
  void look() {
    for (auto& x : effects.take<etcd_watch>())
      watches.push_back(std::move(x));
  }
  void fail_once() {
    const auto x = request();
    REQUIRE(x);
    rules.on_answer(x->number, fail(errc::timeout, "it takes too long"), now);
  }
  /// Advances the time by `by` and answers every request.
  void pass(duration by) {
    const auto until = now + by;
    while (rules.next_event() <= until) {
      now = std::max(now, rules.next_event());
      settle();
    }
    now = until;
  }
  std::vector<std::string> members() {
    for (const auto& x : effects.take<etcd_members>())
      last_members = x.addresses;
    return last_members;
  }
  /// The watch in progress.
  etcd_watch watch() {
    look();
    REQUIRE_FALSE(watches.empty());
    return watches.back();
  }
  static std::string entry(const char* node, std::uint64_t incarnation = 9) {
    return write_listed({node, incarnation});
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> out;
    for (const auto& x : effects.take<etcd_notified>())
      if (x.bad)
        out.push_back(x.text);
    return out;
  }

  using names = std::vector<std::string>;
  timestamp now = t0;
  etcd_model etcd;
  etcd_rules rules;
  test::effects_of<etcd_rules, etcd_effect> effects;
  std::vector<std::string> last_members;
  std::vector<etcd_watch> watches;
};

using names = listed::names;

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("etcd: a node registers itself, reads the list and watches from that revision", "[cluster][etcd]") {
  listed x;
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.settle();
  CHECK(x.members() == names{"a:7000", "me:7000"});
  CHECK(x.rules.stats().registered);
  CHECK(x.rules.stats().up);
  CHECK(x.etcd.rows.at(prefix + "me:7000").lease == x.etcd.leases.front());
  const auto watch = x.watch();
  CHECK(x.watches.size() == 1);
  CHECK(watch.body == watch_body(prefix, 3));
  x.rules.on_watch(watch.number, x.etcd.put(prefix + "b:7000", x.entry("b")), x.now);
  CHECK(x.members() == names{"a:7000", "b:7000", "me:7000"});
  x.rules.on_watch(watch.number, x.etcd.remove(prefix + "a:7000"), x.now);
  CHECK(x.members() == names{"b:7000", "me:7000"});
  CHECK(x.warnings().empty());
  CHECK(x.rules.deregistration()->body == keep_alive_body(x.etcd.leases.front()));
}

TEST_CASE("etcd: the lease is kept alive, and there is one only", "[cluster][etcd]") {
  listed x;
  x.pass(20 * lease);
  CHECK(x.etcd.leases.size() == 1);
  CHECK(x.rules.stats().failed == 0);
  // Three times per lease, and the list once.
  CHECK(x.rules.stats().requests <= 20 * 4 + 10);
  // Entries that the watch has already reported are no changes when the list is read again.
  CHECK(x.watches.size() == 1);
}

TEST_CASE("etcd: an expired lease is replaced and the entry registered again", "[cluster][etcd]") {
  listed x;
  x.settle();
  x.etcd.end_leases();
  x.pass(lease);
  CHECK(x.etcd.leases.size() == 1);
  CHECK(x.etcd.rows.contains(x.etcd.own_key));
  CHECK(x.rules.stats().leases_lost == 1);
  CHECK(x.warnings().size() == 1);
  // The same holds where it expires between the grant and the put.
  listed y;
  auto grant = y.request();
  y.rules.on_answer(grant->number, y.etcd.answer(*grant), y.now);
  y.etcd.end_leases();
  y.pass(lease);
  CHECK(y.rules.stats().registered);
  CHECK(y.rules.stats().leases_lost == 1);
}

TEST_CASE("etcd: a removed entry is registered again", "[cluster][etcd]") {
  listed x;
  x.settle();
  SECTION("the watch reports it") {
    x.rules.on_watch(x.watch().number, x.etcd.remove(x.etcd.own_key), x.now);
  }
  SECTION("the list reports it and the watch does not") {
    x.etcd.remove(x.etcd.own_key);
  }
  SECTION("the entry was replaced by invalid data") {
    x.rules.on_watch(x.watch().number, x.etcd.put(x.etcd.own_key, "?"), x.now);
  }
  x.pass(2 * lease);
  REQUIRE(x.etcd.rows.contains(x.etcd.own_key));
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value) == x.etcd.self);
  CHECK(x.etcd.leases.size() == 1);
}

TEST_CASE("etcd: an outage is reported once and changes no list", "[cluster][etcd]") {
  listed x;
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.settle();
  const auto known = x.members();
  for (int i = 0; i < 40; ++i) {
    x.now = std::max(x.now, x.rules.next_event());
    x.fail_once();
    // Both tracks go on, and neither without a pause that is bounded.
    CHECK(x.rules.next_event() <= x.now + longest_pause);
  }
  CHECK(x.members() == known);
  CHECK(contains(x.rules.trouble(), "cannot be read from etcd at etcd:2379"));
  CHECK_FALSE(x.rules.stats().up);
  CHECK_FALSE(x.rules.deregistration());
  CHECK(x.warnings().size() <= 2);
  x.pass(lease);
  CHECK(x.rules.trouble().empty());
  CHECK(x.rules.stats().up);
  const auto notified = x.effects.take<etcd_notified>();
  CHECK(std::ranges::count_if(notified, [](const auto& t) { return contains(t.text, "answers again"); }) == 1);
}

TEST_CASE("etcd: a full etcd is still read", "[cluster][etcd]") {
  listed x;
  x.etcd.full = true;
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.pass(3 * lease);
  CHECK(x.members() == names{"a:7000"});
  CHECK(contains(x.rules.trouble(), "other nodes cannot find it: etcdserver: mvcc: database space exceeded"));
  x.etcd.full = false;
  x.pass(lease);
  CHECK(x.rules.trouble().empty());
  CHECK(x.rules.stats().registered);
}

TEST_CASE("etcd: after a watch ends the list is read again and the watch is restarted", "[cluster][etcd]") {
  listed x;
  x.settle();
  const auto watch = x.watch();
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  SECTION("the connection ended") {
    x.rules.on_watch_end(watch.number, x.now);
  }
  SECTION("the revision was compacted") {
    x.rules.on_watch(watch.number, R"({"result":{"header":{"raft_term":"2"},"canceled":true,"compact_revision":"4"}})",
                     x.now);
  }
  SECTION("the watch was refused") {
    x.rules.on_watch(watch.number, R"({"error":{"grpc_code":16,"message":"etcdserver: invalid auth token"}})", x.now);
  }
  SECTION("the event was invalid") {
    x.rules.on_watch(watch.number, R"({"result":{"events":[{"kv":{"key":"?"}}]}})", x.now);
  }
  CHECK(x.rules.next_event() <= x.now + longest_pause);
  x.pass(longest_pause);
  CHECK(x.members() == names{"a:7000", "me:7000"});
  const auto next = x.watch();
  CHECK(next.number != watch.number);
  CHECK(next.body == watch_body(prefix, x.etcd.revision + 1));
  // Events of the old watch are ignored.
  x.rules.on_watch(watch.number, x.etcd.remove(prefix + "a:7000"), x.now);
  CHECK(x.members() == names{"a:7000", "me:7000"});
  // A watch that ends repeatedly is restarted with growing pauses.
  auto number = next.number;
  int begun = 0;
  const auto until = x.now + 10 * longest_pause;
  while (x.now < until) {
    x.rules.on_watch_end(number, x.now);
    x.now = std::max(x.now, x.rules.next_event());
    x.settle();
    begun += x.watch().number != number ? 1 : 0;
    number = x.watch().number;
  }
  CHECK(begun < 40);
}

TEST_CASE("etcd: a silently dead watch is detected by the list", "[cluster][etcd]") {
  listed x;
  x.settle();
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.pass(lease + longest_pause);
  CHECK(x.members() == names{"a:7000", "me:7000"});
  CHECK(x.watches.size() == 2);
  CHECK(x.watch().body == watch_body(prefix, x.etcd.revision + 1));
}

TEST_CASE("etcd: events older than the list change nothing", "[cluster][etcd]") {
  listed x;
  const auto old = x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.etcd.remove(prefix + "a:7000");
  x.settle();
  x.rules.on_watch(x.watch().number, old, x.now);
  CHECK(x.members() == names{"me:7000"});
}

TEST_CASE("etcd: a new etcd store with lower revisions is read and watched", "[cluster][etcd]") {
  listed x;
  for (int i = 0; i < 50; ++i)
    x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.settle();
  x.etcd = {};
  x.etcd.last_lease = 500;
  x.pass(2 * lease);
  CHECK(x.members() == names{"me:7000"});
  CHECK(x.rules.stats().registered);
  x.rules.on_watch(x.watch().number, x.etcd.put(prefix + "b:7000", x.entry("b")), x.now);
  CHECK(x.members() == names{"b:7000", "me:7000"});
}

TEST_CASE("etcd: after a restore from before the registration the entry is registered again", "[cluster][etcd]") {
  listed x;
  for (int i = 0; i < 50; ++i)
    x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.settle();
  // The lease is in the copy, and what lies at its place is not the entry of this node.
  x.etcd.revision = 10;
  x.etcd.put(x.etcd.own_key, "?");
  x.pass(2 * lease);
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value) == x.etcd.self);
  CHECK(x.members() == names{"a:7000", "me:7000"});
  CHECK(x.rules.stats().leases_lost == 0);
  CHECK(x.etcd.leases.size() == 1);
}

TEST_CASE("etcd: after a restore and further writes the entry is registered again", "[cluster][etcd]") {
  listed x;
  for (int i = 0; i < 50; ++i)
    x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.settle();
  // Revisions restart, so the value at its place is older than its entry, and the store is newer.
  x.etcd.revision = 10;
  x.etcd.put(x.etcd.own_key, "?");
  for (int i = 0; i < 100; ++i)
    x.etcd.put(prefix + "b:7000", x.entry("b"));
  x.pass(2 * lease);
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value) == x.etcd.self);
  CHECK(x.etcd.leases.size() == 1);
}

TEST_CASE("etcd: an entry that is registered repeatedly keeps its lease alive", "[cluster][etcd]") {
  listed x;
  x.settle();
  auto asked = x.now;
  std::size_t puts = 0;
  const auto until = x.now + 10 * lease;
  while (x.now < until) {
    // Another program overwrites the entry before each renewal of the lease, or etcd refuses writes for a while.
    x.etcd.full = x.now > t0 + 3 * lease && x.now < t0 + 6 * lease;
    x.rules.on_watch(x.watch().number, x.etcd.put(x.etcd.own_key, "?"), x.now);
    x.now = x.now + lease / 10;
    while (const auto request = x.request()) {
      if (request->path == "/v3/lease/keepalive")
        asked = x.now;
      puts += request->path == "/v3/kv/put" ? 1 : 0;
      x.rules.on_answer(request->number, x.etcd.answer(*request), x.now);
      x.look();
    }
    REQUIRE(x.now - asked < lease / 2);
  }
  CHECK(puts > 20);
  CHECK(x.rules.stats().leases_lost == 0);
}

TEST_CASE("etcd: an invalid entry is skipped, counted and reported once", "[cluster][etcd]") {
  listed x;
  x.etcd.put(prefix + "a:7000", "no JSON");
  x.etcd.put(prefix + "b:70000", x.entry("b"));
  x.etcd.put(prefix + "folder/c:7000", x.entry("c"));
  x.etcd.put(prefix + "d:7000", R"({"node":"d","incarnation":"0"})");
  x.etcd.put(prefix + "e:7000", x.entry("e"));
  x.pass(4 * lease);
  CHECK(x.members() == names{"e:7000", "me:7000"});
  CHECK(x.rules.stats().senseless == 4);
  CHECK(x.warnings().size() == 4);
  // One entry becomes valid, and another one becomes invalid.
  x.etcd.put(prefix + "a:7000", x.entry("a"));
  x.etcd.put(prefix + "e:7000", "{}");
  x.pass(lease);
  CHECK(x.members() == names{"a:7000", "me:7000"});
  CHECK(x.rules.stats().senseless == 4);
  // Entries beyond the limit are skipped.
  for (int i = 0; i < 400; ++i)
    x.etcd.put(prefix + "host-" + std::to_string(i) + ":7000", x.entry("many"));
  x.pass(lease);
  CHECK(x.members().size() == 256);
}

TEST_CASE("etcd: equal node names are reported, and nodes with equal addresses do not overwrite each other",
          "[cluster][etcd]") {
  listed x;
  x.etcd.put(prefix + "a:7000", x.entry("self"));
  x.settle();
  CHECK(x.members() == names{"a:7000", "me:7000"});
  const auto notified = x.warnings();
  REQUIRE(notified.size() == 1);
  CHECK(contains(notified.front(), "the node at a:7000 is also called 'self'"));
  // Another one puts itself where this one is.
  const auto requests = x.rules.stats().requests;
  x.rules.on_watch(x.watch().number, x.etcd.put(x.etcd.own_key, x.entry("other", 8)), x.now);
  x.pass(3 * lease);
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value)->node == "other");
  const auto warned = x.warnings();
  REQUIRE(warned.size() == 1);
  CHECK(contains(warned.front(), "node 'other' is in etcd's list of nodes at me:7000"));
  CHECK(x.rules.stats().requests - requests < 20);
  // When that one is removed, the place is free.
  x.etcd.remove(x.etcd.own_key);
  x.pass(2 * lease);
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value)->node == "self");
}

TEST_CASE("etcd: an entry of an earlier run of this node is replaced", "[cluster][etcd]") {
  listed x;
  x.etcd.put(x.etcd.own_key, x.entry("self", 6));
  x.settle();
  CHECK(read_listed(x.etcd.rows.at(x.etcd.own_key).value) == x.etcd.self);
  CHECK(x.warnings().empty());
}

TEST_CASE("etcd: after any order of failures the list is right and contains this node", "[cluster][etcd]") {
  const auto seed = GENERATE(range(1U, 101U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  listed x(seed);
  std::optional<etcd_watch> watch;
  std::vector<std::string> lines;
  const auto change = [&] {
    const auto key = prefix + "n" + std::to_string(random() % 5) + ":7000";
    lines.push_back(one_in(3) ? x.etcd.remove(key) : x.etcd.put(key, one_in(8) ? "?" : x.entry("n", random() + 1U)));
  };
  for (int step = 0; step < 300; ++step) {
    if (one_in(3))
      change();
    if (one_in(20))
      x.etcd.end_leases();
    if (one_in(20))
      lines.push_back(x.etcd.remove(x.etcd.own_key));
    if (one_in(30))
      x.etcd.full = !x.etcd.full;
    if (one_in(2))
      x.now = std::max(x.now, std::min(x.rules.next_event(), x.now + lease));
    if (const auto asked = x.request()) {
      // Done and not answered, answered late, refused, nonsense, or fine.
      const auto answer = one_in(2) ? std::optional(x.etcd.answer(*asked)) : std::nullopt;
      change();
      if (!answer || one_in(4))
        x.rules.on_answer(asked->number, fail(errc::timeout, "late"), x.now);
      else if (one_in(6))
        x.rules.on_answer(asked->number, etcd_reply{one_in(2) ? 200U : 503U, "nonsense"}, x.now);
      else
        x.rules.on_answer(asked->number, *answer, x.now);
      x.rules.on_answer(asked->number, x.etcd.answer({0, "/v3/kv/range", "{}"}), x.now);
    }
    for (const auto& w : x.effects.take<etcd_watch>()) {
      watch = w;
      lines.clear();
    }
    if (watch && one_in(10))
      x.rules.on_watch_end(watch->number, x.now);
    else if (watch && !lines.empty() && !one_in(4))
      x.rules.on_watch(watch->number, lines.front(), x.now);
    if (!lines.empty())
      lines.erase(lines.begin());
    REQUIRE(x.rules.next_event() <= x.now + lease);
  }
  x.etcd.full = false;
  x.pass(3 * lease);
  names right;
  for (const auto& [key, row] : x.etcd.rows)
    if (read_listed(row.value))
      right.push_back(key.substr(prefix.size()));
  CHECK(x.members() == right);
  CHECK(x.etcd.rows.contains(x.etcd.own_key));
  CHECK(x.rules.trouble().empty());
  CHECK(x.rules.stats().registered);
}

TEST_CASE("etcd: requests and responses match the format of etcd", "[cluster][etcd]") {
  // The messages are as etcd 3.4 was seen to accept and answer them.
  CHECK(put_body("/troupe/a/1", "hi", 77) == R"({"key":"L3Ryb3VwZS9hLzE=","lease":"77","value":"aGk="})");
  CHECK(range_body("/troupe/a/") == R"({"key":"L3Ryb3VwZS9hLw==","range_end":"L3Ryb3VwZS9hMA=="})");
  CHECK(json::parse(range_body("\xff\xff")).at("range_end") == "AA==");
  CHECK(grant_body(5) == R"({"TTL":"5"})");
  const auto range = read_range(
      {200, R"({"header":{"cluster_id":"324952591200643719","revision":"2"},"kvs":[{"key":"L3Ryb3VwZS9hLzE=",)"
            R"("create_revision":"2","mod_revision":"2","version":"1","value":"aGk=","lease":"2324"}],"count":"1"})"});
  REQUIRE(range);
  CHECK(range->revision == 2);
  CHECK(range->entries == std::vector<etcd_entry>{{"/troupe/a/1", "hi", 2, false}});
  CHECK(read_range({404, "Not Found"}).error().text == "the listener there answered with status 404 and is not etcd");
  const auto news = read_watch(R"({"result":{"header":{"revision":"4"},"events":[{"type":"DELETE","kv":{"key":)"
                               R"("L3Ryb3VwZS9hLzE=","mod_revision":"4"}}]}})");
  REQUIRE(news);
  CHECK(news->entries == std::vector<etcd_entry>{{"/troupe/a/1", "", 4, true}});
  for (const auto* good : {"a:1", "10.0.0.1:65535", "[::1]:7000", "[fe80::1%eth0]:7000", "cache-1.example:7000"})
    CHECK(is_listed_address(good));
  for (const auto* bad : {"", "a", ":1", "a:", "a:0", "a:01", "a:65536", "::1:7000", "[]:1", "[a]:1", "a b:1", "a/b:1"})
    CHECK_FALSE(is_listed_address(bad));
}

TEST_CASE("etcd: the corpus of etcd responses is read as before, and damaged ones are valid or refused",
          "[cluster][etcd][fuzz]") {
  const std::map<std::string, int> accepted{{"grant", 3},   {"put", 2},      {"range", 2},     {"keep-alive", 2},
                                            {"over", 2},    {"watch", 1},    {"refused", 1},   {"compacted", 1},
                                            {"created", 1}, {"listed", 1},   {"senseless", 0}, {"not-etcd", 0},
                                            {"login", 3},   {"bad-token", 1}};
  std::mt19937 random(5);
  const test::text_damage damage;
  std::size_t files = 0;
  for (const auto& x :
       std::filesystem::directory_iterator(std::filesystem::path(TROUPE_SOURCE_DIR) / "fuzz/corpus/etcd_answers")) {
    std::ostringstream read;
    read << std::ifstream(x.path(), std::ios::binary).rdbuf();
    const auto name = x.path().filename().string();
    INFO(name);
    if (const auto known = accepted.find(name); known != accepted.end()) {
      ++files;
      CHECK(fuzz::read_etcd_answers(read.str()) == known->second);
    }
    for (int i = 0; i < 300; ++i)
      fuzz::read_etcd_answers(damage(read.str(), random));
  }
  CHECK(files == accepted.size());
}

} // namespace cluster_etcd_test
