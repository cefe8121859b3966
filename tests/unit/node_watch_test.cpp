#include "actors/node/supervisor/node_watch.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>

namespace node_watch_test {

using namespace troupe;

namespace {

timestamp at(int seconds) {
  return timestamp{std::chrono::seconds(1000 + seconds)};
}

struct watched {
  std::shared_ptr<node_condition> condition = std::make_shared<node_condition>();
  shared_budget memory = std::make_shared<memory_budget>(800);
  node_watch watch{condition, memory};
};

} // namespace

TEST_CASE("node watch: a node without index memory for new keys reports it as long as it lasts, and serves",
          "[condition][memory]") {
  watched w;
  CHECK(w.watch.look(0, at(0)).empty());
  memory_share share(w.memory);
  share.set(memory_budget::lasting_part(800) - 1);
  CHECK(w.watch.look(0, at(1)).empty());
  share.set(memory_budget::lasting_part(800));
  const auto begun = w.watch.look(0, at(2));
  REQUIRE(begun.size() == 1);
  for (const auto* part : {"700", "800", "registry.memory_bytes"})
    CHECK(begun[0].find(part) != std::string::npos);
  CHECK(w.condition->has(trouble::memory_full));
  CHECK(w.condition->degradations() == begun);
  CHECK(w.condition->ready());
  CHECK_FALSE(w.condition->refuses_saves({1, 1}));
  CHECK(w.watch.look(0, at(3)).empty()); // reported once
  share.set(0);
  CHECK(w.watch.look(0, at(4)).size() == 1);
  CHECK_FALSE(w.condition->has(trouble::memory_full));
  CHECK(w.condition->degradations().empty());
}

namespace {

/// Memory of which a host has given some.
struct given_memory final : io::extent_source {
  result<io::extent> assign(std::optional<io::numa_node> /*wish*/) override { return fail(errc::busy, "not yet"); }
  bool take_back(std::uint32_t /*number*/) override { return false; }
  std::uint32_t available() const override { return 0; }
  io::extent_counts counts() const override { return counted; }
  std::string refusal() const override { return why; }
  std::span<std::byte> memory() noexcept override { return {}; }
  const io::arena_facts& info() const noexcept override { return facts; }

  io::extent_counts counted{4, 0, 0, 0};
  std::string why;
  io::arena_facts facts{std::uint64_t{256} << 20U, std::uint64_t{64} << 20U, {}};
};

bool has_all(const std::string& text, std::initializer_list<const char*> parts) {
  return std::ranges::all_of(parts, [&](const char* x) { return text.find(x) != std::string::npos; });
}

} // namespace

TEST_CASE("node watch: a node without host memory for pages reports it until it has some", "[condition][memory]") {
  const auto condition = std::make_shared<node_condition>();
  const auto extents = std::make_shared<given_memory>();
  node_watch watch(condition, std::make_shared<memory_budget>(800), write_gate::always_open(), extents);
  CHECK(watch.look(0, at(0)).empty()); // it is just being got
  extents->why = "there is none";
  const auto begun = watch.look(0, at(1));
  REQUIRE(begun.size() == 1);
  INFO(begun[0]);
  CHECK(has_all(begun[0], {"0 B of the 256 MiB", "memory.bytes", "there is none", "nothing can be saved"}));
  CHECK(condition->has(trouble::memory_short));
  CHECK(condition->degradations() == begun);
  CHECK(condition->ready());
  extents->counted.ready = 3;
  CHECK(watch.look(0, at(2)).empty()); // logged once
  REQUIRE(condition->degradations().size() == 1);
  CHECK(has_all(condition->degradations()[0], {"192 MiB of the 256 MiB", "fewer pages"}));
  extents->why.clear();
  CHECK(watch.look(0, at(3)).size() == 1);
  CHECK_FALSE(condition->has(trouble::memory_short));
}

TEST_CASE("node watch: a node that waits long for its first memory reports it", "[condition][memory]") {
  const auto condition = std::make_shared<node_condition>();
  const auto extents = std::make_shared<given_memory>();
  node_watch watch(condition, std::make_shared<memory_budget>(800), write_gate::always_open(), extents);
  CHECK(watch.look(0, at(0)).empty());
  CHECK(watch.look(0, at(9)).empty());
  CHECK(watch.look(0, at(10)).size() == 1);
  CHECK(condition->has(trouble::memory_short));
  extents->counted.ready = 1;
  CHECK(watch.look(0, at(11)).size() == 1);
  CHECK_FALSE(condition->has(trouble::memory_short));
}

TEST_CASE("node watch: a node that drops log lines reports it for a minute after the last one", "[condition]") {
  watched w;
  CHECK(w.watch.look(0, at(0)).empty());
  CHECK(w.watch.look(5, at(1)).size() == 1);
  CHECK(w.watch.look(9, at(30)).empty());
  REQUIRE(w.condition->degradations().size() == 1);
  CHECK(w.condition->degradations()[0].find("9 lines") != std::string::npos);
  CHECK(w.watch.look(9, at(89)).empty());
  CHECK(w.condition->has(trouble::log_dropped));
  CHECK(w.watch.look(9, at(90)).size() == 1);
  CHECK_FALSE(w.condition->has(trouble::log_dropped));
}

TEST_CASE(
    "node watch: a node whose claim renewal is late reports it until it is renewed, and no longer once it is lost",
    "[condition][claims]") {
  const auto condition = std::make_shared<node_condition>();
  const auto gate = std::make_shared<write_gate>();
  node_watch watch(condition, std::make_shared<memory_budget>(800), gate);
  const auto late = watch.look(0, at(0));
  REQUIRE(late.size() == 1);
  CHECK(late[0].find("storage.claim_lease") != std::string::npos);
  CHECK(condition->has(trouble::claim_late));
  CHECK_FALSE(condition->refuses_saves({1, 1}));
  gate->open_until(boot_time() + std::chrono::hours(1));
  CHECK(watch.look(0, at(1)).size() == 1);
  CHECK_FALSE(condition->has(trouble::claim_late));
  gate->shut();
  CHECK(watch.look(0, at(2)).empty());
  // The loss is reported by the part that detects it.
  CHECK(condition->claim_lost("it is lost"));
  CHECK_FALSE(condition->claim_lost("it is lost"));
  CHECK(condition->ready().error().text == "degraded: it is lost");
  CHECK(condition->refuses_saves({1, 1}));
}

TEST_CASE("node watch: a node whose client slots are taken by disconnected clients reports it and the processes to end",
          "[condition]") {
  watched w;
  CHECK(w.watch.look({3, 0, 3, ""}).empty()); // all of them are attached, as intended
  CHECK(w.watch.look({1, 1, 3, "4711"}).empty());
  const auto begun = w.watch.look({1, 2, 3, "4711, 4712"});
  REQUIRE(begun.size() == 1);
  for (const auto* part : {"2 of 3", "io.max_clients", "4711, 4712"})
    CHECK(begun[0].find(part) != std::string::npos);
  CHECK(w.condition->has(trouble::clients_full));
  CHECK(w.condition->degradations() == begun);
  CHECK(w.condition->ready());
  CHECK(w.watch.look({1, 2, 3, "4711, 4712"}).empty()); // reported once
  CHECK(w.watch.look({1, 1, 3, "4712"}).size() == 1);
  CHECK_FALSE(w.condition->has(trouble::clients_full));
}

} // namespace node_watch_test
