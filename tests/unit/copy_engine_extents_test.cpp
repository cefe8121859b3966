#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/known_arenas.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace copy_engine_extents_test {

/// The registration of arena memory with a device, and the end of attachments.

namespace {

using namespace troupe;

constexpr std::uint32_t blocks = 8;
/// The frames of an extent and of an arena, whose last extent is shorter.
constexpr std::uint64_t extent_frames = 2;
constexpr std::uint64_t arena_frames = 7;
constexpr owner_id owner = 21;
constexpr namespace_id ns{5, 6};
constexpr kv_geometry geometry{3, 2, 2, 8, 2, 5};

key_digest key(std::uint64_t n) {
  return hash_key(std::as_bytes(std::span(&n, 1)));
}

/// A device that records registrations and can refuse or delay them.
class careful_device final : public page_mover {
public:
  explicit careful_device(const kv_cache_view& view) : host_(*make_host_page_mover(view)) {}

  const kv_cache_view& cache() const noexcept override { return host_->cache(); }
  bool preparing_takes_time() const noexcept override { return slow; }
  bool would_allocate(std::span<const std::byte> memory) const noexcept override {
    return memory.data() == unallocated;
  }
  result<void> prepare(std::span<std::byte> memory) override {
    std::unique_lock guard(mutex_);
    ++tries;
    CHECK(known.count(memory.data()) == 0);
    wait(guard);
    if (refuses)
      return fail(errc::limit_exceeded, "no more can be locked");
    known.insert(memory.data());
    sizes.push_back(memory.size());
    changed_.notify_all();
    return {};
  }
  void forget(std::span<std::byte> memory) override {
    std::lock_guard guard(mutex_);
    CHECK(known.erase(memory.data()) == 1);
  }
  std::optional<error> failure() const override { return broken; }

  void let_go() {
    {
      std::lock_guard guard(mutex_);
      holds_ = false;
    }
    changed_.notify_all();
  }
  void hold() { holds_ = true; }
  void await_known(std::size_t count) {
    std::unique_lock guard(mutex_);
    test::await(changed_, guard, [&] { return known.size() >= count; });
  }
  void await_waiting(int count) {
    std::unique_lock guard(mutex_);
    test::await(changed_, guard, [&] { return waiting_ >= count; });
  }

  std::set<const std::byte*> known;
  std::vector<std::size_t> sizes;
  int tries = 0;
  bool refuses = false;
  /// Whether it is worth while to tell it of memory ahead of use.
  bool slow = false;
  /// The start of an extent that its node has not allocated yet.
  const std::byte* unallocated = nullptr;
  std::optional<error> broken;
  /// Bytes in front of the pages of the last gather that it might have overwritten.
  std::vector<std::uint64_t> spare_before;

private:
  void wait(std::unique_lock<std::mutex>& guard) {
    ++waiting_;
    changed_.notify_all();
    test::await(changed_, guard, [this] { return !holds_; });
    --waiting_;
  }
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    {
      std::unique_lock guard(mutex_);
      wait(guard);
      spare_before.clear();
      for (const auto& move : moves)
        spare_before.push_back(move.spare_before);
    }
    return host_->gather(moves, events);
  }
  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    return host_->scatter(moves, events);
  }

  std::unique_ptr<page_mover> host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  int waiting_ = 0;
};

struct world {
  explicit world(bool slow_device = false) {
    device->slow = slow_device;
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.fill(i, key(i), 0);
    REQUIRE(state.bind(owner, arena));
  }

  static inline const std::uint64_t slot = io::slot_bytes(geometry.page_bytes());

  arena_info new_arena() { return arenas->add(arena_frames * slot, extent_frames * slot); }
  const std::byte* extent(std::uint64_t number, std::size_t of = 0) {
    return arenas->memory(of)->bytes().data() + number * extent_frames * slot;
  }

  static copy_order order(const std::vector<std::uint64_t>& frames, owner_id by = owner) {
    copy_order out;
    out.owner = by;
    for (const auto frame : frames) {
      const auto block = static_cast<std::uint32_t>(frame % blocks);
      out.items.items.push_back({key(block), {block, 3}, frame * slot, block});
    }
    return out;
  }
  static std::vector<errc> codes(const result<copy_reply>& reply) {
    REQUIRE(reply);
    std::vector<errc> out;
    for (const auto code : reply->results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  replay::device_memory memory = *replay::device_memory::create(geometry, blocks, {});
  std::shared_ptr<test::known_arenas> arenas = std::make_shared<test::known_arenas>();
  arena_info arena = new_arena();
  std::shared_ptr<careful_device> device = std::make_shared<careful_device>(memory.view());
  copy_engine_state state{{ns, 0, 16, arenas}, device};
};

} // namespace

TEST_CASE("copy engine: an extent is registered with the device when its first page is moved, once",
          "[copy_engine_state]") {
  world w;
  CHECK(w.device->tries == 0);
  CHECK(world::codes(w.state.gather(world::order({0, 1}))) == std::vector(2, errc::ok));
  CHECK(w.device->known == std::set{w.extent(0)});
  CHECK(world::codes(w.state.scatter(world::order({0, 4, 1}))) == std::vector{errc::ok, errc::corrupt, errc::ok});
  CHECK(w.device->known == std::set{w.extent(0), w.extent(2)});
  CHECK(world::codes(w.state.gather(world::order({4, 6, 5}))) == std::vector(3, errc::ok));
  CHECK(w.device->known == std::set{w.extent(0), w.extent(2), w.extent(3)});
  CHECK(w.device->tries == 3);
  // The last one is the remainder of the arena.
  CHECK(w.device->sizes == std::vector<std::size_t>{2 * world::slot, 2 * world::slot, world::slot});
  // An invalid frame registers nothing.
  auto outside = world::order({2});
  outside.items[0].frame_offset = arena_frames * world::slot;
  CHECK(world::codes(w.state.gather(outside)) == std::vector{errc::out_of_range});
  CHECK(w.device->tries == 3);
}

TEST_CASE("copy engine: a device with slow registration registers all extents ahead, each once",
          "[copy_engine_state]") {
  world w(true);
  CHECK(world::codes(w.state.gather(world::order({4, 0}))) == std::vector(2, errc::ok));
  w.device->await_known(4);
  CHECK(w.device->known == std::set{w.extent(0), w.extent(1), w.extent(2), w.extent(3)});
  CHECK(world::codes(w.state.gather(world::order({0, 2, 4, 6}))) == std::vector(4, errc::ok));
  CHECK(w.device->tries == 4);
  // On another arena the device drops this one, even where not all of it is registered.
  w.device->hold();
  REQUIRE(w.state.bind(owner + 1, w.new_arena()));
  w.device->await_waiting(1);
  std::thread bind([&] { REQUIRE(w.state.bind(owner + 2, w.new_arena())); });
  w.device->let_go();
  bind.join();
  w.device->await_known(4);
  CHECK(w.device->known == std::set{w.extent(0, 2), w.extent(1, 2), w.extent(2, 2), w.extent(3, 2)});
}

TEST_CASE("copy engine: an extent that its node has not allocated is registered at its first use alone",
          "[copy_engine_state]") {
  world w;
  w.device->slow = true;
  const auto next = w.new_arena();
  w.device->unallocated = w.extent(1, 1);
  REQUIRE(w.state.bind(owner + 1, next));
  w.device->await_known(3);
  CHECK(w.device->known == std::set{w.extent(0, 1), w.extent(2, 1), w.extent(3, 1)});
  CHECK(world::codes(w.state.gather(world::order({2}, owner + 1))) == std::vector{errc::ok});
  CHECK(w.device->known.contains(w.extent(1, 1)));
}

TEST_CASE("copy engine: failed registration ahead is reported when pages are moved", "[copy_engine_state]") {
  world w;
  w.device->slow = true;
  w.device->refuses = true;
  REQUIRE(w.state.bind(owner + 1, w.new_arena()));
  CHECK(world::codes(w.state.gather(world::order({2}, owner + 1))) == std::vector{errc::limit_exceeded});
  CHECK(w.state.take_trouble());
}

TEST_CASE("copy engine: no piece of memory that a device overwrites spans two extents", "[copy_engine_state]") {
  world w;
  REQUIRE(world::codes(w.state.gather(world::order({1, 2, 3, 4}))) == std::vector(4, errc::ok));
  const auto spare = io::page_header_bytes;
  CHECK(w.device->spare_before == std::vector<std::uint64_t>{spare, 0, spare, 0});
}

TEST_CASE("copy engine: pages of an extent that a device cannot register fail alone and are retried",
          "[copy_engine_state]") {
  world w;
  REQUIRE(world::codes(w.state.gather(world::order({0}))) == std::vector{errc::ok});
  w.device->refuses = true;
  CHECK_FALSE(w.state.take_trouble());
  CHECK(world::codes(w.state.gather(world::order({0, 2, 1}))) == std::vector{errc::ok, errc::limit_exceeded, errc::ok});
  CHECK(w.state.take_trouble().value().text.find("locked") != std::string::npos);
  CHECK(world::codes(w.state.scatter(world::order({2, 3}))) == std::vector(2, errc::limit_exceeded));
  CHECK_FALSE(w.state.take_trouble()); // reported before
  w.device->refuses = false;
  CHECK(world::codes(w.state.gather(world::order({2, 3}))) == std::vector(2, errc::ok));
  CHECK(w.device->known == std::set{w.extent(0), w.extent(1)});

  // A device that can do nothing more fails the order.
  w.device->refuses = true;
  w.device->broken = error{errc::device_error, "on fire"};
  const auto broken = w.state.gather(world::order({0, 4}));
  REQUIRE_FALSE(broken);
  CHECK(broken.error().code == errc::device_error);
}

TEST_CASE("copy engine: binding to the same arena again keeps the registrations", "[copy_engine_state]") {
  world w;
  REQUIRE(world::codes(w.state.gather(world::order({0, 2}))) == std::vector(2, errc::ok));
  const bool ended = GENERATE(false, true);
  if (ended) {
    w.state.end(owner);
    w.state.wait_for_quiesce(owner);
    CHECK(w.state.drop_lost_arena()); // to be looked for again
  }
  REQUIRE(w.state.bind(owner + 1, w.arena));
  CHECK(w.device->known == std::set{w.extent(0), w.extent(1)});
  CHECK(world::codes(w.state.gather(world::order({0, 2}, owner + 1))) == std::vector(2, errc::ok));
  CHECK(w.device->tries == 2);
}

TEST_CASE("copy engine: binding to another arena drops the old registrations after the last order",
          "[copy_engine_state]") {
  world w;
  const auto next = w.new_arena();
  REQUIRE(world::codes(w.state.gather(world::order({0}))) == std::vector{errc::ok});
  w.device->hold();
  std::thread lane([&] { CHECK(world::codes(w.state.gather(world::order({1}))) == std::vector{errc::ok}); });
  w.device->await_waiting(1);
  REQUIRE(w.state.bind(owner + 1, next));
  CHECK(w.device->known == std::set{w.extent(0)});
  w.device->let_go();
  lane.join();
  CHECK(w.device->known.empty());
  REQUIRE(world::codes(w.state.gather(world::order({3}, owner + 1))) == std::vector{errc::ok});
  CHECK(w.device->known == std::set{w.extent(1, 1)});
}

TEST_CASE("copy engine: a lost arena is dropped when nothing is bound, and not before", "[copy_engine_state]") {
  world w;
  REQUIRE(world::codes(w.state.gather(world::order({0}))) == std::vector{errc::ok});
  w.arenas->lose(0);
  CHECK_FALSE(w.state.drop_lost_arena());
  CHECK(w.device->known.size() == 1); // bound
  w.state.end(owner);
  CHECK_FALSE(w.state.drop_lost_arena());
  CHECK(w.device->known.empty());
  CHECK_FALSE(w.state.drop_lost_arena());
  const auto again = w.state.bind(owner + 1, w.arena);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == errc::unreachable);
}

TEST_CASE("copy engine: lanes that need the same extent at once register it once", "[copy_engine_state]") {
  world w;
  const bool refuses = GENERATE(false, true);
  w.device->refuses = refuses;
  w.device->hold();
  std::vector<std::thread> lanes;
  std::atomic<int> failed{0};
  std::atomic<int> begun{0};
  for (std::uint64_t i = 0; i < 4; ++i)
    lanes.emplace_back([&, i] {
      ++begun;
      const auto reply = w.state.gather(world::order({i % 2}));
      failed += reply && reply->results[0] == static_cast<std::uint8_t>(errc::ok) ? 0 : 1;
    });
  w.device->await_waiting(1);
  while (begun < 4)
    std::this_thread::yield();
  CHECK(w.device->tries == 1);
  w.device->let_go();
  for (auto& lane : lanes)
    lane.join();
  CHECK(failed == (refuses ? 4 : 0));
  if (!refuses)
    CHECK(w.device->tries == 1);
  w.device->refuses = false;
  CHECK(world::codes(w.state.gather(world::order({0}))) == std::vector{errc::ok});
}

TEST_CASE("copy engine: an attachment is quiesced when its last order has ended, whatever others do",
          "[copy_engine_state]") {
  world w;
  // The device knows the extent of the other orders, which do not wait for it.
  CHECK(world::codes(w.state.scatter(world::order({4}))) == std::vector{errc::corrupt});
  w.device->hold();
  std::thread lane([&] { CHECK(world::codes(w.state.gather(world::order({0}))) == std::vector{errc::ok}); });
  w.device->await_waiting(1);
  REQUIRE(w.state.bind(owner + 1, w.arena));
  w.state.end(owner);
  std::atomic<bool> quiesced{false};
  std::thread waiting([&] {
    w.state.wait_for_quiesce(owner);
    quiesced = true;
  });
  // Refused orders, and those of the next attachment, neither count nor wait.
  CHECK(w.state.gather(world::order({1})).error().code == errc::expired);
  CHECK(world::codes(w.state.scatter(world::order({4}, owner + 1))) == std::vector{errc::corrupt});
  w.state.wait_for_quiesce(owner + 1);
  w.state.wait_for_quiesce(owner + 2);
  CHECK_FALSE(quiesced);
  w.device->let_go();
  lane.join();
  waiting.join();
  CHECK(quiesced);
}

} // namespace copy_engine_extents_test
