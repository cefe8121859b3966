#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/lmcache_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace lmcache_groups_test {

/// A node, and clients of LMCache's protocol whose workers have several groups of layers: full attention, a window of
/// two chunks, and states.

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

using namespace lmcache_operation;

constexpr std::uint32_t groups = 3;

json group_json(std::uint32_t layers, std::uint32_t window_chunks, bool recurrent) {
  return {{"num_layers", layers},           {"hidden_dim_size", 64},
          {"dtype_str", "bfloat16"},        {"tokens_per_block", recurrent ? lmcache_chunk : 8},
          {"window_tokens", lmcache_chunk}, {"kv_size", recurrent ? 1 : 2},
          {"window_chunks", window_chunks}, {"recurrent", recurrent}};
}

/// An engine's scheduler and its worker, as of LMCache 0.5.7.
struct engine {
  std::uint16_t port;
  std::int64_t instance;
  lmcache_client scheduler{port};
  lmcache_client worker{port};
  std::unique_ptr<lmcache_pool> pool{};

  engine(std::uint16_t at, std::int64_t id, std::uint32_t window_layers = 1) : port(at), instance(id) {
    enroll(window_layers);
  }

  void enroll(std::uint32_t window_layers) {
    auto registration = lmcache_registration(instance);
    registration["group_layouts"] = {group_json(2, 0, false), group_json(window_layers, 2, false),
                                     group_json(1, 1, true)};
    const auto notified = worker.call(register_worker, {registration});
    REQUIRE(notified);
    pool = std::make_unique<lmcache_pool>(notified->at("shm_name").get<std::string>(),
                                          notified->at("pool_size").get<std::size_t>());
  }
  static json key_of(std::uint32_t sequence, const std::string& request, std::uint32_t begin, std::uint32_t end,
                     std::optional<std::uint32_t> rank) {
    return lmcache_key_of_0_5_7(lmcache_key(sequence, request, begin, end, rank));
  }
  static std::uint8_t value_of(std::uint32_t sequence, std::uint32_t group, std::uint32_t chunk) {
    return static_cast<std::uint8_t>(1 + (sequence * 31 + group * 11 + chunk) % 250);
  }

  std::uint32_t look_up(std::uint32_t sequence, std::uint32_t chunks, const std::string& request,
                        std::uint32_t computed = 0) {
    auto key = key_of(sequence, request, computed, chunks, std::nullopt);
    key["request_configs"] = {{"lmcache.hint.engine_computed_tokens", computed * lmcache_chunk}};
    CHECK_FALSE(scheduler.call(lookup, {key, 1}));
    for (;;)
      if (const auto found = scheduler.call(query, {request}))
        return found->get<std::uint32_t>();
  }
  void end(const std::string& request) { CHECK_FALSE(scheduler.call(end_session, {request})); }

  /// Stores what is not skipped; what slots it got, by group.
  std::optional<std::vector<std::set<std::uint32_t>>> store(std::uint32_t sequence, std::uint32_t begin,
                                                            std::uint32_t end, const std::string& request,
                                                            const json& skipped) {
    const auto key = key_of(sequence, request, begin, end, 0);
    const auto notified = worker.call(prepare_store, {key, instance, skipped});
    REQUIRE(notified);
    const auto& context = notified->at("context");
    if (!context.contains("slots"))
      return std::nullopt;
    std::vector<std::set<std::uint32_t>> out(groups);
    for (std::size_t i = 0; i < context["slots"].size(); ++i) {
      const auto group = context["group_ids"][i].get<std::uint32_t>();
      const auto chunk = begin + context["chunk_indices"][i].get<std::uint32_t>();
      pool->fill(context["slots"][i], value_of(sequence, group, chunk));
      out[group].insert(chunk);
    }
    if (!context["slots"].empty())
      CHECK(worker.call(commit_store, {key, instance, json::binary({})}) == true);
    return out;
  }

  /// Whether it was found; then it is exactly what a hit needs, and right.
  bool retrieve(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end, const std::string& request) {
    const auto key = key_of(sequence, request, begin, end, 0);
    const auto notified = worker.call(prepare_retrieve, {key, instance});
    REQUIRE(notified);
    const bool found = notified->at("success") == true;
    if (found) {
      const auto& context = notified->at("context");
      std::map<std::uint32_t, std::vector<std::uint32_t>> chunks;
      for (std::size_t i = 0; i < context["slots"].size(); ++i) {
        const auto group = context["group_ids"][i].get<std::uint32_t>();
        const auto chunk = context["chunk_indices"][i].get<std::uint32_t>();
        chunks[group].push_back(chunk);
        CHECK(pool->holds(context["slots"][i], value_of(sequence, group, begin + chunk)));
      }
      const auto count = end - begin;
      for (const auto& [group, needed] : {std::pair(0U, count), std::pair(1U, 2U), std::pair(2U, 1U)}) {
        std::vector<std::uint32_t> wanted;
        for (auto i = count - std::min(count, needed); i < count; ++i)
          wanted.push_back(i);
        CHECK(chunks[group] == wanted);
      }
    }
    CHECK(worker.call(commit_retrieve, {key, instance}) == found);
    return found;
  }
};

const json nothing_skipped = json::array();
/// The worker has the states of chunks 1 and 4 alone.
const json some_states{json::array(), json::array(), {0, 2, 3}};

} // namespace

TEST_CASE("lmcache groups: a hit is what every group has, and a retrieve brings exactly what it needs", "[lmcache]") {
  const scratch_directory scratch;
  auto text = lmcache_config(scratch.path(), "strict");
  text["storage"]["disk_bytes"] = "1 GiB"; // two sets of groups have room
  const auto config = write_config(scratch.path(), text);
  std::optional<serving_node> node(std::in_place, config);
  std::optional<engine> one(std::in_place, lmcache_port(node->ready_line()), 1);
  CHECK(one->look_up(1, 5, "a") == 0);
  const auto stored = one->store(1, 0, 5, "a", some_states);
  REQUIRE(stored);
  CHECK((*stored)[0].size() == 5);
  CHECK((*stored)[1].size() == 5);
  CHECK((*stored)[2] == std::set<std::uint32_t>{1, 4});
  one->end("a");

  engine two(lmcache_port(node->ready_line()), 2);
  CHECK(two.look_up(1, 5, "b") == 5);
  CHECK(two.retrieve(1, 0, 5, "b"));
  two.end("b");
  CHECK(two.look_up(1, 4, "c") == 2);
  CHECK_FALSE(two.retrieve(1, 0, 4, "c"));
  CHECK(two.retrieve(1, 0, 2, "c"));
  two.end("c");
  // The engine has two chunks itself, and the answer counts them.
  CHECK(two.look_up(1, 5, "d", 2) == 5);
  CHECK(two.retrieve(1, 2, 5, "d"));
  CHECK(two.look_up(1, 4, "e", 2) == 2);
  CHECK(two.look_up(1, 5, "f", 5) == 5);
  for (const auto* request : {"d", "e", "f"})
    two.end(request);

  // Other groups under the same number.
  two.enroll(2);
  CHECK(two.look_up(1, 5, "g") == 0);
  CHECK_FALSE(two.retrieve(1, 0, 5, "g"));
  CHECK_FALSE(two.worker.call(unregister, {2}));
  CHECK(two.look_up(1, 5, "h") == 5);
  two.end("h");
  // Skipped chunks of other groups than those of the worker.
  CHECK_FALSE(one->store(2, 0, 2, "i", {json::array(), json::array()}));

  node->program().kill();
  one.reset();
  node.emplace(config);
  engine again(lmcache_port(node->ready_line()), 3);
  CHECK(again.look_up(1, 5, "j") == 5);
  CHECK(again.retrieve(1, 0, 5, "j"));
  CHECK(node->stop() == 0);
}

TEST_CASE("lmcache groups: chunks of a window are stored where the worker has all of their blocks", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine one(lmcache_port(node.ready_line()), 1);
  using chunks = std::set<std::uint32_t>;
  // Without a lookup, blocks of the first chunk that is not skipped may be missing.
  auto stored = one.store(1, 0, 4, "a", {json::array(), {0, 1}, json::array()});
  REQUIRE(stored);
  CHECK((*stored)[1] == chunks{3});
  // The engine has computed all behind two chunks.
  CHECK(one.look_up(2, 4, "b", 2) == 2);
  stored = one.store(2, 2, 4, "b", nothing_skipped);
  REQUIRE(stored);
  CHECK((*stored)[1] == chunks{2, 3});
  // After a failed load it computes all again, with what its own cache has by then.
  CHECK(one.look_up(3, 2, "c") == 0);
  REQUIRE(one.store(3, 0, 2, "c", nothing_skipped));
  CHECK(one.look_up(3, 4, "c") == 2);
  stored = one.store(3, 0, 4, "c", nothing_skipped);
  REQUIRE(stored);
  CHECK((*stored)[1] == chunks{2, 3});
  stored = one.store(3, 3, 4, "c", nothing_skipped);
  REQUIRE(stored);
  CHECK((*stored)[1].empty());
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache groups: the pages of a hit are fetched from other nodes, and no others", "[lmcache][cluster]") {
  test_cluster nodes(2);
  nodes.change = [](std::size_t, json& config) {
    config["lmcache"] = {{"enabled", true}, {"port", 0}, {"chunk_tokens", lmcache_chunk}};
    config["storage"] = {{"disk_bytes", "256 MiB"}, {"ranks", json::array()}};
    config["memory"] = {{"bytes", "64 MiB"}};
    config["namespaces"] = json::array();
  };
  for (std::size_t i = 0; i < nodes.all.size(); ++i)
    nodes.start(i);
  engine one(lmcache_port(nodes.node(0).ready_line()), 1);
  engine two(lmcache_port(nodes.node(1).ready_line()), 2);
  for (std::size_t i = 0; i < nodes.all.size(); ++i)
    CHECK(eventually([&] { return sum_of_metric(nodes.node(i), "troupe_peer_namespaces") == groups; }));
  CHECK(one.look_up(1, 5, "a") == 0);
  REQUIRE(one.store(1, 0, 5, "a", some_states));
  one.end("a");
  CHECK(two.look_up(1, 4, "b") == 2);
  CHECK(two.retrieve(1, 0, 2, "b"));
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == 2 + 2 + 1);
  CHECK(two.look_up(1, 5, "c") == 5);
  CHECK(two.retrieve(1, 0, 5, "c"));
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == 5 + 4 + 2);
  nodes.node(0).program().kill();
  CHECK(two.look_up(1, 5, "d") == 5);
  CHECK(two.retrieve(1, 0, 5, "d"));
  CHECK(two.look_up(2, 5, "e") == 0);
  nodes.all[0].reset();
  nodes.stop_all();
}

} // namespace lmcache_groups_test
