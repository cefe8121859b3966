#include "actors/cluster/cluster_service.hpp"
#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "connector/live/engine_halves.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace cluster_test {

using namespace troupe;
using namespace troupe::test;

/// The `cluster` actors of nodes of one process, each with its node, its sockets and an engine.

namespace {

constexpr duration patience = std::chrono::seconds(60);
/// How long an engine waits for what should be found at once.
constexpr duration engine_limit = std::chrono::seconds(30);
constexpr std::uint32_t slots = 64;

/// An address of the loopback network that no other process of this host uses for tests: its ports are free.
std::string own_address() {
  const auto number = static_cast<std::uint32_t>(::getpid());
  return "127." + std::to_string(64 + ((number >> 16U) & 63U)) + "." + std::to_string((number >> 8U) & 255U) + "." +
         std::to_string(number & 255U);
}

key_digest key(std::uint64_t number) {
  return {number, 4711};
}

std::vector<key_digest> keys(std::uint64_t first, std::size_t count) {
  std::vector<key_digest> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(key(first + i));
  return out;
}

/// A node of a cluster and an engine beside it. It can be started again, on the same port and with the same files.
class peer {
public:
  explicit peer(std::string name, std::vector<config::cluster_seed> seeds = {}, const std::string& cluster = "ours") {
    options_.node_name = std::move(name);
    options_.data_dir = directory_.path() / "data";
    options_.statistics_interval = duration::zero();
    options_.namespaces = {small_namespace()};
    const auto slot = io::slot_bytes(options_.namespaces[0].geometry.page_bytes());
    options_.storage.ranks.push_back({slots * slot + io::page_alignment, {}});
    options_.registry.memory_bytes = 8 * config::mebibyte;
    options_.registry.durability = "strict";
    options_.caf.scheduler_threads = 2;
    options_.actors.host = own_address();
    options_.actors.port = 0;
    options_.actors.insecure = true;
    options_.remote.enabled = true;
    // Nodes of one host would map each other's memory.
    options_.attach.always_remote = true;
    options_.attach.reconnect_backoff_max = std::chrono::milliseconds(200);
    options_.cluster.name = cluster;
    options_.cluster.seeds = std::move(seeds);
    options_.cluster.hello_interval = std::chrono::seconds(5);
    options_.cluster.ask_time = std::chrono::seconds(10);
    options_.cluster.fetch_time = std::chrono::seconds(20);
    options_.cluster.memory_bytes = 8 * config::mebibyte;
    start();
  }
  ~peer() { stop(); }
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;

  void start() {
    system_ = std::make_unique<caf::actor_system>(how_);
    auto started = start_node(*system_, options_, {.lmcache = std::make_shared<lmcache::counters>()});
    INFO((started ? "" : to_string(started.error())));
    REQUIRE(started);
    node_ = std::move(*started);
    auto made = cluster::cluster_service::make(
        *system_, options_,
        {node_->supervisor(), node_->reception(), node_->services().shards, node_->services().condition});
    REQUIRE(made);
    cluster_ = std::move(*made);
    auto opened = open_listeners(*system_, *node_, options_);
    INFO((opened ? "" : to_string(opened.error())));
    REQUIRE(opened);
    listeners_ = std::move(*opened);
    options_.actors.port = listeners_.port.value();
    connector::half_connection here;
    here.where.local = node_->reception();
    here.where.client_name = "engine";
    auto engine = connector::make_page_pool(*system_, here, {}, memory_.view());
    INFO((engine ? "" : to_string(engine.error())));
    REQUIRE(engine);
    engine_ = std::move(*engine);
  }

  /// As the program ends.
  void stop() {
    if (!node_)
      return;
    engine_.reset();
    cluster_.reset();
    listeners_ = {};
    CHECK(node_->stop(*system_, std::chrono::seconds(20)));
    node_.reset();
    system_.reset();
  }

  config::cluster_seed address() const { return {own_address(), static_cast<std::uint16_t>(options_.actors.port)}; }

  /// Has the engine save pages, whose content follows from their keys.
  void save(const std::vector<key_digest>& which) {
    const auto at = blocks(which.size());
    for (std::size_t i = 0; i < which.size(); ++i)
      memory_.fill(at[i], which[i], 0);
    const auto saved = engine_->put(which, at, patience);
    REQUIRE(saved);
    for (const auto code : *saved)
      REQUIRE(code == errc::ok);
  }

  /// The number of leading keys that the engine finds.
  std::size_t find(const std::vector<key_digest>& which) { return engine_->exist(which, engine_limit); }

  /// Whether the engine loads the right content for all.
  bool loads(const std::vector<key_digest>& which) {
    const auto at = blocks(which.size());
    for (const auto block : at)
      memory_.poison(static_cast<std::uint32_t>(block));
    const auto loaded = engine_->get(which, at, patience);
    if (!loaded || std::ranges::any_of(*loaded, [](errc code) { return code != errc::ok; }))
      return false;
    for (std::size_t i = 0; i < which.size(); ++i)
      if (memory_.verify(static_cast<std::uint32_t>(at[i]), which[i], 0))
        return false;
    return true;
  }

  cluster_stats stats() {
    cluster_stats out;
    caf::scoped_actor self{*system_};
    self->request(node_->supervisor(), patience, stats_atom_v)
        .receive([&](node_stats& x) { out = std::move(x.cluster); }, [](const caf::error&) {});
    return out;
  }

  peer_stats stats_of(const peer& other) {
    for (auto& x : stats().peers)
      if (x.node == other.options_.node_name)
        return x;
    return {};
  }

  /// Waits until the node has a session with another one. `incarnation`: of an earlier run of it that does not count.
  void wait_for(const peer& other, std::uint64_t not_of = 0) {
    REQUIRE(eventually(
        [&] {
          const auto x = stats_of(other);
          return x.up && x.namespaces == 1 && x.incarnation != not_of;
        },
        std::chrono::milliseconds(10)));
  }

  const node_condition& condition() const { return *node_->services().condition; }

private:
  static std::vector<connector::block_id> blocks(std::size_t count) {
    std::vector<connector::block_id> out(count);
    std::iota(out.begin(), out.end(), 0);
    return out;
  }

  scratch_directory directory_;
  config::node_config options_;
  replay::device_memory memory_ = *replay::device_memory::create(small_namespace().geometry, slots, {});
  system_config how_{config::caf_config{.scheduler_threads = 2}};
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<running_node> node_;
  std::unique_ptr<cluster::cluster_service> cluster_;
  node_listeners listeners_;
  std::unique_ptr<connector::page_pool> engine_;
};

struct silent_log {
  silent_log() { log::set_level("off"); }
  ~silent_log() { log::set_level("info"); }
};

} // namespace

TEST_CASE("cluster: pages saved at one node are fetched by another one, once", "[cluster]") {
  const silent_log quiet;
  peer first("first");
  peer second("second", {first.address()});
  second.wait_for(first);
  first.save(keys(1, 8));
  CHECK(second.find(keys(1, 8)) == 8);
  CHECK(second.loads(keys(1, 8)));
  const auto after = second.stats_of(first);
  CHECK(after.pages == 8);
  CHECK(after.bytes == 8 * small_namespace().geometry.page_bytes());
  CHECK(after.failed == 0);
  // The pages have been saved here, so that the peer is not asked again.
  CHECK(second.find(keys(1, 8)) == 8);
  CHECK(second.stats_of(first).asked == after.asked);
  CHECK(second.stats_of(first).pages == 8);
  // No node has the rest of a longer prefix.
  CHECK(second.find(keys(1, 12)) == 8);
}

TEST_CASE("cluster: a prefix is put together from pages of several nodes", "[cluster]") {
  const silent_log quiet;
  peer first("first");
  peer second("second");
  peer third("third", {first.address(), second.address()});
  third.wait_for(first);
  third.wait_for(second);
  first.save(keys(1, 3));
  second.save(keys(4, 3));
  third.save(keys(7, 2));
  CHECK(third.find(keys(1, 8)) == 8);
  CHECK(third.loads(keys(1, 8)));
  CHECK(third.stats_of(first).pages == 3);
  CHECK(third.stats_of(second).pages == 3);
}

TEST_CASE("cluster: a node that ends is reported, and no lookup waits for it", "[cluster]") {
  const silent_log quiet;
  peer first("first");
  peer second("second", {first.address()});
  second.wait_for(first);
  first.save(keys(1, 8));
  REQUIRE(second.find(keys(1, 4)) == 4);
  CHECK_FALSE(second.condition().has(trouble::peer_unreachable));
  first.stop();
  CHECK(eventually([&] { return second.condition().has(trouble::peer_unreachable); }, std::chrono::milliseconds(10)));
  CHECK_FALSE(second.stats_of(first).up);
  CHECK_FALSE(second.stats_of(first).trouble.empty());
  // What was fetched before is here; the rest is a miss, without a question to the node that has ended.
  const auto asked = second.stats_of(first).asked;
  CHECK(second.find(keys(1, 8)) == 4);
  CHECK(second.loads(keys(1, 4)));
  CHECK(second.stats_of(first).asked == asked);
}

TEST_CASE("cluster: a node that comes back is asked again, in a new session", "[cluster]") {
  const silent_log quiet;
  peer first("first");
  peer second("second", {first.address()});
  second.wait_for(first);
  first.save(keys(1, 4));
  CHECK(second.find(keys(1, 2)) == 2);
  const auto run = second.stats_of(first).incarnation;
  first.stop();
  CHECK(eventually([&] { return second.condition().has(trouble::peer_unreachable); }, std::chrono::milliseconds(10)));
  first.start();
  second.wait_for(first, run);
  CHECK(eventually([&] { return !second.condition().has(trouble::peer_unreachable); }, std::chrono::milliseconds(10)));
  first.save(keys(5, 4));
  // The first four lie in its slab since its previous run. Until the session with that run is replaced, lookups miss.
  CHECK(eventually([&] { return second.find(keys(1, 8)) == 8; }, std::chrono::milliseconds(10)));
  CHECK(second.loads(keys(1, 8)));
  CHECK(second.stats_of(first).pages == 8);
}

TEST_CASE("cluster: a node of another cluster is not asked", "[cluster]") {
  const silent_log quiet;
  peer stranger("stranger", {}, "theirs");
  peer friendly("friendly");
  peer own("own", {stranger.address(), friendly.address()});
  own.wait_for(friendly);
  stranger.save(keys(1, 4));
  // The strange node has refused at least one hello by now, as its trouble says.
  CHECK(eventually(
      [&] {
        const auto all = own.stats().peers;
        return std::ranges::any_of(all, [](const peer_stats& x) { return !x.up && !x.self && !x.trouble.empty(); });
      },
      std::chrono::milliseconds(10)));
  CHECK(own.find(keys(1, 4)) == 0);
  for (const auto& x : own.stats().peers)
    CHECK((x.up || x.asked == 0));
}

} // namespace cluster_test
