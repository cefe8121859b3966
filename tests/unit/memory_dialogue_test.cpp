#include "actors/node/io_worker/memory_dialogue.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"
#include "tests/unit/io_worker_rules.hpp"

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace memory_dialogue_test {

using namespace troupe;
using troupe::test::memory_extents;
using troupe::test::io_worker_rules::ms;
using troupe::test::io_worker_rules::t0;
using troupe::test::io_worker_rules::worker;

namespace {

constexpr std::chrono::seconds s{1};

/// A store that knows memory and moves no page.
class known_memory final : public io::page_store {
public:
  const io::page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte>) override {
    if (refuses)
      return fail(errc::limit_exceeded, "too many buffers");
    known.insert(next_);
    return next_++;
  }
  void remove_buffer(std::uint32_t buffer) override { CHECK(known.erase(buffer) == 1); }
  void submit(std::span<const io::page_request>) override {}
  void stop() override {}
  result<void> health() const override { return {}; }
  std::string describe() const override { return {}; }

  bool refuses = false;
  std::set<std::uint32_t> known;

private:
  io::page_store_traits traits_;
  std::uint32_t next_ = 7;
};

/// A rank with room for four pages in each of three extents.
struct world {
  explicit world(bool has_broker = true) : memory({{}, 1, 5U, has_broker}, state, &extents, &store) {}

  /// A client reserves pages that no other call has, each in a frame.
  void place(std::uint32_t pages) {
    std::vector<page_ref> all;
    for (std::uint32_t i = 0; i < pages; ++i)
      all.push_back(worker::page(next_page_++));
    const auto placed = state.place(1, worker::request(std::move(all), 100 * s), now);
    REQUIRE(placed);
    memory.request_extents(now);
  }
  std::vector<memory_report> reports() {
    memory.report_extents(now);
    return memory.take_reports();
  }

  memory_extents extents{3, worker::extent_bytes};
  known_memory store;
  io_worker_state state{worker::rules()};
  memory_dialogue memory;
  timestamp now = t0;

private:
  slot_number next_page_ = 0;
};

using numbers = std::vector<std::uint32_t>;

} // namespace

TEST_CASE("memory dialogue: extents come from the arena, with the wish of the rank, and the store knows them",
          "[memory_dialogue]") {
  world w;
  w.place(4);
  CHECK(w.state.frames().extents() == 1);
  CHECK(w.extents.wishes == std::vector<std::optional<io::numa_node>>{5U});
  CHECK(w.store.known == std::set<std::uint32_t>{7});
  CHECK(w.memory.take_refusals().empty());
}

TEST_CASE("memory dialogue: the state waits only for memory that is on its way", "[memory_dialogue]") {
  const auto why = GENERATE(errc::busy, errc::full);
  world w;
  w.extents.failure = why;
  w.place(4);
  CHECK(w.state.waits_for_extent() == (why == errc::busy));
}

TEST_CASE("memory dialogue: memory that the store refuses goes back to the arena", "[memory_dialogue]") {
  world w;
  w.store.refuses = true;
  w.place(4);
  CHECK(w.state.frames().extents() == 0);
  CHECK(w.extents.available() == 3);
  CHECK(w.memory.take_refusals() == std::vector<std::string>{"too many buffers"});
  CHECK(w.memory.take_refusals().empty());
  CHECK_FALSE(w.memory.accept(0, w.now));
}

TEST_CASE("memory dialogue: a wish is reported when the arena has none, once a second, and held for two",
          "[memory_dialogue]") {
  world w;
  w.extents.limit(0);
  w.place(4);
  auto said = w.reports();
  REQUIRE(said.size() == 1);
  CHECK(said[0].wants);
  CHECK(said[0].rank == 1);
  CHECK(said[0].extents == 0);
  // The state asks again, and the broker knows.
  w.memory.grow(1, w.now);
  w.memory.request_extents(w.now += 999 * ms);
  CHECK(w.reports().empty());
  w.memory.request_extents(w.now += 1 * ms);
  said = w.reports();
  REQUIRE(said.size() == 1);
  CHECK(said[0].wants);
  // Without another attempt it ends by itself.
  w.memory.report(w.now + 2 * s - 1 * ms);
  CHECK(w.memory.take_reports().empty());
  w.memory.report(w.now + 2 * s);
  said = w.memory.take_reports();
  REQUIRE(said.size() == 1);
  CHECK_FALSE(said[0].wants);
}

TEST_CASE("memory dialogue: a fulfilled wish is none", "[memory_dialogue]") {
  const bool by_arena = GENERATE(true, false);
  world w;
  w.extents.limit(0);
  w.place(4);
  REQUIRE(w.reports().size() == 1);
  w.extents.limit(1);
  if (by_arena) {
    w.memory.grow(1, w.now);
    w.memory.request_extents(w.now);
  } else {
    CHECK(w.memory.accept(w.extents.assign().value().number, w.now));
  }
  const auto said = w.reports();
  REQUIRE(said.size() == 1);
  CHECK_FALSE(said[0].wants);
  CHECK(said[0].extents == 1);
  // Only an extent that another rank gave lets the rank ask again at once.
  w.memory.grow(9, w.now);
  w.memory.request_extents(w.now);
  CHECK(w.reports().size() == (by_arena ? 0 : 1));
}

TEST_CASE("memory dialogue: nothing is reported without a broker or without a change", "[memory_dialogue]") {
  world alone(false);
  alone.extents.limit(0);
  alone.place(4);
  alone.memory.report(alone.now);
  CHECK(alone.reports().empty());

  world w;
  w.memory.report(w.now);
  CHECK(w.reports().empty());
  w.place(1);
  auto said = w.reports();
  REQUIRE(said.size() == 1);
  CHECK(said[0].extents == 1);
  // Used just now; 0 would say that there is no page.
  CHECK(said[0].oldest == duration{1});
  w.memory.report(w.now + 1 * s);
  CHECK(w.memory.take_reports().empty());
}

TEST_CASE("memory dialogue: the allocator is answered when it has the frames, in order", "[memory_dialogue]") {
  world w;
  w.memory.grow(4, w.now);
  w.memory.grow(8, w.now);
  w.memory.grow(100, w.now);
  CHECK(w.memory.has_growers());
  w.memory.request_extents(w.now);
  // A rank that has memory goes on with what there is.
  CHECK(w.memory.take_grown() == numbers{4, 8, 12});
  CHECK_FALSE(w.memory.has_growers());
  // It knows the number from the answer.
  CHECK_FALSE(w.memory.take_changed_frames());
}

TEST_CASE("memory dialogue: a rank without memory waits a second for what may come", "[memory_dialogue]") {
  const auto why = GENERATE(errc::full, errc::busy, errc::limit_exceeded);
  const bool has_broker = GENERATE(true, false);
  CAPTURE(why, has_broker);
  world w(has_broker);
  w.extents.failure = why;
  w.memory.grow(4, w.now);
  w.memory.request_extents(w.now);
  const bool may_come = why == errc::busy || (why == errc::full && has_broker);
  CHECK(w.memory.has_growers() == may_come);
  CHECK(w.memory.take_grown() == (may_come ? numbers{} : numbers{0}));
  w.memory.request_extents(w.now + 999 * ms);
  CHECK(w.memory.take_grown().empty());
  w.memory.request_extents(w.now + 1 * s);
  CHECK(w.memory.take_grown() == (may_come ? numbers{0} : numbers{}));
  CHECK_FALSE(w.memory.has_growers());
}

TEST_CASE("memory dialogue: only extents of the arena are accepted, and none while draining", "[memory_dialogue]") {
  world w;
  CHECK_FALSE(w.memory.accept(3, w.now));
  CHECK(w.memory.accept(w.extents.assign().value().number, w.now));
  CHECK(w.memory.take_changed_frames() == 4U);
  CHECK_FALSE(w.memory.take_changed_frames());
  w.state.drain(w.now);
  CHECK_FALSE(w.memory.accept(w.extents.assign().value().number, w.now));
}

TEST_CASE("memory dialogue: an extent is returned when the store no longer knows it", "[memory_dialogue]") {
  world w;
  w.memory.grow(8, w.now);
  w.memory.request_extents(w.now);
  REQUIRE(w.store.known.size() == 2);
  CHECK_FALSE(w.memory.take_returned());
  REQUIRE(w.state.begin_emptying(true, 1 * s, w.now));
  w.state.empty_some(w.now);
  const auto ended = w.memory.take_returned();
  REQUIRE(ended);
  REQUIRE(*ended);
  CHECK(w.store.known.size() == 1);
  CHECK(w.extents.take_back(**ended));
  CHECK_FALSE(w.memory.take_returned());
}

TEST_CASE("memory dialogue: an extent in use stays, and the store knows it", "[memory_dialogue]") {
  world w;
  w.place(4);
  REQUIRE(w.state.begin_emptying(false, 1 * s, w.now));
  w.state.empty_some(w.now);
  w.state.tick(w.now += 2 * s);
  w.state.empty_some(w.now);
  const auto ended = w.memory.take_returned();
  REQUIRE(ended);
  CHECK_FALSE(*ended);
  CHECK(w.store.known.size() == 1);
}

} // namespace memory_dialogue_test
