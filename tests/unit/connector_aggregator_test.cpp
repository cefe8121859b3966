#include "connector/output_aggregator.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace connector_aggregator_test {

using namespace troupe::connector;

namespace {

using ids = std::vector<std::string>;

worker_output sent(ids x) {
  worker_output out;
  out.sent = std::move(x);
  return out;
}

worker_output received(ids x) {
  worker_output out;
  out.received = std::move(x);
  return out;
}

worker_output join(output_aggregator& aggregator, const std::vector<worker_output>& outputs) {
  return aggregator.aggregate(outputs);
}

} // namespace

TEST_CASE("connector aggregator: a request is sent or received when every worker has reported it", "[connector]") {
  output_aggregator aggregator{2};
  const auto both = join(aggregator, {sent({"a"}), sent({"a"})});
  CHECK(both.sent == ids{"a"});
  CHECK(both.received.empty());
  CHECK(aggregator.waiting() == 0);

  CHECK(join(aggregator, {received({"b"}), {}}).received.empty());
  CHECK(aggregator.waiting() == 1);
  CHECK(join(aggregator, {{}, received({"b"})}).received == ids{"b"});
  CHECK(aggregator.waiting() == 0);
}

TEST_CASE("connector aggregator: workers report requests in different steps and in different order", "[connector]") {
  output_aggregator aggregator{3};
  CHECK(join(aggregator, {sent({"a", "b"}), sent({"b"}), {}}).sent.empty());
  CHECK(aggregator.waiting() == 2);
  CHECK(join(aggregator, {sent({"c"}), sent({"a"}), sent({"b", "c"})}).sent == ids{"b"});
  CHECK(aggregator.waiting() == 2);
  // Not all workers need to take part in each call.
  CHECK(join(aggregator, {sent({"c", "a"})}).sent == ids{"c", "a"});
  CHECK(aggregator.waiting() == 0);
}

TEST_CASE("connector aggregator: sent and received are counted separately", "[connector]") {
  output_aggregator aggregator{2};
  const auto first = join(aggregator, {sent({"a"}), received({"a"})});
  CHECK(first.sent.empty());
  CHECK(first.received.empty());
  CHECK(aggregator.waiting() == 2);
  const auto second = join(aggregator, {received({"a"}), {}});
  CHECK(second.sent.empty());
  CHECK(second.received == ids{"a"});
  const auto third = join(aggregator, {{}, sent({"a"})});
  CHECK(third.sent == ids{"a"});
  CHECK(third.received.empty());
  CHECK(aggregator.waiting() == 0);
}

TEST_CASE("connector aggregator: a request that is loaded again is counted again", "[connector]") {
  output_aggregator aggregator{2};
  CHECK(join(aggregator, {received({"a"}), received({"a"})}).received == ids{"a"});
  CHECK(join(aggregator, {received({"a"}), {}}).received.empty());
  CHECK(join(aggregator, {{}, received({"a"})}).received == ids{"a"});
}

TEST_CASE("connector aggregator: blocks that one worker could not load count as not loaded", "[connector]") {
  output_aggregator aggregator{3};
  worker_output first;
  first.load_errors = {9, 2};
  worker_output second;
  second.load_errors = {2, 5, 9, 9};
  CHECK(join(aggregator, {first, {}, second}).load_errors == std::vector<block_id>{2, 5, 9});
  CHECK(join(aggregator, {{}, {}, {}}).load_errors.empty());
}

TEST_CASE("connector aggregator: a request that failed on one worker has failed when all have received it",
          "[connector]") {
  output_aggregator aggregator{2};
  auto failed = received({"a"});
  failed.failed = {"a"};
  const auto first = join(aggregator, {failed, received({"b"})});
  CHECK(first.received.empty());
  CHECK(first.failed.empty());
  const auto second = join(aggregator, {received({"b"}), received({"a"})});
  CHECK(second.received == ids{"b", "a"});
  CHECK(second.failed == ids{"a"});
  CHECK(join(aggregator, {received({"a"}), received({"a"})}).failed.empty());
}

TEST_CASE("connector aggregator: outcomes of stores are forwarded, worker by worker", "[connector]") {
  output_aggregator aggregator{2};
  worker_output first;
  first.stores = {{7, {1, 0}}, {4, {1}}};
  worker_output second;
  second.stores = {{4, {0}}, {7, {1, 1}}};
  CHECK(join(aggregator, {first, second}).stores ==
        std::vector<store_outcome>{{7, {1, 0}}, {4, {1}}, {4, {0}}, {7, {1, 1}}});
  CHECK(aggregator.waiting() == 0);
}

TEST_CASE("connector aggregator: a single worker is enough, and no workers report nothing", "[connector]") {
  output_aggregator aggregator{1};
  CHECK(join(aggregator, {sent({"b", "a"})}).sent == ids{"b", "a"});
  const auto none = join(aggregator, {});
  CHECK(none.sent.empty());
  CHECK(none.received.empty());
  CHECK(none.load_errors.empty());
  CHECK(none.stores.empty());
}

TEST_CASE("connector aggregator: however workers lag behind each other, every request is reported once",
          "[connector]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 200; ++round) {
    const auto workers = 1 + random() % 8;
    output_aggregator aggregator{static_cast<std::uint32_t>(workers)};
    ids all;
    for (int i = 0; i < 20; ++i)
      all.push_back("request-" + std::to_string(i));
    std::vector<ids> left(workers, all);
    for (auto& x : left)
      std::ranges::shuffle(x, random);
    ids named;
    while (std::ranges::any_of(left, [](const ids& x) { return !x.empty(); })) {
      std::vector<worker_output> outputs(workers);
      for (std::size_t i = 0; i < workers; ++i)
        for (auto count = random() % 3; count > 0 && !left[i].empty(); --count) {
          outputs[i].received.push_back(left[i].back());
          left[i].pop_back();
        }
      const auto joined = aggregator.aggregate(outputs);
      for (const auto& id : joined.received) {
        // Not before the last worker has named it.
        CHECK(std::ranges::none_of(left, [&id](const ids& x) { return std::ranges::find(x, id) != x.end(); }));
        named.push_back(id);
      }
    }
    std::ranges::sort(named);
    std::ranges::sort(all);
    CHECK(named == all);
    CHECK(aggregator.waiting() == 0);
  }
}

} // namespace connector_aggregator_test
