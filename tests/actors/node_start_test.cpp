#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/client/link/link.hpp"
#include "actors/client/transfer/load_coordinator.hpp"
#include "actors/client/transfer/lookup_coordinator.hpp"
#include "actors/client/transfer/save_coordinator.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"
#include "workload/replay/device_memory.hpp"
#include "workload/replay/keys.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

namespace node_start_test {

using namespace troupe;
using namespace troupe::test;

/// A whole node on threads, disk and the io engine of this machine, with a client in the same process.

namespace {

/// Every wait ends by then.
constexpr auto patience = std::chrono::seconds(60);

constexpr std::uint32_t world_size = 2;
constexpr std::uint32_t device_blocks = 96;
constexpr std::uint64_t node_slots = 64;

/// A client with actors of its own, as an inference engine would have them.
class engine {
  template <class Actor, class... Args>
  auto spawn(Args&&... args) {
    auto out = spawn_actor<Actor>(system_, std::forward<Args>(args)...);
    actors_.push_back(caf::actor_cast<caf::actor>(out));
    return out;
  }

public:
  engine(caf::actor_system& system, const config::node_config& options, const reception_actor& node)
      : system_(system), self_(system) {
    link_options where;
    where.local = node;
    where.client_name = "engine";
    where.window_bytes = options.transfer.window_bytes;
    where.attach = options.attach;
    session = spawn<troupe::link>(where);
    const auto ns = options.namespaces.front();
    lookup = spawn<lookup_coordinator>(options.transfer.max_tasks, options.attach.request_timeout);
    client_parts parts{lookup, {}};
    for (rank_number rank = 0; rank < ns.world_size; ++rank) {
      devices.push_back(std::make_unique<replay::device_memory>(
          *replay::device_memory::create(ns.geometry, device_blocks, {.layout = kv_layout::split, .seed = 1})));
      auto state = std::make_shared<copy_engine_state>(
          copy_engine_options{ns.id(), rank, 4096, std::make_shared<io::arena_finder>()},
          *make_host_page_mover(devices.back()->view()));
      const auto copier = *spawn_copy_engine(system_, std::move(state));
      actors_.push_back(caf::actor_cast<caf::actor>(copier));
      const transfer::coordinator_options how{
          ns.id(), rank, ns.geometry.page_bytes(), io::slot_bytes(ns.geometry.page_bytes()), 4, 16};
      load.push_back(spawn<load_coordinator>(how, copier, options.attach.request_timeout));
      save.push_back(spawn<save_coordinator>(how, copier, options.attach.request_timeout));
      parts.ranks.push_back({rank, copier, load.back(), save.back()});
    }
    const auto bound = ask<void>(session, bind_atom_v, parts, duration(patience));
    INFO((bound ? "" : to_string(bound.error())));
    REQUIRE(bound);
  }

  ~engine() {
    for (const auto& x : actors_) {
      self_->monitor(x);
      self_->send_exit(x, caf::exit_reason::user_shutdown);
    }
    for (std::size_t i = 0; i < actors_.size(); ++i)
      self_->receive([](const caf::down_msg&) {});
  }

  template <class Reply, class Handle, class... Ts>
  result<Reply> ask(const Handle& to, Ts... xs) {
    result<Reply> out = fail(errc::internal, "no answer");
    const auto failed_with = [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); };
    auto sent = self_->request(to, patience, std::move(xs)...);
    if constexpr (std::is_void_v<Reply>)
      sent.receive([&] { out = {}; }, failed_with);
    else
      sent.receive([&](Reply& x) { out = std::move(x); }, failed_with);
    return out;
  }

  static transfer_task task(const std::vector<key_digest>& keys, std::uint32_t first_block) {
    std::vector<std::uint32_t> blocks(keys.size());
    std::iota(blocks.begin(), blocks.end(), first_block);
    return {keys, blocks, {}, std::chrono::seconds(30)};
  }

  std::vector<errc> transfer_all(const transfer_actor& by, const std::vector<key_digest>& keys,
                                 std::uint32_t first_block) {
    const auto done = ask<transfer_result>(by, task(keys, first_block));
    INFO((done ? "" : to_string(done.error())));
    REQUIRE(done);
    return results_of(*done);
  }

  /// Saves the results of a forward pass on this rank.
  std::vector<errc> compute_and_save(rank_number rank, const std::vector<key_digest>& keys) {
    for (std::uint32_t i = 0; i < keys.size(); ++i)
      devices[rank]->fill(i, keys[i], rank);
    return transfer_all(save[rank], keys, 0);
  }

  std::uint32_t matched(const std::vector<key_digest>& keys) {
    const auto found = ask<lookup_result>(lookup, lookup_task{keys, std::chrono::seconds(20)});
    REQUIRE(found);
    if (found->matched > 0)
      CHECK(ask<void>(lookup, release_atom_v, found->lease));
    return found->matched;
  }

  /// The first block whose bytes are not those of its key; `keys.size()` for none.
  std::size_t first_wrong(rank_number rank, const std::vector<key_digest>& keys, std::uint32_t first_block) const {
    for (std::uint32_t i = 0; i < keys.size(); ++i)
      if (devices[rank]->verify(first_block + i, keys[i], rank))
        return i;
    return keys.size();
  }
  void poison_all(rank_number rank) {
    for (std::uint32_t i = 0; i < device_blocks; ++i)
      devices[rank]->poison(i);
  }
  bool all_poisoned(rank_number rank) const {
    for (std::uint32_t i = 0; i < device_blocks; ++i)
      if (!devices[rank]->is_poisoned(i))
        return false;
    return true;
  }

  link_actor session;
  lookup_actor lookup;
  std::vector<transfer_actor> load;
  std::vector<transfer_actor> save;
  std::vector<std::unique_ptr<replay::device_memory>> devices;

private:
  caf::actor_system& system_;
  caf::scoped_actor self_;
  std::vector<caf::actor> actors_;
};

struct world {
  scratch_directory directory;
  config::node_config options = node_on(directory.path());
  system_config how{options.caf};
  caf::actor_system system{how};
  std::unique_ptr<running_node> node;

  world() { log::set_level("error"); }
  ~world() {
    stop();
    log::set_level("info");
  }

  static config::node_config node_on(const std::filesystem::path& where) {
    config::node_config out;
    out.node_name = "tested";
    out.data_dir = where / "data";
    out.drain_timeout = std::chrono::seconds(20);
    out.statistics_interval = duration::zero();
    out.namespaces = {small_namespace(world_size)};
    out.namespaces[0].dtype = "bfloat16";
    const auto slot = io::slot_bytes(out.namespaces[0].geometry.page_bytes());
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
      out.storage.ranks.push_back({node_slots * slot + io::page_alignment, {}});
    out.memory.client_bytes = 64 * slot;
    // Fewer buffers than pages of a task.
    out.transfer.window_bytes = 9 * slot;
    return out;
  }

  void start() {
    for (const auto& wrong : config::validate(options))
      FAIL(to_string(wrong));
    auto started = start_node(system, options);
    INFO((started ? "" : to_string(started.error())));
    REQUIRE(started);
    node = std::move(*started);
  }
  void stop() {
    if (node)
      CHECK(std::exchange(node, nullptr)->stop(system, options.drain_timeout));
  }

  engine client() { return {system, options, node->reception()}; }

  node_stats stats() {
    caf::scoped_actor self{system};
    node_stats out;
    self->request(node->supervisor(), patience, stats_atom_v)
        .receive([&](node_stats& x) { out = std::move(x); },
                 [&](const caf::error& e) { FAIL(to_string(from_caf(e))); });
    return out;
  }
};

std::vector<key_digest> some_keys(std::uint64_t count, std::uint64_t salt = 0) {
  std::vector<std::uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 1);
  return replay::chain_keys(ids, salt);
}

} // namespace

TEST_CASE_METHOD(world, "whole node: pages are found when all ranks have saved them and loaded byte for byte",
                 "[node_start]") {
  start();
  const auto keys = some_keys(40);
  {
    auto writer = client();
    CHECK(writer.matched(keys) == 0);
    CHECK(writer.compute_and_save(0, keys) == std::vector(keys.size(), errc::ok));
    CHECK(writer.matched(keys) == 0);
    CHECK(writer.compute_and_save(1, keys) == std::vector(keys.size(), errc::ok));
    CHECK(writer.matched(keys) == keys.size());
    CHECK(writer.compute_and_save(1, keys) == std::vector(keys.size(), errc::exists));
  }
  // Another client: nothing of the first is in its memory.
  auto reader = client();
  auto more = keys;
  more.push_back(key(99));
  CHECK(reader.matched(more) == keys.size());
  for (rank_number rank = 0; rank < world_size; ++rank) {
    reader.poison_all(rank);
    CHECK(reader.transfer_all(reader.load[rank], keys, 50) == std::vector(keys.size(), errc::ok));
    CHECK(reader.first_wrong(rank, keys, 50) == keys.size());
    for (std::uint32_t block = 0; block < 50; ++block)
      CHECK(reader.devices[rank]->is_poisoned(block));
  }
  // Saved pages are written to the slabs afterwards.
  CHECK(eventually([&] {
    const auto x = stats();
    return std::ranges::all_of(x.ranks, [](const auto& rank) { return rank.io.in_flight == 0; });
  }));
  const auto counted = stats();
  CHECK(counted.clients == 1);
  CHECK(counted.registry.complete_keys == keys.size());
  CHECK(counted.registry.reservations == 0);
  REQUIRE(counted.ranks.size() == world_size);
  for (const auto& x : counted.ranks) {
    CHECK(x.slots.total == node_slots + x.slots.beyond_slab);
    CHECK(x.slots.live == keys.size());
    CHECK(x.slots.free + x.slots.reserved + x.slots.live + x.slots.quarantined == x.slots.total);
    CHECK(x.io.read_pages == 0);
    CHECK(x.io.memory_hits == keys.size());
    CHECK(x.io.written_pages == keys.size());
    CHECK(x.io.in_flight == 0);
  }
}

TEST_CASE_METHOD(world, "whole node: more memory than the host has is refused and no thread is left running",
                 "[node_start]") {
  const auto bytes = std::exchange(options.memory.bytes, 64 * config::tebibyte);
  CHECK(config::validate(options).empty());
  const auto refused = start_node(system, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(refused.error().text.find("memory.bytes") != std::string::npos);
  options.memory.bytes = bytes;
  start();
}

TEST_CASE_METHOD(world, "whole node: memory interleaved over NUMA nodes works like any other", "[node_start]") {
  const auto usable = io::usable_numa_nodes();
  options.memory.numa = "spread";
  if (usable.empty())
    WARN("skipped in part: the kernel tells of no NUMA nodes");
  else
    for (rank_number rank = 0; rank < world_size; ++rank)
      options.storage.ranks[rank].numa_node = usable[rank % usable.size()];
  start();
  const auto keys = some_keys(40);
  auto both = client();
  for (rank_number rank = 0; rank < world_size; ++rank) {
    CHECK(both.compute_and_save(rank, keys) == std::vector(keys.size(), errc::ok));
    both.poison_all(rank);
    CHECK(both.transfer_all(both.load[rank], keys, 50) == std::vector(keys.size(), errc::ok));
    CHECK(both.first_wrong(rank, keys, 50) == keys.size());
  }
}

TEST_CASE_METHOD(world, "whole node: memory of a NUMA node that the host lacks is refused with the config key",
                 "[node_start]") {
  if (io::usable_numa_nodes().empty()) {
    WARN("skipped: the kernel tells of no NUMA nodes");
    return;
  }
  options.memory.numa = "spread";
  options.storage.ranks[1].numa_node = io::numa_nodes_max - 1;
  CHECK(config::validate(options).empty());
  const auto refused = start_node(system, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().text.starts_with("storage.ranks[1].numa_node: is 1023, "));
  options.storage.ranks[1].numa_node.reset();
  start();
}

TEST_CASE_METHOD(world, "whole node: a late rank gets memory that another rank has filled", "[node_start]") {
  // Two extents, and pages of the first rank for more than both of them.
  options.memory.bytes = 2 * io::extent_alignment;
  const auto slot = io::slot_bytes(options.namespaces[0].geometry.page_bytes());
  for (auto& x : options.storage.ranks)
    x.slab_bytes = 3 * options.memory.bytes;
  options.memory.client_bytes = 16 * slot;
  start();
  auto both = client();
  std::uint64_t salt = 1;
  const auto fill = [&](rank_number rank) {
    for (std::uint64_t saved = 0; saved * slot < options.memory.bytes + options.memory.bytes / 4; saved += 90)
      CHECK(both.compute_and_save(rank, some_keys(90, ++salt)) == std::vector(90, errc::ok));
  };
  fill(0);
  CHECK(stats().ranks[0].io.extents == 2);
  const auto keys = some_keys(40);
  for (const rank_number rank : {1, 0}) {
    CHECK(both.compute_and_save(rank, keys) == std::vector(keys.size(), errc::ok));
    both.poison_all(rank);
    CHECK(both.transfer_all(both.load[rank], keys, 50) == std::vector(keys.size(), errc::ok));
    CHECK(both.first_wrong(rank, keys, 50) == keys.size());
  }
  const auto counted = stats();
  CHECK(counted.ranks[0].io.extents == 1);
  CHECK(counted.ranks[0].io.returned_extents == 1);
  CHECK(counted.ranks[1].io.extents == 1);
}

TEST_CASE_METHOD(world, "whole node: concurrent tasks on few page buffers load every byte correctly", "[node_start]") {
  start();
  auto both = client();
  std::vector<std::vector<key_digest>> runs;
  for (std::uint64_t i = 0; i < 4; ++i) {
    runs.push_back(some_keys(11, i + 1));
    for (std::uint32_t k = 0; k < 11; ++k)
      both.devices[0]->fill(static_cast<std::uint32_t>(20 * i) + k, runs.back()[k], 0);
  }
  const auto all = [&](const transfer_actor& by) {
    caf::scoped_actor self{system};
    const auto ask = [&](std::uint32_t i) { return self->request(by, patience, both.task(runs[i], 20 * i)); };
    std::vector<decltype(ask(0))> asked;
    for (std::uint32_t i = 0; i < runs.size(); ++i)
      asked.push_back(ask(i));
    for (auto& x : asked)
      x.receive([](const transfer_result& done) { CHECK(results_of(done) == std::vector(11, errc::ok)); },
                [](const caf::error& e) { FAIL(to_string(from_caf(e))); });
  };
  all(both.save[0]);
  both.poison_all(0);
  all(both.load[0]);
  for (std::uint32_t i = 0; i < runs.size(); ++i)
    CHECK(both.first_wrong(0, runs[i], 20 * i) == 11);
}

TEST_CASE_METHOD(world, "whole node: a restart over existing slabs without an index serves no old page",
                 "[node_start]") {
  const auto keys = some_keys(30);
  start();
  {
    auto first = client();
    for (rank_number rank = 0; rank < world_size; ++rank)
      CHECK(first.compute_and_save(rank, keys) == std::vector(keys.size(), errc::ok));
  }
  stop();
  start();
  CHECK(stats().registry.keys == 0);
  CHECK(stats().ranks[0].slots.free == node_slots);
  auto second = client();
  CHECK(second.matched(keys) == 0);
  second.poison_all(0);
  CHECK(second.transfer_all(second.load[0], keys, 0) == std::vector(keys.size(), errc::not_found));
  CHECK(second.all_poisoned(0));
  // New pages in old slots.
  const auto others = some_keys(30, 5);
  for (rank_number rank = 0; rank < world_size; ++rank) {
    CHECK(second.compute_and_save(rank, others) == std::vector(others.size(), errc::ok));
    second.poison_all(rank);
    CHECK(second.transfer_all(second.load[rank], others, 0) == std::vector(others.size(), errc::ok));
    CHECK(second.first_wrong(rank, others, 0) == others.size());
  }
  CHECK(second.matched(keys) == 0);
}

TEST_CASE_METHOD(world, "whole node: a second node on the same directory is refused and the first continues",
                 "[node_start]") {
  start();
  // Its slabs would be others: it is the directory that is in use.
  auto other = options;
  other.namespaces[0].name = "neighbour";
  const auto refused = start_node(system, other);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::busy);
  CHECK(refused.error().text.find(options.data_dir.string()) != std::string::npos);
  const auto keys = some_keys(5);
  auto one = client();
  CHECK(one.compute_and_save(0, keys) == std::vector(keys.size(), errc::ok));
}

TEST_CASE_METHOD(world, "whole node: a failed start leaves no thread and no lock behind", "[node_start]") {
  const auto before = system.registry().running();
  const auto obstacle = options.data_dir / "small.rank-1.slab";
  std::filesystem::create_directories(obstacle);
  std::filesystem::permissions(options.data_dir, std::filesystem::perms::owner_all);
  const auto refused = start_node(system, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("small.rank-1.slab") != std::string::npos);
  CHECK(system.registry().running() == before);
  std::filesystem::remove(obstacle);
  start();
}

TEST_CASE_METHOD(world, "whole node: its shutdown notifies clients and leaves no request waiting", "[node_start]") {
  start();
  const auto keys = some_keys(5);
  auto left_over = client();
  CHECK(left_over.compute_and_save(0, keys) == std::vector(keys.size(), errc::ok));
  stop();
  // At once, or as soon as the link is notified.
  const auto loading = left_over.ask<transfer_result>(left_over.load[0], left_over.task(keys, 0));
  if (loading)
    CHECK(results_of(*loading) == std::vector(keys.size(), errc::unreachable));
  else
    CHECK(loading.error().code == errc::unreachable);
}

} // namespace node_start_test
