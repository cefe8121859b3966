#include "tests/catch.hpp"
#include "tests/integration/hybrid_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// Engines with several groups of layers that know libtroupe.so and nothing else, against nodes in processes of their
/// own.

namespace capi_groups_test {

using namespace troupe::test;
using namespace troupe::test::hybrid;

namespace {

nlohmann::json plain_node(const scratch_directory& scratch) {
  auto out = node_config(scratch.path());
  out["namespaces"] = nlohmann::json::array();
  out["storage"] = {{"ranks", nlohmann::json::array()}};
  out["memory"]["bytes"] = "64 MiB";
  return out;
}

nlohmann::json node_with_http(const scratch_directory& scratch) {
  auto out = plain_node(scratch);
  out["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  return out;
}

} // namespace

TEST_CASE("capi groups: a model with full attention, windows and states loads what each of them needs", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  const auto prompt = prompt_from(3);
  {
    hybrid_engine first(connection.get(), three_groups());
    save(first, prompt);
  }
  hybrid_engine engine(connection.get(), three_groups());
  REQUIRE(engine.matched("load", prompt) == 96);
  // The window needs tokens from 49 on, which are in its fourth block; the state is one.
  const table_list blocks{
      {{30, 31, 32}, {none, none, none, 33, 34, 35}, {none, none, none, 36, 37, 38}, {none, none, 39}}};
  engine.allocated("load", blocks, 96);
  engine.until([&] { return engine.received("load"); });
  CHECK_FALSE(engine.failed("load"));
  for (std::uint32_t t = 0; t < tables; ++t)
    for (std::size_t i = 0; i < blocks[t].size(); ++i)
      if (blocks[t][i] != none)
        CHECK(engine.holds(t, blocks[t][i], hybrid_engine::content(prompt, t, i)));
  // No other block was written. Tables of one group share its memory.
  for (const auto& its : three_groups()) {
    std::set<std::uint32_t> loaded;
    for (const auto t : its.tables)
      loaded.insert(blocks[t].begin(), blocks[t].end());
    for (std::uint32_t block = 0; block < blocks_in_pool; ++block)
      if (!loaded.contains(block))
        CHECK(engine.holds(its.tables.front(), block, 0xEE));
  }
  CHECK_FALSE(engine.finish("load"));
  // An engine that has the first page itself loads what follows.
  CHECK(engine.matched("more", prompt, 32) == 64);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi groups: a hit ends where a state was saved, and needs the window before that", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_with_http(scratch)));
  const auto connection = connect_to(node.address());
  hybrid_engine engine(connection.get(), three_groups());
  const auto prompt = prompt_from(7);
  save(engine, prompt, 64);
  CHECK(engine.matched("shorter", prompt) == 64);
  const table_list blocks{{{30, 31}, {none, 33, 34, 35}, {none, 36, 37, 38}, {none, 39}}};
  engine.allocated("shorter", blocks, 64);
  engine.until([&] { return engine.received("shorter"); });
  CHECK_FALSE(engine.failed("shorter"));
  CHECK(engine.holds(3, 39, hybrid_engine::content(prompt, 3, 1)));
  CHECK(engine.holds(1, 33, hybrid_engine::content(prompt, 1, 1)));
  CHECK(engine.holds(0, 31, hybrid_engine::content(prompt, 0, 1)));
  // A prompt that ends with the state has no token left to compute behind it.
  CHECK(engine.matched("ends there", prompt_from(7, 64)) == 0);
  // A group that has nothing allows no hit.
  CHECK(http(node, "POST", "/v1/namespaces/model.window-48/clear").status == 200);
  hybrid_engine without(connection.get(), three_groups());
  CHECK(without.matched("b", prompt) == 0);
  // An engine with other groups shares none of them.
  auto others = three_groups();
  others[1].tokens = 64;
  for (auto& its : others)
    its.name += "-of-another";
  hybrid_engine another(connection.get(), others);
  CHECK(another.matched("c", prompt) == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi groups: a load of groups fails as a whole when the node is lost, and the request is looked up again",
          "[capi]") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), plain_node(scratch));
  std::optional<serving_node> node(std::in_place, config);
  const auto connection = connect_to(node->address());
  hybrid_engine engine(connection.get(), three_groups());
  const auto prompt = prompt_from(11);
  save(engine, prompt);
  CHECK(engine.matched("lost", prompt) == 96);
  node->program().kill();
  const table_list blocks{
      {{30, 31, 32}, {none, none, none, 33, 34, 35}, {none, none, none, 36, 37, 38}, {none, none, 39}}};
  engine.allocated("lost", blocks, 96);
  engine.until([&] { return engine.received("lost"); });
  CHECK(engine.failed("lost"));
  CHECK(engine.matched("lost", prompt) == 0);
  CHECK_FALSE(engine.finish("lost"));
  // The next node is used like the first one.
  node.emplace(config);
  std::uint32_t first = 1000;
  REQUIRE(eventually([&] {
    first += 200;
    save(engine, prompt_from(first));
    const auto found = engine.matched("again", prompt_from(first));
    engine.finish("again");
    return found == 96;
  }));
  CHECK(node->stop() == 0);
}

TEST_CASE("capi groups: the identity of a group contains all groups, and the node knows that they belong together",
          "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_with_http(scratch)));
  const auto identity = [](const std::vector<shape_of_group>& shapes, std::size_t group) {
    const group_terms terms(shapes);
    std::array<char, 33> digits{};
    const char* name = nullptr;
    call(troupe_group_identity, &terms.all, &terms.engine, group, digits.data(), &name);
    CHECK(name == shapes[group].name);
    return std::string(digits.data());
  };
  const auto shapes = three_groups();
  const auto changed = [&](auto change) {
    auto x = three_groups();
    change(x);
    return identity(x, 0);
  };
  CHECK(changed([](auto&) {}) == identity(shapes, 0));
  CHECK(changed([](auto& x) { x.pop_back(); }) != identity(shapes, 0));
  CHECK(changed([](auto& x) { x[1].tokens = 64; }) != identity(shapes, 0));
  CHECK(changed([](auto& x) { x[2].block_bytes = 640; }) != identity(shapes, 0));
  CHECK(changed([](auto& x) { std::swap(x[1], x[2]); }) != identity(shapes, 0));
  const group_terms terms(shapes);
  std::array<char, 33> digits{};
  CHECK(said_by(troupe_group_identity, &terms.all, &terms.engine, 3U, digits.data(), nullptr).code ==
        TROUPE_OUT_OF_RANGE);

  const auto connection = connect_to(node.address());
  const hybrid_engine engine(connection.get(), shapes);
  std::set<std::string> wholes;
  for (std::size_t g = 0; g < shapes.size(); ++g) {
    const auto shown = nlohmann::json::parse(http(node, "GET", "/v1/namespaces/" + shapes[g].name).body);
    CHECK(shown.at("id") == identity(shapes, g));
    wholes.insert(shown.at("group_of").get<std::string>());
  }
  CHECK(wholes.size() == 1);
  CHECK(node.stop() == 0);
}

TEST_CASE(
    "capi groups: each worker has the groups of its stage, whose numbers of layers differ from those of other stages",
    "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_with_http(scratch)));
  const auto connection = connect_to(node.address());
  std::vector<shape_of_group> shapes(2);
  for (std::uint32_t g = 0; g < 2; ++g) {
    shapes[g].name = "stage-" + std::to_string(g);
    shapes[g].stage = g + 1;
  }
  shapes[1].layers = 1;
  group_terms terms(shapes);
  terms.engine.pipeline_parallel = 2;
  troupe_scheduler* out = nullptr;
  call(troupe_scheduler_create_groups, connection.get(), &terms.all, &terms.engine, &out);
  const capi_handle<troupe_scheduler> scheduler(out);
  std::vector<std::uint8_t> memory(std::size_t{512} * blocks_in_pool);
  for (std::uint32_t number = 0; number < 2; ++number) {
    troupe_worker* made = nullptr;
    call(troupe_worker_create_groups, connection.get(), &terms.all, &terms.engine, number, -1, &made);
    const capi_handle<troupe_worker> worker(made);
    troupe_layer layer{};
    layer.base = memory.data();
    layer.bytes = memory.size();
    layer.block_stride = 512;
    const std::vector<troupe_layer> layers(3, layer);
    // Those of both stages are too many.
    CHECK(said_by(troupe_worker_register, worker.get(), layers.data(), 3U, blocks_in_pool).code ==
          TROUPE_IDENTITY_MISMATCH);
    call(troupe_worker_register, worker.get(), layers.data(), 2U - number, blocks_in_pool);
    CHECK(said_by(troupe_worker_attached, worker.get()).code == 0);
  }
  std::set<std::string> wholes;
  for (const auto& its : shapes) {
    const auto shown = nlohmann::json::parse(http(node, "GET", "/v1/namespaces/" + its.name).body);
    CHECK(shown.at("world_size") == 1);
    wholes.insert(shown.at("group_of").get<std::string>());
  }
  CHECK(wholes.size() == 1);

  const auto identity = [](const std::vector<shape_of_group>& of) {
    group_terms said(of);
    said.engine.pipeline_parallel = 2;
    std::array<char, 33> digits{};
    call(troupe_group_identity, &said.all, &said.engine, 0U, digits.data(), nullptr);
    return std::string(digits.data());
  };
  auto swapped = shapes;
  std::swap(swapped[0].stage, swapped[1].stage);
  CHECK(identity(swapped) != identity(shapes));
  // The stage alone makes a difference.
  auto alike = shapes;
  alike[1] = alike[0];
  alike[1].stage = 2;
  CHECK(identity(alike) != identity(shapes));

  const auto refused = [&](std::uint32_t stage) {
    auto wrong = shapes;
    wrong[1].stage = stage;
    group_terms said(wrong);
    said.engine.pipeline_parallel = 2;
    troupe_scheduler* none = nullptr;
    return said_by(troupe_scheduler_create_groups, connection.get(), &said.all, &said.engine, &none).text;
  };
  CHECK(refused(3).find("stage 3 of 2") != std::string::npos);
  CHECK(refused(0).find("others of all stages") != std::string::npos);
  troupe_worker* none = nullptr;
  CHECK(said_by(troupe_worker_create_groups, connection.get(), &terms.all, &terms.engine, 2U, -1, &none).code ==
        TROUPE_OUT_OF_RANGE);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi groups: groups that contradict each other are refused with a sentence", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  const auto refused = [&](auto change) {
    auto shapes = three_groups();
    change(shapes);
    group_terms terms(shapes);
    troupe_scheduler* out = nullptr;
    const auto said = said_by(troupe_scheduler_create_groups, connection.get(), &terms.all, &terms.engine, &out);
    capi_handle<troupe_scheduler> made(out);
    CHECK(said.code == TROUPE_INVALID_ARGUMENT);
    return said.text;
  };
  CHECK(refused([](auto& x) { x[2].tables = {2}; }).find("block table 2 is in two groups") != std::string::npos);
  CHECK(refused([](auto& x) { x[1].tokens = 0; }).find("window") != std::string::npos);
  CHECK(refused([](auto& x) { x[1].kind = 9; }).find("9 is unknown") != std::string::npos);
  CHECK(refused([](auto& x) { x.clear(); }).find("no groups") != std::string::npos);
  CHECK(refused([](auto& x) { x[0].tables.clear(); }).find("block table") != std::string::npos);
  const auto alike = refused([](auto& x) {
    x[2] = x[0];
    x[2].tables = {3};
  });
  CHECK(alike.find("groups 0 and 2 have the same identity") != std::string::npos);
  group_terms terms(three_groups());
  terms.engine.synchronous_loads = 1;
  troupe_scheduler* scheduler = nullptr;
  CHECK(said_by(troupe_scheduler_create_groups, connection.get(), &terms.all, &terms.engine, &scheduler)
            .text.find("synchronous") != std::string::npos);
  terms.engine.synchronous_loads = 0;
  terms.all.page_tokens = 40;
  CHECK(said_by(troupe_scheduler_create_groups, connection.get(), &terms.all, &terms.engine, &scheduler)
            .text.find("40 tokens") != std::string::npos);
  CHECK(node.stop() == 0);
}

} // namespace capi_groups_test
