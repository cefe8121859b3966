#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/support/system_config.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace copy_engine_lanes_test {

using namespace troupe;
using namespace troupe::test;

/// The copy engine with its lanes, on threads.

namespace {

constexpr auto patience = std::chrono::seconds(60);
constexpr std::uint32_t blocks = 4;

/// A device whose gathers wait for a sign, and which can break.
class test_device final : public page_mover {
public:
  explicit test_device(const kv_cache_view& view) : host_(*make_host_page_mover(view)) {}

  void let_gathers_go() {
    {
      std::lock_guard guard(mutex_);
      open_ = true;
    }
    opened_.notify_all();
  }
  void break_down() { broken_ = true; }
  int waiting() const { return waiting_; }

  const kv_cache_view& cache() const noexcept override { return host_->cache(); }
  result<void> prepare(std::span<std::byte> memory) override {
    ++prepared_;
    return host_->prepare(memory);
  }
  void forget(std::span<std::byte>) override { --prepared_; }
  int prepared() const { return prepared_; }
  void set_calls_at_once(std::uint32_t most) { calls_at_once_ = most; }
  std::uint32_t calls_at_once(move_direction) const noexcept override { return calls_at_once_; }
  std::optional<error> failure() const override {
    return broken_ ? std::optional(error{errc::device_error, "the device is on fire"}) : std::nullopt;
  }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    if (auto broken = failure())
      return tl::unexpected(*broken);
    std::unique_lock guard(mutex_);
    ++waiting_;
    opened_.wait_for(guard, patience, [this] { return open_; });
    guard.unlock();
    return host_->gather(moves, events);
  }
  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    if (auto broken = failure())
      return tl::unexpected(*broken);
    return host_->scatter(moves, events);
  }

  std::unique_ptr<page_mover> host_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  std::uint32_t calls_at_once_ = 1;
  std::atomic<int> waiting_{0};
  std::atomic<int> prepared_{0};
  std::atomic<bool> broken_{false};
};

struct world {
  explicit world(std::uint32_t calls_at_once = 1) {
    device->set_calls_at_once(calls_at_once);
    engine = *spawn_copy_engine(system,
                                std::make_shared<copy_engine_state>(
                                    copy_engine_options{ns.id(), 0, 16, std::make_shared<io::arena_finder>()}, device));
    REQUIRE(bind(1) == errc::ok);
  }
  ~world() {
    device->let_gathers_go();
    self->send_exit(engine, caf::exit_reason::user_shutdown);
    engine = nullptr;
  }

  errc bind(owner_id owner, bool new_arena = true) {
    if (new_arena)
      memory = *io::arena::create({blocks * slot, 2 * slot, io::huge_page_choice::off});
    return tell(bind_atom_v, owner, arena_info{blocks * slot, 2 * slot, io::encode(memory->name())});
  }
  errc unbind(owner_id owner) { return tell(unbind_atom_v, owner); }

  copy_order order(std::uint32_t block, owner_id owner = 1) const {
    return {owner, {{copy_item{key(block), {block, 1}, block * slot, block}}}};
  }

  template <class... Ts>
  errc tell(Ts&&... xs) {
    errc out = errc::internal;
    self->request(engine, patience, std::forward<Ts>(xs)...)
        .receive([&] { out = errc::ok; }, [&](const caf::error& e) { out = from_caf(e).code; });
    return out;
  }
  template <class Atom>
  error ask(Atom verb, const copy_order& what) {
    error out{errc::ok, {}};
    self->request(engine, patience, verb, what)
        .receive([&](const copy_reply& x) { out.code = static_cast<errc>(x.results[0]); },
                 [&](const caf::error& e) { out = from_caf(e); });
    return out;
  }

  const namespace_spec ns = small_namespace();
  const std::uint64_t slot = io::slot_bytes(ns.geometry.page_bytes());
  replay::device_memory cache = *replay::device_memory::create(ns.geometry, blocks, {});
  std::shared_ptr<test_device> device = std::make_shared<test_device>(cache.view());
  system_config config{{}};
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  copy_engine_actor engine;
  std::shared_ptr<io::arena> memory;
};

} // namespace

TEST_CASE("copy engine: a load does not wait for a save", "[copy_engine]") {
  world w;
  // A save that hangs, and beside it a load of a page that was never saved.
  auto save = w.self->request(w.engine, patience, gather_atom_v, w.order(0));
  while (w.device->waiting() == 0)
    std::this_thread::yield();
  CHECK(w.ask(scatter_atom_v, w.order(1)).code == errc::corrupt);
  w.device->let_gathers_go();
  save.receive([](const copy_reply& x) { CHECK(x.results[0] == static_cast<std::uint8_t>(errc::ok)); },
               [](const caf::error& e) { FAIL(from_caf(e).text); });
}

TEST_CASE("copy engine: as many orders run in one direction as it has lanes", "[copy_engine]") {
  world w(3);
  for (std::uint32_t i = 0; i < 3; ++i)
    w.self->send(w.engine, gather_atom_v, w.order(i));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (w.device->waiting() < 3 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  CHECK(w.device->waiting() == 3);
}

TEST_CASE("copy engine: memory is registered with the device on first use and released with its arena",
          "[copy_engine]") {
  world w;
  CHECK(w.device->prepared() == 0);
  CHECK(w.ask(scatter_atom_v, w.order(0)).code == errc::corrupt);
  CHECK(w.ask(scatter_atom_v, w.order(2)).code == errc::corrupt);
  CHECK(w.device->prepared() == 2);
  SECTION("another arena") {
    REQUIRE(w.bind(2) == errc::ok);
    CHECK(w.device->prepared() == 0);
  }
  SECTION("the same arena, after a reconnect") {
    REQUIRE(w.unbind(1) == errc::ok);
    REQUIRE(w.bind(2, false) == errc::ok);
    CHECK(w.device->prepared() == 2);
  }
  SECTION("a node that has exited") {
    w.memory.reset(); // closes the descriptor too
    REQUIRE(w.unbind(1) == errc::ok);
    CHECK(w.device->prepared() == 0);
    REQUIRE(w.bind(2) == errc::ok);
  }
  SECTION("a node that detaches and exits some time later") {
    REQUIRE(w.unbind(1) == errc::ok);
    CHECK(w.device->prepared() == 2);
    w.memory.reset();
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (w.device->prepared() > 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    CHECK(w.device->prepared() == 0);
    REQUIRE(w.bind(2) == errc::ok);
  }
  CHECK(w.ask(scatter_atom_v, w.order(0, 1)).code == errc::expired);
  CHECK(w.ask(scatter_atom_v, w.order(0, 2)).code == errc::corrupt);
}

TEST_CASE("copy engine: it is drained when its last lane is idle and serves the next attachment meanwhile",
          "[copy_engine]") {
  world w(2);
  auto save = w.self->request(w.engine, patience, gather_atom_v, w.order(0));
  while (w.device->waiting() == 0)
    std::this_thread::yield();
  std::atomic<bool> quiesced{false};
  std::thread waiting([&] {
    caf::scoped_actor other{w.system};
    other->request(w.engine, patience, unbind_atom_v, owner_id{1})
        .receive([&] { quiesced = true; }, [&](const caf::error& e) { FAIL_CHECK(from_caf(e).text); });
  });
  REQUIRE(w.bind(2, false) == errc::ok);
  CHECK(w.ask(scatter_atom_v, w.order(1, 2)).code == errc::corrupt);
  CHECK(w.unbind(2) == errc::ok); // that attachment has no copy in progress
  CHECK_FALSE(quiesced);
  w.device->let_gathers_go();
  save.receive([](const copy_reply& x) { CHECK(x.results[0] == static_cast<std::uint8_t>(errc::ok)); },
               [](const caf::error& e) { FAIL(from_caf(e).text); });
  waiting.join();
  CHECK(quiesced);
  CHECK(w.ask(gather_atom_v, w.order(0, 1)).code == errc::expired);
}

TEST_CASE("copy engine: a device failure ends the engine and fails every order with its text", "[copy_engine]") {
  world w(2);
  w.device->let_gathers_go();
  w.self->monitor(w.engine);
  w.device->break_down();
  const auto notified = w.ask(gather_atom_v, w.order(0));
  CHECK(notified.code == errc::device_error);
  CHECK(notified.text.find("on fire") != std::string::npos);
  caf::error reason;
  w.self->receive([&](const caf::down_msg& down) { reason = down.reason; },
                  caf::after(patience) >> [] { FAIL("the engine lives on"); });
  CHECK(from_caf(reason).code == errc::device_error);
  // Later orders are refused too, not lost silently.
  CHECK(w.ask(gather_atom_v, w.order(0)).code != errc::ok);
}

} // namespace copy_engine_lanes_test
