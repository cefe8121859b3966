#include "actors/node/registry/request_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"
#include "workload/replay/trace.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <unistd.h>

namespace registry_recorder_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using numbers = std::vector<std::uint64_t>;

constexpr timestamp t0{std::chrono::hours(1)};

key_digest key(std::uint64_t n) {
  return {n, ~n};
}

std::vector<key_digest> keys(const std::vector<std::uint64_t>& ids) {
  std::vector<key_digest> out;
  for (const auto id : ids)
    out.push_back(key(id));
  return out;
}

std::vector<key_digest> parents(const std::vector<std::uint64_t>& ids) {
  std::vector<key_digest> out{key_digest{}};
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    out.push_back(key(ids[i]));
  return out;
}

/// A lookup of these keys, as each of the shards gets its part of it.
void look_up(request_recorder& to, std::uint64_t lookup, const std::vector<std::uint64_t>& ids, std::uint32_t shards) {
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    std::vector<key_digest> part;
    for (const auto id : ids)
      if (id % shards == shard)
        part.push_back(key(id));
    to.looked_up(shard, {1, lookup}, 16, t0 + std::chrono::milliseconds(10 * lookup), part, part);
  }
}

std::vector<numbers> orders(const request_recorder& of) {
  std::vector<numbers> out;
  for (const auto& x : of.requests())
    out.push_back(x.keys);
  return out;
}

} // namespace

TEST_CASE("registry recorder: lookups of one shard are recorded as they arrive", "[registry]") {
  request_recorder x(100);
  look_up(x, 1, {7, 5, 9}, 1);
  look_up(x, 2, {7, 5, 4}, 1);
  CHECK(orders(x) == std::vector<numbers>{{1, 2, 3}, {1, 2, 4}});
  CHECK(x.requests()[1].timestamp_ms == 10);
  CHECK(x.requests()[1].tokens == 48);
}

TEST_CASE("registry recorder: parts from several shards are joined in the order of the saved parents", "[registry]") {
  const auto shards = GENERATE(2U, 3U, 4U);
  std::mt19937 random(shards);
  std::vector<std::uint64_t> path(20);
  for (std::size_t i = 0; i < path.size(); ++i)
    path[i] = 100 + i;
  std::shuffle(path.begin(), path.end(), random);
  request_recorder x(1000);
  look_up(x, 1, path, shards);
  x.saves(keys(path), parents(path));
  auto longer = path;
  longer.push_back(1000);
  look_up(x, 2, longer, shards);
  numbers expected(20);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = i + 1;
  auto more = expected;
  more.push_back(21);
  CHECK(orders(x) == std::vector{expected, more});
}

TEST_CASE("registry recorder: a repeated lookup counts once, and a cycle of parents does not hang the recorder",
          "[registry]") {
  request_recorder x(100);
  look_up(x, 1, {2, 3}, 2);
  look_up(x, 1, {2, 3}, 2);
  x.saves(keys({2, 3}), keys({3, 2}));
  REQUIRE(x.requests().size() == 1);
  CHECK(x.requests()[0].keys.size() == 2);
}

TEST_CASE("registry recorder: only the newest keys are kept, and nothing else", "[registry]") {
  request_recorder x(10);
  for (std::uint64_t i = 0; i < 50; ++i)
    look_up(x, i, {3 * i, 3 * i + 1, 3 * i + 2}, 1);
  CHECK(x.requests().size() == 3);
  CHECK(x.requests()[0].timestamp_ms == 0);
  std::vector<std::uint64_t> many(11);
  look_up(x, 100, many, 1); // does not fit at all
  CHECK(x.requests().size() == 3);
}

TEST_CASE("registry recorder: the recorded requests form a trace", "[registry]") {
  request_recorder x(100);
  look_up(x, 1, {7, 5, 9}, 1);
  look_up(x, 3, {7}, 1);
  const auto file = std::filesystem::temp_directory_path() / ("troupe-recorded-" + std::to_string(::getpid()));
  std::ofstream(file) << x.trace();
  const auto read = replay::read_trace(file, {});
  std::filesystem::remove(file);
  REQUIRE(read);
  CHECK(*read == std::vector<replay::trace_request>{{0, 48, 1, {1, 2, 3}}, {20, 16, 1, {1}}});
}

TEST_CASE("registry recorder: a registry reports lookups and parents to its recorder", "[registry]") {
  registry_options how;
  how.recorder = std::make_shared<request_recorder>(1000);
  one_registry r(1, how);
  must(r.state.add_rank(r.ns, 0, 100));
  const auto path = keys({11, 12, 13});
  r.count(path);
  r.save(path, 0, parents({11, 12, 13}));
  r.count(path);
  CHECK(orders(*how.recorder) == std::vector<numbers>{{1, 2, 3}, {1, 2, 3}});
}

} // namespace registry_recorder_test
