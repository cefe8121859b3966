#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "connector/live/engine_halves.hpp"
#include "connector/output_aggregator.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "workload/replay/token_memory.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

/// Both halves of a connector with a whole node, on threads and disk.

namespace troupe::test::connector_halves_test {

namespace {

using connector::block_id;
using connector::connector_metadata;
using connector::engine_options;
using connector::matched_tokens;
using connector::scheduled_request;
using connector::token_id;
using connector::worker_output;

constexpr std::uint32_t page_tokens = 4;
constexpr std::uint32_t device_blocks = 64;

std::vector<engine::content> contents_from(engine::content first) {
  std::vector<engine::content> out(page_tokens);
  std::iota(out.begin(), out.end(), first);
  return out;
}

class halves_world {
public:
  explicit halves_world(std::uint32_t world_size = 1) : actors_(config().caf), system_(actors_) {
    auto how = config();
    how.namespaces = {small_namespace(world_size)};
    how.storage.ranks.assign(world_size, {std::uint64_t{64} * 8192 + 4096, {}});
    node_ = *start_node(system_, how);
    connection.where.local = node_->reception();
    connection.where.client_name = "an engine";
    connection.client.transfer.window_bytes = 64 * 8192;
    engine.parallel.tensor_parallel = world_size;
    engine.block_tokens = page_tokens;
    std::vector<rank_number> ranks(world_size);
    std::iota(ranks.begin(), ranks.end(), rank_number{0});
    memory = *replay::token_memory::create(small_namespace().geometry, device_blocks, 1, ranks);
  }

  ~halves_world() {
    scheduler.reset();
    workers.clear();
    CHECK(node_->stop(system_, std::chrono::seconds(30)));
  }

  void start() {
    scheduler = *connector::make_scheduler_half(system_, connection, engine);
    for (std::uint32_t i = 0; i < worker_count(engine.parallel); ++i) {
      workers.push_back(*connector::make_worker_half(system_, connection, engine, i, {}));
      REQUIRE(workers.back()->register_kv_caches(memory->view(i)));
    }
    aggregator.emplace(scheduler->get_finished_count());
  }

  caf::actor_system& system() { return system_; }

  matched_tokens ask(std::string_view id, const std::vector<token_id>& tokens) {
    matched_tokens out;
    REQUIRE(eventually([&] {
      out = scheduler->get_num_new_matched_tokens({.id = id, .tokens = {0, tokens}}, 0);
      return out.tokens.has_value();
    }));
    return out;
  }

  /// Runs the hooks of all workers for the metadata of a step, with `forward(worker)` between them.
  template <class Forward>
  worker_output step(const connector_metadata& meta, Forward forward) {
    std::vector<worker_output> outputs;
    for (std::uint32_t i = 0; i < workers.size(); ++i) {
      auto& half = *workers[i];
      half.handle_preemptions(meta);
      half.bind_connector_metadata(meta);
      forward(i);
      half.start_load_kv();
      half.wait_for_save();
      auto named = half.get_finished({});
      outputs.push_back({std::move(named.sent), std::move(named.received), half.get_block_ids_with_load_errors(),
                         half.build_connector_worker_meta(), std::move(named.failed)});
      half.clear_connector_metadata();
    }
    auto joined = aggregator->aggregate(outputs);
    scheduler->update_connector_output(joined);
    return joined;
  }

  worker_output idle_step() {
    return step(scheduler->build_connector_meta({}), [](std::uint32_t) {});
  }

  void fill(std::uint32_t worker, block_id block, engine::content first) {
    memory->write_tokens(worker, block, 0, contents_from(first));
  }
  bool holds(std::uint32_t worker, block_id block, engine::content first) {
    return memory->holds(worker, block, 0, contents_from(first));
  }

  connector::half_connection connection;
  engine_options engine;
  std::unique_ptr<replay::token_memory> memory;
  std::unique_ptr<connector::scheduler_half> scheduler;
  std::vector<std::unique_ptr<connector::worker_half>> workers;
  std::optional<connector::output_aggregator> aggregator;

private:
  config::node_config config() const {
    config::node_config out;
    out.node_name = "test node";
    out.data_dir = scratch_.path();
    out.statistics_interval = duration::zero();
    return out;
  }

  scratch_directory scratch_;
  system_config actors_;
  caf::actor_system system_;
  std::unique_ptr<running_node> node_;
};

/// Tokens of three full blocks and one more.
std::vector<token_id> prompt_of(token_id first) {
  std::vector<token_id> out(3 * page_tokens + 1);
  std::iota(out.begin(), out.end(), first);
  return out;
}

} // namespace

TEST_CASE("halves: saved pages are found and loaded on all workers", "[connector]") {
  halves_world world(2);
  world.start();
  const auto tokens = prompt_of(1);
  CHECK(world.ask("first", tokens) == matched_tokens{0, false});
  const std::vector<block_id> blocks{3, 1, 2, 9};
  world.scheduler->update_state_after_alloc("first", blocks, 0);
  const scheduled_request part{.id = "first",
                               .computed_tokens = 0,
                               .scheduled_tokens = static_cast<std::uint32_t>(tokens.size()),
                               .blocks = blocks};
  world.step(world.scheduler->build_connector_meta({.new_requests = {&part, 1}}), [&](std::uint32_t worker) {
    for (std::size_t i = 0; i < 3; ++i)
      world.fill(worker, blocks[i], 100 * (i + 1));
  });
  // On a busy machine, all may have been saved before the step had ended: then no blocks are kept.
  if (world.scheduler->request_finished("first"))
    REQUIRE(eventually([&] { return world.idle_step().sent == std::vector<std::string>{"first"}; }));
  CHECK(world.scheduler->take_events().size() == 1);

  CHECK(world.ask("second", tokens) == matched_tokens{3 * page_tokens, true});
  const std::vector<block_id> others{20, 30, 10, 40};
  world.scheduler->update_state_after_alloc("second", others, 3 * page_tokens);
  REQUIRE(eventually([&] {
    const auto output = world.idle_step();
    CHECK(output.load_errors.empty());
    return !output.received.empty();
  }));
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(world.holds(worker, others[i], 100 * (i + 1)));
    const auto stats = world.workers[worker]->get_kv_connector_stats();
    CHECK(stats.num_transfer_task == 2);
    CHECK(stats.num_failed_load == 0);
    CHECK(stats.hit_tokens == 3 * page_tokens);
  }
  CHECK_FALSE(world.scheduler->request_finished("second"));
  CHECK(world.scheduler->tracked_requests() == 0);
}

TEST_CASE("H1 halves: overwriting the blocks of a preempted request at once produces no wrong page",
          "[connector][hazards]") {
  halves_world world;
  world.start();
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::minstd_rand random(seed);
  std::size_t found = 0;
  // Long enough that a save has ended at times, and so short that it has not at others, however quick the machine is.
  auto longest = std::chrono::microseconds(400);
  for (token_id round = 0; round < 200; ++round) {
    const auto id = "r" + std::to_string(round);
    const auto tokens = prompt_of(1000 * round);
    const auto right = engine::content{1'000'000} + 1000 * round;
    world.ask(id, tokens);
    const std::vector<block_id> blocks{1, 2, 3, 4};
    world.scheduler->update_state_after_alloc(id, blocks, 0);
    const scheduled_request part{.id = id,
                                 .computed_tokens = 0,
                                 .scheduled_tokens = static_cast<std::uint32_t>(tokens.size()),
                                 .blocks = blocks};
    world.step(world.scheduler->build_connector_meta({.new_requests = {&part, 1}}), [&](std::uint32_t) {
      for (std::size_t i = 0; i < 3; ++i)
        world.fill(0, blocks[i], right + 10 * i);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (longest.count() + 1)));
    const std::string_view preempted = id;
    world.step(world.scheduler->build_connector_meta({.preempted = {&preempted, 1}}), [&](std::uint32_t) {
      for (std::size_t i = 0; i < 3; ++i)
        world.fill(0, blocks[i], 7); // another request's
    });
    CHECK_FALSE(world.scheduler->request_finished(id));

    // Whatever the cache has of it now is right.
    const auto again = id + " again";
    REQUIRE(eventually([&] {
      world.idle_step();
      return world.scheduler->tracked_requests() == 0;
    }));
    const auto matched = world.ask(again, tokens).tokens.value();
    longest = matched == 0 ? std::min(longest * 2, std::chrono::microseconds(50'000)) : longest * 3 / 4;
    const std::vector<block_id> others{11, 12, 13, 14};
    world.scheduler->update_state_after_alloc(again, others, matched);
    if (matched > 0) {
      REQUIRE(eventually([&] {
        const auto output = world.idle_step();
        CHECK(output.load_errors.empty());
        return !output.received.empty();
      }));
      for (std::uint32_t i = 0; i < matched / page_tokens; ++i, ++found)
        CHECK(world.holds(0, others[i], right + 10 * i));
    }
    world.scheduler->request_finished(again);
    world.idle_step();
  }
  INFO(found << " pages were saved before their request was preempted");
  CHECK(world.scheduler->tracked_requests() == 0);
}

TEST_CASE("halves: shutdown is idempotent and later calls do nothing", "[connector]") {
  halves_world world;
  world.start();
  auto& half = *world.workers.front();
  half.shutdown();
  half.shutdown();
  half.bind_connector_metadata({.loads = {{1, "r", {{1, 2}}, {5}}},
                                .stores = {{9, 2, "s", 0, {}, {{3, 4}}, {6}}},
                                .preempted = {1},
                                .finished = {}});
  half.handle_preemptions({.preempted = {1}});
  half.start_load_kv();
  half.wait_for_save();
  CHECK(half.get_finished({}).received == std::vector<std::string>{"r"});
  CHECK(half.get_block_ids_with_load_errors() == std::vector<block_id>{5});
  CHECK(half.build_connector_worker_meta() == std::vector<connector::store_outcome>{{9, {0}}});
  half.clear_connector_metadata();
  CHECK(half.register_kv_caches(world.memory->view(0)).error().code == errc::shutting_down);
}

TEST_CASE("halves: hooks do nothing before a KV cache is registered", "[connector]") {
  halves_world world;
  auto half = *connector::make_worker_half(world.system(), world.connection, world.engine, 0, {});
  half->bind_connector_metadata({});
  half->handle_preemptions({});
  half->start_load_kv();
  half->wait_for_layer_load("0");
  half->save_kv_layer("0");
  half->wait_for_save();
  CHECK(half->get_finished({}).sent.empty());
  CHECK(half->get_block_ids_with_load_errors().empty());
  CHECK(half->build_connector_worker_meta().empty());
  CHECK(half->get_kv_connector_stats().is_empty());
  half->clear_connector_metadata();
  half->shutdown();
}

TEST_CASE("C-20 halves: an engine that does not match the namespace is refused with both descriptions",
          "[connector][hazards]") {
  halves_world world(2);
  auto other = world.engine;
  other.parallel.tensor_parallel = 3;
  auto refused = connector::make_scheduler_half(world.system(), world.connection, other);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::identity_mismatch);
  CHECK(refused.error().text.find("world size of 2") != std::string::npos);
  CHECK(refused.error().text.find("has 3") != std::string::npos);

  other = world.engine;
  other.block_tokens = 3;
  refused = connector::make_scheduler_half(world.system(), world.connection, other);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);

  CHECK(connector::make_worker_half(world.system(), world.connection, world.engine, 2, {}).error().code ==
        errc::out_of_range);

  auto geometry = small_namespace().geometry;
  ++geometry.layers;
  const auto taller = *replay::token_memory::create(geometry, 8, 1, {0});
  auto half = *connector::make_worker_half(world.system(), world.connection, world.engine, 0, {});
  const auto mismatch = half->register_kv_caches(taller->view(0));
  REQUIRE_FALSE(mismatch);
  CHECK(mismatch.error().code == errc::identity_mismatch);
  REQUIRE(half->register_kv_caches(world.memory->view(0)));
  CHECK(half->register_kv_caches(world.memory->view(0)).error().code == errc::invalid_argument);
}

TEST_CASE("C-28 halves: a missing GPU is an error without a fallback", "[connector][hazards]") {
  halves_world world;
  auto half = *connector::make_worker_half(world.system(), world.connection, world.engine, 0, 200);
  const auto refused = half->register_kv_caches(world.memory->view(0));
  REQUIRE_FALSE(refused);
  CHECK_FALSE(refused.error().text.empty());
}

TEST_CASE("C-11 halves: hooks return at once while the node does not answer", "[connector][hazards]") {
  halves_world world;
  world.engine.lookup_patience = std::chrono::milliseconds(200);
  world.start();
  // The first question cannot have an answer yet that has been through an actor; the hook does not wait for it.
  const auto tokens = prompt_of(1);
  std::size_t unanswered = 0;
  for (int i = 0; i < 100; ++i) {
    const auto id = "r" + std::to_string(i);
    unanswered += world.scheduler->get_num_new_matched_tokens({.id = id, .tokens = {0, tokens}}, 0).tokens ? 0 : 1;
  }
  CHECK(unanswered == 100);
  for (int i = 0; i < 100; ++i) {
    const auto id = "r" + std::to_string(i);
    CHECK(world.ask(id, tokens) == matched_tokens{0, false});
    CHECK_FALSE(world.scheduler->request_finished(id));
  }
  CHECK(world.scheduler->tracked_requests() == 0);
}

TEST_CASE("halves: a synchronous load completes before the forward pass or its blocks are reported", "[connector]") {
  halves_world world(2);
  world.engine.synchronous_loads = true;
  world.start();
  const auto tokens = prompt_of(1);
  const auto play = [&](const std::string& id, const std::vector<block_id>& blocks, auto forward) {
    const auto found = world.ask(id, tokens).tokens.value();
    world.scheduler->update_state_after_alloc(id, blocks, found);
    const scheduled_request part{.id = id,
                                 .computed_tokens = found,
                                 .scheduled_tokens = static_cast<std::uint32_t>(tokens.size()) - found,
                                 .blocks = blocks};
    const auto meta = world.scheduler->build_connector_meta({.new_requests = {&part, 1}});
    std::vector<worker_output> outputs;
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto& half = *world.workers[i];
      half.handle_preemptions(meta);
      half.bind_connector_metadata(meta);
      half.start_load_kv();
      forward(i);
      half.wait_for_save();
      auto named = half.get_finished({});
      CHECK(named.received.empty());
      outputs.push_back({std::move(named.sent),
                         {},
                         half.get_block_ids_with_load_errors(),
                         half.build_connector_worker_meta(),
                         std::move(named.failed)});
      half.clear_connector_metadata();
    }
    auto joined = world.aggregator->aggregate(outputs);
    const auto keep = world.scheduler->request_finished(id);
    world.scheduler->update_connector_output(joined);
    if (keep && joined.sent.empty())
      REQUIRE(eventually([&] { return !world.idle_step().sent.empty(); }));
    CHECK(world.scheduler->tracked_requests() == 0);
    return std::pair{found, joined.load_errors};
  };
  const std::vector<block_id> blocks{3, 1, 2, 9};
  CHECK(play("first", blocks, [&](std::uint32_t worker) {
          for (std::size_t i = 0; i < 3; ++i)
            world.fill(worker, blocks[i], 100 * (i + 1));
        }).first == 0);
  const std::vector<block_id> others{20, 30, 10, 40};
  const auto [found, errors] = play("second", others, [&](std::uint32_t worker) {
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(world.holds(worker, others[i], 100 * (i + 1)));
  });
  CHECK(found == 3 * page_tokens);
  CHECK(errors.empty());

  // A worker that has unregistered its memory reports that it did not fill it.
  REQUIRE(world.workers[1]->unregister_kv_caches());
  const auto failed = play("third", others, [](std::uint32_t) {});
  CHECK(failed.first == 3 * page_tokens);
  CHECK(failed.second == std::vector<block_id>{10, 20, 30});
}

TEST_CASE("halves: a KV cache can be unregistered and registered again at another address", "[connector]") {
  halves_world world;
  world.start();
  auto& half = *world.workers.front();
  const auto tokens = prompt_of(1);
  const std::vector<block_id> blocks{3, 1, 2, 9};
  const auto load = [&](const std::string& id) {
    const auto found = world.ask(id, tokens).tokens.value();
    world.scheduler->update_state_after_alloc(id, blocks, found);
    std::vector<block_id> failed;
    if (found > 0)
      REQUIRE(eventually([&] {
        const auto output = world.idle_step();
        failed.insert(failed.end(), output.load_errors.begin(), output.load_errors.end());
        CHECK(output.failed.empty() == output.load_errors.empty());
        return !output.received.empty();
      }));
    world.scheduler->request_finished(id);
    return std::pair{found, failed};
  };
  world.ask("first", tokens);
  world.scheduler->update_state_after_alloc("first", blocks, 0);
  const scheduled_request part{.id = "first", .computed_tokens = 0, .scheduled_tokens = 13, .blocks = blocks};
  world.step(world.scheduler->build_connector_meta({.new_requests = {&part, 1}}), [&](std::uint32_t) {
    for (std::size_t i = 0; i < 3; ++i)
      world.fill(0, blocks[i], 100 * (i + 1));
  });
  if (world.scheduler->request_finished("first"))
    REQUIRE(eventually([&] { return !world.idle_step().sent.empty(); }));

  REQUIRE(half.unregister_kv_caches());
  REQUIRE(half.unregister_kv_caches()); // has no effect
  CHECK(half.attached().error().code == errc::unreachable);
  CHECK(load("second") == std::pair{3 * page_tokens, std::vector<block_id>{1, 2, 3}});

  const auto elsewhere = *replay::token_memory::create(small_namespace().geometry, device_blocks, 1, {0});
  REQUIRE(half.register_kv_caches(elsewhere->view(0)));
  CHECK(half.attached());
  CHECK(load("third") == std::pair{3 * page_tokens, std::vector<block_id>{}});
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(elsewhere->holds(0, blocks[i], 0, contents_from(100 * (i + 1))));
  // Halves end before the memory that they have been given.
  world.workers.clear();
}

TEST_CASE("C-20 halves: a KV cache with opaque blocks is refused by a namespace of plain elements",
          "[connector][hazards]") {
  halves_world world;
  auto half = *connector::make_worker_half(world.system(), world.connection, world.engine, 0, {});
  auto view = world.memory->view(0);
  view.opaque_blocks = true;
  const auto refused = half->register_kv_caches(view);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::identity_mismatch);
  CHECK(refused.error().text.find("opaque") != std::string::npos);
}

} // namespace troupe::test::connector_halves_test
