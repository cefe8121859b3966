// Why lookups did not hit: how parts of shards are joined, and the sentence for each reason.

#include "cli/screens/explain_screen.hpp"
#include "http/explain/explanation.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace explanation_test {

using namespace troupe;
using namespace troupe::http::explain;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};

namespace_id here() {
  return namespace_of(1).id();
}

/// A part that found `found` of `asked` keys, of which `kept` belong to the prefix of all shards.
explained_part part(std::uint32_t shard, std::uint32_t asked, std::uint32_t found, std::uint32_t kept,
                    ticket name = alice, timestamp when = at(1)) {
  explained_part out;
  auto& x = out.part;
  x = {.at = when, .name = name, .ns = here(), .shard = shard};
  x.asked = asked;
  x.found = found;
  x.kept = kept;
  x.tiers_known = true;
  x.first = key_of(shard);
  if (found < asked) {
    x.state = missing_state::absent;
    x.missing = key_of(100 + shard);
  }
  return out;
}

missing_key absent() {
  missing_key out;
  out.known = part(0, 1, 0, 0, alice, at(100));
  out.ranks = 2;
  out.events_since = at(40);
  out.since_start = true;
  return out;
}

verdict with_event(key_event what) {
  auto x = absent();
  x.known.before = key_note{at(88), 1, what};
  return why_missing(x);
}

bool says(const verdict& x, std::string_view text) {
  INFO(x.text);
  CHECK(x.text.find(text) != std::string::npos);
  return x.text.find(text) != std::string::npos;
}

} // namespace

TEST_CASE("explanation: parts of shards are one lookup, whose prefix is what all found together", "[explain]") {
  // Shard 1 misses the key behind the prefix; shard 0 has found one more, which was released, and shard 2 found all.
  const auto all = join({part(0, 5, 4, 3), part(1, 5, 2, 2), part(2, 2, 2, 2)}, 10);
  REQUIRE(all.size() == 1);
  CHECK(all[0].name == alice);
  CHECK(all[0].asked == 12);
  CHECK(all[0].found == 7);
  REQUIRE(all[0].ends.size() == 1);
  CHECK(all[0].ends[0].part.shard == 1);
}

TEST_CASE("explanation: where the order of missing keys is unknown, all possible first ones are listed", "[explain]") {
  const auto all = join({part(0, 5, 3, 3), part(1, 5, 2, 2)}, 10);
  REQUIRE(all.size() == 1);
  CHECK(all[0].ends.size() == 2);
}

TEST_CASE("explanation: lookups are distinguished by ticket, time and shard, and the newest come first", "[explain]") {
  const auto all =
      join({part(0, 1, 0, 0, {1, 1}, at(1)), part(0, 1, 0, 0, {1, 2}, at(3)), part(0, 1, 0, 0, {1, 1}, at(20)),
            part(1, 1, 0, 0, {1, 1}, at(1)), part(0, 1, 0, 0, {1, 1}, at(2))},
           10);
  REQUIRE(all.size() == 4);
  CHECK(all[0].at == at(20));
  CHECK(all[1].name == ticket{1, 2});
  CHECK(all[2].at == at(1)); // the earlier part counts
  CHECK(all[2].asked == 2);
  CHECK(all[3].asked == 1);
  CHECK(join({part(0, 1, 0, 0, {1, 1}), part(0, 1, 0, 0, {1, 2})}, 1).size() == 1);
}

TEST_CASE("explanation: a lookup that was repeated after a fetch is one", "[explain]") {
  auto second = part(0, 5, 5, 5, {1, 2}, at(3));
  second.part.fetched = 3;
  second.part.on_disk = 1;
  const auto first = part(0, 5, 2, 2, {1, 1}, at(1));
  auto all = join({first, second}, 10);
  REQUIRE(all.size() == 1);
  CHECK(all[0].found == 5);
  CHECK(all[0].fetched == 3);
  CHECK(all[0].on_disk == 1);
  CHECK(all[0].repeats == 1);

  // Another client, other keys, and long before: these are lookups of their own.
  auto other = first;
  other.part.name.owner = 2;
  CHECK(join({other, second}, 10).size() == 2);
  other = first;
  other.part.first = key_of(77);
  CHECK(join({other, second}, 10).size() == 2);
  second.part.at = at(100);
  CHECK(join({first, second}, 10).size() == 2);
}

TEST_CASE("explanation: what was released again counts for no tier", "[explain]") {
  auto x = part(0, 9, 9, 2);
  x.part.fetched = 1;
  x.part.on_disk = 8;
  auto y = part(1, 1, 1, 1);
  y.part.tiers_known = false;
  const auto all = join({x, y}, 10);
  CHECK(all[0].found == 3);
  CHECK(all[0].fetched == 1);
  CHECK(all[0].on_disk == 1);
  CHECK_FALSE(all[0].tiers_known);
}

TEST_CASE("explanation: a refused lookup says so", "[explain]") {
  auto x = part(1, 3, 3, 3);
  x.part.refused = errc::limit_exceeded;
  CHECK(join({part(0, 3, 3, 3), x}, 10)[0].refused == errc::limit_exceeded);
  const auto why = why_refused(errc::limit_exceeded);
  CHECK(why.reason == "lease_refused");
  CHECK(says(why, "registry.max_leases"));
}

TEST_CASE("explanation: each event has its reason, with its time and its rank", "[explain]") {
  const struct {
    key_event what;
    std::string_view reason;
    std::string_view text;
  } expected[] = {
      {key_event::evicted, "evicted", "evicted 12 s before the lookup, because rank 1 needed slots"},
      {key_event::evicted_for_index, "evicted", "registry.memory_bytes"},
      {key_event::evicted_copy, "evicted", "another node had a copy"},
      {key_event::erased, "erased", "erased 12 s before the lookup"},
      {key_event::dropped, "dropped", "was not on disk"},
      {key_event::damaged, "damaged", "the page of rank 1 was damaged"},
      {key_event::reclaimed, "reclaimed", "its write to rank 1 had failed"},
      {key_event::not_restored, "not_restored", "claimed the same slot of rank 1"},
      {key_event::save_without_slot, "save_refused", "rank 1 had no free slot for it 12 s before the lookup"},
      {key_event::save_without_entry, "save_refused", "the index had no room"},
      {key_event::save_over_limit, "save_refused", "registry.max_reserved_pages"},
      {key_event::save_refused, "save_refused", "the namespace could save nothing"},
      {key_event::save_ended, "save_ended", "its save on rank 1 ended 12 s before the lookup"},
  };
  for (const auto& x : expected) {
    const auto why = with_event(x.what);
    CHECK(why.reason == x.reason);
    CHECK(says(why, x.text));
  }
}

TEST_CASE("explanation: a key without an event was never saved, or so long ago that it is not known", "[explain]") {
  auto x = absent();
  CHECK(why_missing(x).reason == "never_saved");
  CHECK(why_missing(x).text == "never saved since the node started (60 s before the lookup)");
  x.since_start = false;
  CHECK(says(why_missing(x), "or removed more than 60 s before the lookup"));
  x.complete_now = true;
  CHECK(says(why_missing(x), "; it is complete now"));
}

TEST_CASE("explanation: a key of another namespace is explained by the fields that differ", "[explain]") {
  auto x = absent();
  x.others = {{"b", true, {{"dtype", "\"bf16\"", "\"fp8\""}, {"salt", {}, {}}}}};
  CHECK(why_missing(x).reason == "other_namespace");
  CHECK(why_missing(x).text == "not saved in this namespace, but in \"b\", whose identity differs in dtype (here "
                               "\"bf16\", there \"fp8\"), salt");
  // A removal from this namespace is the better reason.
  x.known.before = key_note{at(88), 1, key_event::evicted};
  CHECK(why_missing(x).reason == "evicted");
}

TEST_CASE("explanation: an incomplete key names the rank, and what happened there", "[explain]") {
  auto x = absent();
  x.known.part.state = missing_state::incomplete;
  x.known.part.rank = 1;
  x.known.part.ranks_with_page = 1;
  CHECK(why_missing(x).reason == "incomplete");
  CHECK(why_missing(x).text == "not complete: rank 1 had no page of it, and 1 of 2 ranks had");
  x.known.before = key_note{at(88), 1, key_event::damaged};
  CHECK(says(why_missing(x), "; removed 12 s before the lookup: the page of rank 1 was damaged"));
  x.known.part.rank_being_written = true;
  CHECK(says(why_missing(x), "; a client was writing it"));
}

TEST_CASE("explanation: a key that is being saved, or was fetched too late, is explained as such", "[explain]") {
  auto x = absent();
  x.known.before = key_note{at(88), 1, key_event::evicted};
  x.known.arrived = key_note{at(100) + std::chrono::milliseconds(250), 0, key_event::fetched};
  CHECK(why_missing(x).reason == "fetched_too_late");
  CHECK(says(why_missing(x), "250 ms after the lookup"));
  x.known.arrived->at = at(300);
  CHECK(why_missing(x).reason == "evicted");
  x.known.part.state = missing_state::being_saved;
  CHECK(why_missing(x).reason == "being_saved");
}

TEST_CASE("explanation: differences of identities are named, and a salt is not shown", "[explain]") {
  auto a = namespace_of(2);
  CHECK(differences(a, a).empty());
  auto b = a;
  b.name = "no part of the identity";
  CHECK(differences(a, b).empty());
  b.model = "m";
  b.revision = "r";
  b.dtype = "d";
  b.layout = "l";
  b.salt = "a secret";
  b.group_of = "g";
  b.world_size = 4;
  b.geometry = {2, 1, 2, 3, 4, 5, {{1, {}}}};
  const auto all = differences(a, b);
  std::vector<std::string_view> fields;
  for (const auto& x : all) {
    fields.push_back(x.field);
    CHECK((x.here + x.there).find("secret") == std::string::npos);
  }
  CHECK(fields == std::vector<std::string_view>{"model", "revision", "dtype", "layout", "salt", "group of layers",
                                                "world size", "layers", "parts", "heads", "head size", "element bytes",
                                                "block tokens", "further layers"});
  CHECK(all[0].there == "\"m\"");
  CHECK(all[6].here == "2");
  CHECK(all[6].there == "4");
}

TEST_CASE("explanation: ids of lookups are read as they are written", "[explain]") {
  const ticket x{0x0123456789abcdef, 42};
  CHECK(id_of(x) == "0123456789abcdef-2a");
  CHECK(ticket_of(id_of(x)) == x);
  for (const auto* bad : {"", "-", "12", "12-", "-12", "xy-1", "1-2-3", "1-2 ", "11112222333344445-1"})
    CHECK_FALSE(ticket_of(bad));
}

TEST_CASE("explanation: the screen has a line for each lookup and a reason below it", "[explain][screens]") {
  const auto x = nlohmann::json::parse(R"({"kept":true,"events_since_ms":0,"lookups":[
    {"id":"1-2","client":"vllm\u001b","namespace":"qwen","at_ms":0,"asked":1040,"found":1012,"memory":1000,"disk":2,
     "peer":10,"each":false,"ends":[{"reason":"evicted","text":"evicted 12 s before the lookup"}]},
    {"id":"1-1","client":"","namespace":"qwen","at_ms":0,"asked":4,"found":4,"peer":0,"each":false,"ends":[]}]})");
  REQUIRE(cli::is_explanation(x));
  const auto text = cli::explain_screen(x, 200);
  CHECK(text.find("a client in qwen found 4 of 4 blocks  [1-1]\n") != std::string::npos);
  CHECK(text.find("vllm? in qwen found 1,012 of 1,040 blocks: 1,000 in memory, 2 on disk, 10 from other nodes  [1-2]\n"
                  "         block 1,013: evicted 12 s before the lookup\n") != std::string::npos);
  CHECK(text.find("[1-1]") < text.find("[1-2]"));
  for (const std::size_t columns : {40, 80}) {
    const auto narrow = cli::explain_screen(x, columns);
    std::size_t begin = 0;
    for (auto end = narrow.find('\n'); end != std::string::npos; begin = end + 1, end = narrow.find('\n', begin))
      CHECK(end - begin <= columns);
  }
}

TEST_CASE("explanation: the screen lists reasons once, and says why there is nothing to show", "[explain][screens]") {
  auto x = nlohmann::json::parse(R"({"kept":true,"events_since_ms":0,"lookups":[
    {"id":"1-2","client":"a","namespace":"n","at_ms":0,"asked":2,"found":0,"each":false,
     "ends":[{"text":"one"},{"text":"one"}]}]})");
  CHECK(cli::explain_screen(x, 80).find("block 1: one\n") != std::string::npos);
  x["lookups"][0]["ends"].push_back({{"text", "two"}});
  CHECK(cli::explain_screen(x, 80).find("block 1, one of:\n         - one\n         - two\n") != std::string::npos);
  x["lookups"][0]["refused"] = {{"text", "the lease was refused"}};
  CHECK(cli::explain_screen(x, 80).find("block 1") == std::string::npos);
  x["lookups"].clear();
  CHECK(cli::explain_screen(x, 80).find("No such lookup") != std::string::npos);
  x["kept"] = false;
  CHECK(cli::explain_screen(x, 80).find("registry.explain_lookups") != std::string::npos);
  CHECK_FALSE(cli::is_explanation(nlohmann::json::parse("{}")));
  CHECK_FALSE(cli::is_explanation(nlohmann::json::parse(R"({"kept":1,"lookups":[]})")));
}

} // namespace explanation_test
