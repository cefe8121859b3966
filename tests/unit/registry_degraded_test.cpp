// A registry whose node can no longer store pages.

#include "actors/support/node_condition.hpp"
#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_degraded_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using codes_t = std::vector<errc>;

struct degraded_registry {
  static registry_options options(std::shared_ptr<node_condition> condition) {
    registry_options out;
    out.condition = std::move(condition);
    return out;
  }

  std::shared_ptr<node_condition> condition = std::make_shared<node_condition>();
  one_registry registry{2, options(condition)};
};

} // namespace

TEST_CASE("registry: a damaged slab fails saves on every rank and not loads", "[registry]") {
  degraded_registry w;
  auto& r = w.registry;
  const auto keys = some_keys(1, 4);
  r.save({keys[1], keys[3]}, 0);
  CHECK(w.condition->slab_damaged(r.ns, 1, "rank 1 is lost"));

  const auto mixed = r.begin(r.next_ticket(), keys).value();
  CHECK(mixed.what == reserve_plan::kind::answered);
  CHECK(codes(mixed.reply.results) == codes_t{errc::slab_damaged, errc::exists, errc::slab_damaged, errc::exists});
  // Pages on rank 0 are not on rank 1; where there is no page, the reason is given in words.
  for (const auto& [wanted, rank] : {std::pair{keys, rank_number{1}}, std::pair{some_keys(50, 2), rank_number{0}},
                                     std::pair{keys_t{}, rank_number{0}}}) {
    const auto refused = r.begin(r.next_ticket(), wanted, rank);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::slab_damaged);
    CHECK(refused.error().text.find("rank 1 is lost") != std::string::npos);
  }
  CHECK(r.state.stats().reservations == 0);
  CHECK(r.info(keys[0]) == std::nullopt);
  CHECK(r.state.check_invariants() == "");
}

} // namespace registry_degraded_test
