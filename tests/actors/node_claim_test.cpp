#include "actors/node/supervisor/directory_claim.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "io/claims/claim_files.hpp"
#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/io_support.hpp"

namespace node_claim_test {

using namespace troupe;
using namespace troupe::test;
using std::chrono::seconds;

namespace {

/// Longer than a busy machine keeps a thread waiting.
constexpr duration claim_lease = seconds(5);

/// A node whose data directory others can reach.
struct claiming_node {
  claiming_node() : system(actors) {
    options.node_name = "claiming";
    options.data_dir = scratch / "claiming";
    options.statistics_interval = duration::zero();
    options.namespaces = {small_namespace(1)};
    options.storage.ranks.assign(1, {std::uint64_t{16} * 8192 + 4096, {}});
    options.storage.shared = true;
    options.storage.claim_lease = claim_lease;
    options.cluster.name = "ours";
  }

  result<std::unique_ptr<running_node>> start() { return start_node(system, options); }
  io::claim_sighting claim() const { return io::claim_directory(options.data_dir).look().value(); }

  scratch_directory scratch;
  system_config actors{config::caf_config{}};
  caf::actor_system system;
  config::node_config options;
};

} // namespace

TEST_CASE("node claim: a node holds the claim on its data directory while it runs and releases it at shutdown",
          "[node_start][claims]") {
  claiming_node x;
  {
    auto node = x.start();
    REQUIRE(node);
    const auto held = x.claim();
    CHECK(held.number == 1);
    REQUIRE(held.record);
    CHECK(held.record->holder == "claiming");
    CHECK(held.record->cluster == "ours");
    CHECK(held.record->phase == io::claim_phase::holding);
    CHECK(held.record->lease == claim_lease);
    REQUIRE((*node)->claim() != nullptr);
    CHECK(eventually([&] { return (*node)->claim()->gate()->is_open(); }));
    CHECK((*node)->stop(x.system, seconds(30)));
  }
  CHECK(x.claim().record->phase == io::claim_phase::released);
  // The next run need not wait.
  auto again = x.start();
  REQUIRE(again);
  CHECK(x.claim().number == 2);
  CHECK((*again)->stop(x.system, seconds(30)));
}

TEST_CASE("node claim: a node that has lost its claim reports it, refuses saves and writes nothing",
          "[node_start][claims]") {
  claiming_node x;
  auto node = x.start();
  REQUIRE(node);
  const auto condition = (*node)->services().condition;
  CHECK_FALSE(condition->refuses_saves(small_namespace(1).id()));
  io::claim_directory claims(x.options.data_dir);
  REQUIRE(claims.make(2, {"survivor", 5, io::claim_kind::adopter, io::claim_phase::holding, claim_lease, 1, "ours"}));
  REQUIRE(eventually([&] { return condition->has(trouble::claim_lost); }));
  CHECK_FALSE((*node)->claim()->gate()->is_open());
  CHECK(missing(condition->ready().error().text, {"'survivor'", "start the node again"}) == "");
  CHECK(condition->refuses_saves(small_namespace(1).id()));
  static_cast<void>((*node)->stop(x.system, seconds(30))); // its index cannot be closed in good order
  node = fail(errc::cancelled, "gone");
  CHECK(x.claim().number == 2);
  CHECK(x.claim().record->holder == "survivor");
  // It restarts at once.
  auto back = x.start();
  REQUIRE(back);
  CHECK(x.claim().number == 3);
  CHECK_FALSE((*back)->services().condition->has(trouble::claim_lost));
  CHECK((*back)->stop(x.system, seconds(30)));
}

TEST_CASE("node claim: a node that has lost its claim reports what to do depending on the new owner",
          "[node_start][claims]") {
  const auto held_by = [](io::claim_kind kind) {
    return text_of_lost_claim(io::claim_record{"other", 5, kind, io::claim_phase::holding, claim_lease, 1, "ours"});
  };
  const auto adopted = held_by(io::claim_kind::adopter);
  CHECK(missing(adopted, {"lost to node 'other'", "start the node again, and it gets its directory back"}) == "");
  CHECK(adopted.find("stop one of the two") == std::string::npos);
  const auto quarrel = held_by(io::claim_kind::owner);
  CHECK(missing(quarrel, {"lost to node 'other'", "another node runs on this data_dir", "stop one of the two",
                          "another data_dir"}) == "");
  CHECK(quarrel.find("start the node again") == std::string::npos);
  CHECK(missing(text_of_lost_claim(std::nullopt), {"lost to another node", "start the node again", "data_dir"}) == "");
}

TEST_CASE("node claim: a node whose data_dir was taken over reports it, also if its own claim is missing",
          "[node_start][claims]") {
  claiming_node x;
  auto node = x.start();
  REQUIRE(node);
  const auto condition = (*node)->services().condition;
  io::claim_directory claims(x.options.data_dir);
  REQUIRE(claims.make(2, {"second", 5, io::claim_kind::owner, io::claim_phase::holding, claim_lease, 1, "ours"}));
  SECTION("its own claim exists") {}
  SECTION("its own claim is missing") {
    static_cast<void>(claims.remove_below(2));
  }
  REQUIRE(eventually([&] { return condition->has(trouble::claim_lost); }));
  CHECK(missing(condition->ready().error().text, {"'second'", "stop one of the two"}) == "");
  static_cast<void>((*node)->stop(x.system, seconds(30))); // its index cannot be closed in good order
}

TEST_CASE("node claim: a node that does not share its index writes no claim", "[node_start][claims]") {
  claiming_node x;
  SECTION("nothing") {
    x.options.storage.shared = false;
  }
  SECTION("slab files alone") {
    std::filesystem::create_directories(x.scratch / "shared/mine");
    std::filesystem::create_directories(x.options.data_dir);
    std::filesystem::permissions(x.options.data_dir, std::filesystem::perms::owner_all);
    std::filesystem::create_directory_symlink(x.scratch / "shared/mine", x.options.data_dir / "link");
    x.options.storage.ranks[0].directory = "link";
    x.options.storage.shared_directory = x.scratch / "shared";
  }
  auto node = x.start();
  REQUIRE(node);
  CHECK((*node)->claim() == nullptr);
  CHECK_FALSE(std::filesystem::exists(x.options.data_dir / "claims"));
  CHECK((*node)->stop(x.system, seconds(30)));
}

TEST_CASE("node claim: a node refuses a directory whose owner is alive on another host", "[node_start][claims]") {
  claiming_node x;
  std::filesystem::create_directories(x.options.data_dir);
  std::filesystem::permissions(x.options.data_dir, std::filesystem::perms::owner_all);
  const auto elsewhere =
      io::claim_keeper::begin(std::make_unique<io::claim_directory>(x.options.data_dir),
                              {"elsewhere", 5, io::claim_kind::owner, claim_lease}, std::make_shared<write_gate>())
          .value();
  REQUIRE(elsewhere->wait([](const io::claim_status&) { return true; }).state == io::claim_state::holding);
  const auto refused = x.start();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::busy);
  CHECK(missing(refused.error().text, {"'elsewhere'", "renews its claim"}) == "");
}

} // namespace node_claim_test
