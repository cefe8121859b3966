#include "tests/catch.hpp"
#include "workload/replay/trace.hpp"

#include <map>
#include <set>

namespace replay_mixed_test {

using namespace troupe;
using namespace troupe::replay;

TEST_CASE("replay mixed: any trailing part of its parameters may be left out, nothing else", "[replay]") {
  CHECK(parse_mixed("mixed").value() == mixed_spec{});
  CHECK(parse_mixed("mixed:").value() == mixed_spec{});
  CHECK(parse_mixed("mixed:7,100,1,0,0,3").value() == mixed_spec{7, 100, 1, 0, 0, 3});
  for (const auto* bad : {"mixed:x", "mixed:1,", "mixed:1,2,3,4,5,6,7", "mixed:1,0", "mixed:1,5,0,0,0,0", "mix"}) {
    INFO(bad);
    const auto x = parse_mixed(bad);
    REQUIRE_FALSE(x.has_value());
    CHECK(x.error().code == errc::invalid_argument);
    CHECK(x.error().text.find("mixed:SEED,REQUESTS") != std::string::npos);
  }
  CHECK(open_trace("mixed:1,100000000", 64, {}).error().code == errc::limit_exceeded);
  CHECK(make_mixed({}, 0, {}).error().code == errc::invalid_argument);
}

TEST_CASE("replay mixed: mixed traffic is reproducible by seed, and its equal blocks are equal prefixes", "[replay]") {
  const auto one = open_trace("mixed:3,3000", 64, {}).value();
  CHECK(one.name == "mixed:3,3000,60,5,15,20");
  REQUIRE(one.requests.size() == 3000);
  CHECK(one.requests == open_trace("mixed:3,3000", 64, {}).value().requests);
  CHECK(one.requests != open_trace("mixed:4,3000", 64, {}).value().requests);
  CHECK(open_trace("mixed:3,3000", 64, 10).value().requests.size() == 10);
  std::map<std::uint64_t, std::uint64_t> parents;
  std::set<std::uint64_t> seen;
  std::uint64_t hits = 0;
  std::uint64_t before = 0;
  for (const auto& x : one.requests) {
    REQUIRE_FALSE(x.hash_ids.empty());
    CHECK(x.timestamp_ms >= before);
    before = x.timestamp_ms;
    auto parent = ~std::uint64_t{0};
    for (const auto id : x.hash_ids) {
      REQUIRE(parents.emplace(id, parent).first->second == parent);
      hits += seen.insert(id).second ? 0 : 1;
      parent = id;
    }
  }
  CHECK(hits > one.blocks() / 2);
  CHECK(hits < one.blocks() * 9 / 10);
}

} // namespace replay_mixed_test
