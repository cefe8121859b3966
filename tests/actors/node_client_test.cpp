#include "actors/client/node_client.hpp"
#include "actors/support/system_config.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"
#include "workload/replay/device_memory.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace node_client_test {

using namespace troupe;
using namespace troupe::test;

/// The parts of a client with their threads, against a node that probes play.

namespace {

constexpr auto patience = std::chrono::seconds(60);
constexpr std::uint32_t blocks = 4;
constexpr owner_id owner = 4711;

/// Shared with a device whose copies wait for a sign.
struct copy_gate {
  void open() {
    {
      std::lock_guard guard(mutex);
      is_open = true;
    }
    changed.notify_all();
  }
  void pass() {
    std::unique_lock guard(mutex);
    ++waiting;
    changed.wait_for(guard, patience, [this] { return is_open; });
  }

  std::atomic<int> waiting{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
};

class gated_device final : public page_mover {
public:
  gated_device(const kv_cache_view& view, std::shared_ptr<copy_gate> gate, std::shared_ptr<const void> memory)
      : host_(*make_host_page_mover(view)), gate_(std::move(gate)), memory_(std::move(memory)) {}

  const kv_cache_view& cache() const noexcept override { return host_->cache(); }
  result<void> prepare(std::span<std::byte> memory) override { return host_->prepare(memory); }
  void forget(std::span<std::byte> memory) override { host_->forget(memory); }
  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    gate_->pass();
    return host_->gather(moves, events);
  }
  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    gate_->pass();
    return host_->scatter(moves, events);
  }

  std::unique_ptr<page_mover> host_;
  std::shared_ptr<copy_gate> gate_;
  std::shared_ptr<const void> memory_;
};

struct world {
  world() {
    // The client's calls block, so the test answers them from another thread.
    std::thread engine([this] {
      link_options where;
      where.local = node.as<reception_actor>();
      if (client->attach(where, patience)) {
        node_client::rank_memory rank;
        rank.mover = std::make_unique<gated_device>(cache.view(), gate, std::exchange(kept, nullptr));
        bound = client->add_rank(std::move(rank)) && client->bind(patience);
      }
    });
    answer(node, await<attach_request, caf::actor>(node), welcome());
    engine.join();
    REQUIRE(bound);
  }
  ~world() { gate->open(); }

  attach_reply welcome() {
    attach_reply out;
    out.owner = owner;
    out.node_name = "test node";
    out.ns_id = ns.id();
    out.ns = ns;
    out.limits = {4 * slot, 64, 32, std::chrono::seconds(60), std::chrono::seconds(60)};
    out.arena = {4 * slot, 2 * slot, io::encode(memory->name())};
    out.shards = {shard.as<client_shard_actor>()};
    out.ranks.push_back({0, 10, worker.as<client_worker_actor>()});
    return out;
  }

  template <class... Ts>
  received await(probe& at) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
      auto all = at.take<Ts...>();
      if (!all.empty() || std::chrono::steady_clock::now() > deadline) {
        REQUIRE(all.size() == 1);
        return std::move(all.front());
      }
      std::this_thread::yield();
    }
  }
  template <class... Ts>
  void answer(probe& from, const received& to, Ts... xs) {
    from.reply(to, caf::make_message(std::move(xs)...));
  }

  /// A save of one page, up to its copy, which waits at the gate.
  void begin_save() {
    caller->send(client->save(0), test_task(1, 0, patience));
    const auto reserve = await<reserve_request>(shard);
    answer(shard, reserve, reserve_reply{locations(reserve.get<reserve_request>(0).keys)});
    const auto place = await<place_atom, frame_request>(worker);
    frame_reply frames{9, {}};
    frames.frames.items.push_back({slot, 0});
    answer(worker, place, frames);
    while (gate->waiting == 0)
      std::this_thread::yield();
  }

  /// A load of one page, up to its copy, which waits at the gate.
  void begin_load() {
    caller->send(client->load(0), test_task(1, 0, patience));
    const auto locate = await<locate_request>(shard);
    answer(shard, locate, locate_reply{locations(locate.get<locate_request>(0).keys), {}});
    const auto fetch = await<fetch_atom, frame_request>(worker);
    const auto page = fetch.get<frame_request>(1).pages[0];
    REQUIRE(memory->provide(0));
    const auto frame = memory->bytes().subspan(slot, slot);
    const io::page_identity identity{ns.id(), page.key, 0, page.where, ns.geometry.page_bytes()};
    io::seal_page(frame, identity);
    frame_reply frames{9, {}};
    frames.frames.items.push_back({slot, 0});
    answer(worker, fetch, frames);
    while (gate->waiting == 0)
      std::this_thread::yield();
  }

  const namespace_spec ns = small_namespace();
  const std::uint64_t slot = io::slot_bytes(ns.geometry.page_bytes());
  replay::device_memory cache = *replay::device_memory::create(ns.geometry, blocks, {});
  std::shared_ptr<io::arena> memory = *io::arena::create({4 * slot, 2 * slot, io::huge_page_choice::off});
  std::shared_ptr<copy_gate> gate = std::make_shared<copy_gate>();
  system_config config{{}};
  caf::actor_system system{config};
  probe node{system};
  probe shard{system};
  probe worker{system};
  caf::scoped_actor caller{system};
  std::atomic<bool> bound{false};
  /// Stands for the cache's memory, which another part owns here.
  std::shared_ptr<int> kept = std::make_shared<int>();
  const std::weak_ptr<int> is_kept = kept;
  std::unique_ptr<node_client> client = std::make_unique<node_client>(system, node_client::options{});
};

} // namespace

TEST_CASE("node client: it detaches at once and reports that it is quiesced after its last copy", "[node_client]") {
  world w;
  w.begin_save();
  std::atomic<bool> ended{false};
  std::thread engine([&] {
    CHECK(w.client->stop(patience));
    ended = true;
  });
  CHECK(w.await<caf::leave_atom, owner_id>(w.node).get<owner_id>(1) == owner);
  // The copy writes to a frame of the node, and its task has ended.
  CHECK(w.node.take<owner_quiesced_atom, owner_id>().empty());
  CHECK_FALSE(ended);
  w.gate->open();
  CHECK(w.await<owner_quiesced_atom, owner_id>(w.node).get<owner_id>(1) == owner);
  engine.join();
}

TEST_CASE("node client: a copy that does not end in time is an error and is not reported to the node",
          "[node_client]") {
  world w;
  w.begin_save();
  const auto stopped = w.client->stop(std::chrono::milliseconds(50));
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().code == errc::timeout);
  // A second call returns when the memory may be released.
  CHECK(w.client->stop(std::chrono::milliseconds(50)).error().code == errc::timeout);
  w.gate->open();
  CHECK(w.client->stop(patience));
  CHECK(w.client->stop(patience)); // all copies have ended
  CHECK(w.node.take<owner_quiesced_atom, owner_id>().empty());
}

TEST_CASE("node client: a copy that outlives the client keeps its memory mapped", "[node_client]") {
  world w;
  w.begin_save();
  CHECK_FALSE(w.client->stop(std::chrono::milliseconds(50)));
  CHECK_FALSE(w.is_kept.expired());
  w.gate->open();
  w.client.reset();
  for (const auto until = std::chrono::steady_clock::now() + patience;
       !w.is_kept.expired() && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK(w.is_kept.expired());
}

TEST_CASE("node client: a load is answered after its blocks have been written, also at shutdown", "[node_client]") {
  world w;
  w.begin_load();
  std::thread engine([&] { CHECK(w.client->stop(patience)); });
  w.await<caf::leave_atom, owner_id>(w.node);
  bool came = false;
  w.caller->receive([&](const transfer_result&) { came = true; }, [&](const caf::error&) { came = true; },
                    caf::after(std::chrono::milliseconds(50)) >> [] {});
  CHECK_FALSE(came);
  w.gate->open();
  w.caller->receive([&](const transfer_result&) { came = true; }, [&](const caf::error&) { came = true; },
                    caf::after(patience) >> [] {});
  CHECK(came);
  engine.join();
}

} // namespace node_client_test
