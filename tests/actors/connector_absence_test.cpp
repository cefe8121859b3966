#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/support/system_config.hpp"
#include "connector/live/runtime.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "workload/replay/token_memory.hpp"

#include <numeric>

/// Both halves of a connector whose node comes later than they do.

namespace troupe::test::connector_absence_test {

namespace {

using connector::block_id;
using connector::matched_tokens;
using connector::scheduled_request;
using connector::token_id;
using connector::worker_output;

/// A node that starts when `start` is called.
class late_node {
public:
  late_node() : system_(actors_) {}
  ~late_node() { stop(); }

  std::string address() const { return scratch_.path().string(); }

  void start(std::uint32_t max_clients = 64) {
    config::node_config how;
    how.io.max_clients = max_clients;
    how.node_name = "late node";
    how.data_dir = scratch_.path();
    how.statistics_interval = duration::zero();
    how.namespaces = {small_namespace(1)};
    how.storage.ranks.assign(1, {std::uint64_t{64} * 8192 + 4096, {}});
    node_ = *start_node(system_, how);
    listeners_ = *open_listeners(system_, *node_, how);
  }

  void stop() {
    listeners_ = {};
    if (node_)
      CHECK(node_->stop(system_, std::chrono::seconds(30)));
    node_.reset();
  }

private:
  scratch_directory scratch_;
  system_config actors_{config::caf_config{}};
  caf::actor_system system_;
  std::unique_ptr<running_node> node_;
  node_listeners listeners_;
};

struct engine {
  explicit engine(const std::string& node, bool may_be_absent = true, std::optional<namespace_spec> ns = {},
                  duration attach_limit = std::chrono::milliseconds(100)) {
    connector::runtime_options how;
    how.node = node;
    how.namespace_name = "small";
    how.ns = std::move(ns);
    how.threads = 2;
    how.window_bytes = 64 * 8192;
    how.attach_limit = attach_limit;
    how.node_may_be_absent = may_be_absent;
    runtime = *connector::runtime::create(how);
    options.block_tokens = 4;
    memory = *replay::token_memory::create(small_namespace().geometry, 64, 1, {0});
  }

  void start() {
    scheduler = *runtime->make_scheduler_half(options);
    worker = *runtime->make_worker_half(options, 0);
    REQUIRE(worker->register_kv_caches(memory->view(0)));
  }

  worker_output step(const connector::scheduler_output& scheduled = {}) {
    const auto meta = scheduler->build_connector_meta(scheduled);
    worker->handle_preemptions(meta);
    worker->bind_connector_metadata(meta);
    worker->start_load_kv();
    worker->wait_for_save();
    auto named = worker->get_finished({});
    worker_output out{std::move(named.sent), std::move(named.received), worker->get_block_ids_with_load_errors(),
                      worker->build_connector_worker_meta(), std::move(named.failed)};
    worker->clear_connector_metadata();
    scheduler->update_connector_output(out);
    return out;
  }

  /// Whatever comes is picked up by the engine's own thread.
  void wait_until_attached() {
    REQUIRE(eventually([&] {
      step();
      return scheduler->attached() && worker->attached();
    }));
  }

  /// Runs a request from its arrival to its end, and says how much was found.
  std::uint32_t play(const std::string& id) {
    std::vector<token_id> tokens(13);
    std::iota(tokens.begin(), tokens.end(), token_id{1});
    const connector::engine_request request{.id = id, .tokens = {0, tokens}};
    scheduler->on_new_request(request);
    matched_tokens found;
    REQUIRE(eventually([&] {
      found = scheduler->get_num_new_matched_tokens(request, 0);
      return found.tokens.has_value();
    }));
    const std::vector<block_id> blocks{1, 2, 3, 4};
    scheduler->update_state_after_alloc(id, blocks, *found.tokens);
    if (*found.tokens > 0)
      REQUIRE(eventually([&] {
        const auto out = step();
        CHECK(out.load_errors.empty());
        return !out.received.empty();
      }));
    const scheduled_request part{
        .id = id, .computed_tokens = *found.tokens, .scheduled_tokens = 13 - *found.tokens, .blocks = blocks};
    step({.new_requests = {&part, 1}});
    if (scheduler->request_finished(id))
      REQUIRE(eventually([&] { return !step().sent.empty(); }));
    CHECK(scheduler->tracked_requests() == 0);
    return *found.tokens;
  }

  std::unique_ptr<connector::runtime> runtime;
  connector::engine_options options;
  std::unique_ptr<replay::token_memory> memory;
  std::unique_ptr<connector::scheduler_half> scheduler;
  std::unique_ptr<connector::worker_half> worker;
};

} // namespace

TEST_CASE("halves: an unreachable node is an error unless the options allow it", "[connector]") {
  const late_node node;
  engine x(node.address(), false);
  const auto refused = x.runtime->make_scheduler_half(x.options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unreachable);
  auto worker = *x.runtime->make_worker_half(x.options, 0);
  CHECK(worker->register_kv_caches(x.memory->view(0)).error().code == errc::unreachable);
  CHECK(worker->attached().error().code == errc::unreachable);
}

TEST_CASE("halves: an engine runs without its node and attaches once the node starts", "[connector]") {
  late_node node;
  engine x(node.address());
  x.start();
  CHECK(x.scheduler->attached().error().code == errc::unreachable);
  CHECK(x.worker->attached().error().code == errc::unreachable);
  CHECK(x.play("a") == 0);
  CHECK(x.play("b") == 0);
  CHECK(x.worker->register_kv_caches(x.memory->view(0)).error().code == errc::invalid_argument);
  node.start();
  x.wait_until_attached();
  CHECK(x.play("c") == 0);
  CHECK(x.play("d") == 12);
  x.worker.reset();
  x.scheduler.reset();
}

TEST_CASE("halves: an engine waits for free client slots at a full node", "[connector]") {
  late_node node;
  node.start(2);
  std::optional<engine> first(std::in_place, node.address());
  first->start();
  first->wait_until_attached();
  // Its first attempt ends before the node has answered, so later errors are of those in the background.
  engine second(node.address(), true, {}, duration::zero());
  second.start();
  const auto full = [](const result<void>& attached) {
    REQUIRE_FALSE(attached);
    return attached.error().code == errc::timeout && attached.error().text.find("io.max_clients") != std::string::npos;
  };
  REQUIRE(eventually([&] {
    second.step();
    return full(second.scheduler->attached()) && full(second.worker->attached());
  }));
  CHECK(second.play("a") == 0);
  first.reset();
  second.wait_until_attached();
  CHECK(second.play("b") == 0);
  CHECK(second.play("c") == 12);
}

TEST_CASE("halves: a worker without a node fails the loads that its scheduler orders", "[connector]") {
  late_node node;
  engine x(node.address());
  x.start();
  x.worker->bind_connector_metadata(
      {.loads = {{1, "r", {{1, 2}}, {5}}}, .stores = {{9, 2, "s", 0, {}, {{3, 4}}, {6}}}});
  x.worker->start_load_kv();
  x.worker->wait_for_save();
  const auto done = x.worker->get_finished({});
  CHECK(done.received == std::vector<std::string>{"r"});
  CHECK(done.failed == std::vector<std::string>{"r"});
  CHECK(x.worker->get_block_ids_with_load_errors() == std::vector<block_id>{5});
  CHECK(x.worker->build_connector_worker_meta() == std::vector<connector::store_outcome>{{9, {0}}});
  x.worker->clear_connector_metadata();
}

TEST_CASE("halves: an engine can shut down or reset its cache before its node is reachable", "[connector]") {
  late_node node;
  {
    engine x(node.address());
    x.start();
    x.worker->shutdown();
  }
  node.start();
  {
    engine x(node.address());
    x.start();
    // On busy cores it continues without the node before the node has answered.
    x.wait_until_attached();
    CHECK(x.play("a") == 0);
    CHECK(x.play("b") == 12);
  }
  node.stop();
  engine x(node.address());
  x.start();
  CHECK_FALSE(x.scheduler->attached());
  CHECK(x.scheduler->reset_cache());
  node.start();
  x.wait_until_attached();
  CHECK(x.play("c") == 0);
}

TEST_CASE("C-20 halves: a mismatch of shapes is reported as early as it can be detected", "[connector][hazards]") {
  late_node node;
  auto other = small_namespace(1);
  other.model = "another";
  engine x(node.address(), true, other);
  // Without any node.
  auto shape = x.options;
  shape.parallel.tensor_parallel = 2;
  CHECK(x.runtime->make_scheduler_half(shape).error().code == errc::identity_mismatch);
  auto geometry = small_namespace().geometry;
  ++geometry.layers;
  const auto taller = *replay::token_memory::create(geometry, 8, 1, {0});
  auto refused = *x.runtime->make_worker_half(x.options, 0);
  CHECK(refused->register_kv_caches(taller->view(0)).error().code == errc::identity_mismatch);
  CHECK(refused->attached().error().code == errc::unreachable);

  x.start();
  node.start();
  REQUIRE(eventually([&] {
    x.step();
    const auto scheduler = x.scheduler->attached();
    const auto worker = x.worker->attached();
    REQUIRE_FALSE(scheduler);
    REQUIRE_FALSE(worker);
    return scheduler.error().code != errc::unreachable && worker.error().code != errc::unreachable;
  }));
  CHECK(x.scheduler->attached().error().code == errc::identity_mismatch);
  CHECK(x.worker->attached().error().code == errc::identity_mismatch);
  CHECK_FALSE(x.scheduler->attached().error().text.empty());
  CHECK(x.play("a") == 0);
}

} // namespace troupe::test::connector_absence_test
