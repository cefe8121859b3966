#include "actors/node/supervisor/node_watch.hpp"
#include "tests/catch.hpp"

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

TEST_CASE("A node without memory for new keys says so as long as it is so, and serves", "[condition][memory]") {
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
  CHECK(w.condition->shortcomings() == begun);
  CHECK(w.condition->ready());
  CHECK_FALSE(w.condition->refuses_saves({1, 1}));
  CHECK(w.watch.look(0, at(3)).empty()); // told once
  share.set(0);
  CHECK(w.watch.look(0, at(4)).size() == 1);
  CHECK_FALSE(w.condition->has(trouble::memory_full));
  CHECK(w.condition->shortcomings().empty());
}

TEST_CASE("A node that loses lines of its log says so for a minute after the last one", "[condition]") {
  watched w;
  CHECK(w.watch.look(0, at(0)).empty());
  CHECK(w.watch.look(5, at(1)).size() == 1);
  CHECK(w.watch.look(9, at(30)).empty());
  REQUIRE(w.condition->shortcomings().size() == 1);
  CHECK(w.condition->shortcomings()[0].find("9 lines") != std::string::npos);
  CHECK(w.watch.look(9, at(89)).empty());
  CHECK(w.condition->has(trouble::log_dropped));
  CHECK(w.watch.look(9, at(90)).size() == 1);
  CHECK_FALSE(w.condition->has(trouble::log_dropped));
}

TEST_CASE("A node whose claim is late says so until it is renewed, and no more once it is lost",
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
  // That is told by who has found it.
  CHECK(condition->claim_lost("it is lost"));
  CHECK_FALSE(condition->claim_lost("it is lost"));
  CHECK(condition->ready().error().text == "degraded: it is lost");
  CHECK(condition->refuses_saves({1, 1}));
}

} // namespace node_watch_test
