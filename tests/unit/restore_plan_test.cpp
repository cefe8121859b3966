// The parts of an index that are trusted at startup.

#include "actors/node/supervisor/restore_plan.hpp"
#include "base/layouts.hpp"
#include "tests/catch.hpp"
#include "tests/unit/record_store.hpp"
#include "tests/unit/store_support.hpp"

#include <algorithm>

namespace restore_plan_test {

using namespace troupe;
using namespace troupe::test;
using store::stored_origin;

namespace {

constexpr incarnation_number first_fresh = 1000;

/// A store and the plan of a startup from it.
struct world {
  record_table disk;
  restore_terms terms;
  incarnation_number last_fresh = first_fresh;

  world() {
    terms.continues = true;
    terms.wires.vllm = true;
    terms.fresh = [this] { return ++last_fresh; };
  }

  template <class Record>
  void put(const Record& record) {
    store::write_batch batch;
    batch.put(record);
    disk.apply(batch);
  }

  /// A namespace with one rank and two pages.
  namespace_id add(const std::string& name, stored_origin origin, incarnation_number incarnation,
                   std::uint32_t world_size = 0) {
    store::namespace_record record;
    record.spec.name = record.spec.model = name;
    record.spec.layout =
        origin == stored_origin::protocol ? std::string(layout_of_slot_clients) : "layer-part-head-token";
    record.spec.world_size = world_size;
    record.mode = world_size == 0 ? store::world_size_mode::automatic : store::world_size_mode::fixed;
    record.max_ranks = 4;
    record.origin = origin;
    record.id = record.spec.id();
    put(record);
    put(store::rank_record{record.id, 0, 100, incarnation});
    for (const std::uint64_t n : {1U, 2U})
      put(store::page_record{record.id, key_number(n), 0, {static_cast<slot_number>(n), 7}, {}, incarnation});
    return record.id;
  }

  struct outcome {
    std::vector<std::string> served;
    std::vector<store::rank_record> ranks;
    std::vector<store::page_record> pages;
    std::vector<restore_plan::absent_namespace> absent;
    std::uint64_t left_aside = 0;
    std::uint64_t outlived = 0;

    std::size_t pages_of(const namespace_id& id) const {
      return static_cast<std::size_t>(std::ranges::count(pages, id, &store::page_record::ns));
    }
  };

  outcome start() {
    restore_plan plan(terms);
    outcome out;
    for (const auto& x : disk.namespaces())
      if (plan.admit(x))
        out.served.push_back(x.spec.name);
    for (auto x : disk.ranks())
      if (const auto incarnation = plan.admit(x)) {
        x.incarnation = *incarnation;
        out.ranks.push_back(x);
      }
    for (const auto& x : disk.pages())
      if (plan.admit(x))
        out.pages.push_back(x);
    out.absent = plan.absent();
    out.left_aside = plan.left_aside();
    out.outlived = plan.outlived();
    disk.apply(plan.take_changes());
    // The shards store the ranks like this.
    for (const auto& x : out.ranks)
      put(x);
    return out;
  }

  std::size_t stored_pages(const namespace_id& id) const {
    const auto pages = disk.pages();
    return static_cast<std::size_t>(std::ranges::count(pages, id, &store::page_record::ns));
  }
  std::vector<incarnation_number> stored_incarnations(const namespace_id& id) const {
    std::vector<incarnation_number> out;
    for (const auto& x : disk.ranks())
      if (x.ns == id)
        out.push_back(x.incarnation);
    return out;
  }
};

using names_t = std::vector<std::string>;

} // namespace

TEST_CASE("restore: namespaces created at run time come back, with any options", "[restore]") {
  world w;
  const auto fixed = w.add("native", stored_origin::api, 5, 1);
  const auto automatic = w.add("native2", stored_origin::api, 6);
  const auto protocol = w.add("hf3fs", stored_origin::protocol, 7);
  const auto x = w.start();
  CHECK(x.served.size() == 3);
  for (const auto& id : {fixed, automatic, protocol})
    CHECK(x.pages_of(id) == 2);
  CHECK(w.stored_incarnations(fixed) == std::vector<incarnation_number>{5}); // unchanged
  CHECK(x.absent.empty());
  CHECK(x.outlived + x.left_aside == 0);
}

TEST_CASE("restore: pages of a rank that was registered again are rejected and erased", "[restore]") {
  world w;
  const auto id = w.add("native", stored_origin::api, 5);
  w.put(store::page_record{id, key_number(3), 0, {3, 7}, {}, 4});
  w.put(store::page_record{id, key_number(4), 0, {4, 7}, {}, 0}); // of before there were incarnations
  w.put(store::page_record{id, key_number(5), 1, {5, 7}, {}, 5}); // of a rank that does not exist
  const auto x = w.start();
  CHECK(x.pages_of(id) == 2);
  CHECK(x.outlived == 3);
  CHECK(w.stored_pages(id) == 2);
  CHECK(w.start().outlived == 0);
}

TEST_CASE("restore: leftovers of removed namespaces are erased", "[restore]") {
  world w;
  w.put(store::rank_record{namespace_number(9), 0, 100, 5});
  w.put(store::page_record{namespace_number(9), key_number(1), 0, {1, 7}, {}, 5});
  w.put(store::page_record{namespace_number(9), key_number(2), 0, {2, 7}, {}, 5});
  const auto x = w.start();
  CHECK(x.pages.empty());
  CHECK(x.outlived == 2);
  CHECK(w.disk.pages().empty());
  CHECK(w.disk.ranks().empty());
}

TEST_CASE("restore: an index of an earlier epoch keeps namespaces and ranks, and no page", "[restore]") {
  world w;
  w.terms.continues = false;
  const auto native = w.add("native", stored_origin::api, 5);
  const auto own = w.add("own", stored_origin::config, 6, 1);
  const auto gone = w.add("gone", stored_origin::config, 7, 1);
  w.terms.own = {own};
  w.terms.own_ranks[{own, 0}] = 6;
  const auto x = w.start();
  CHECK(x.served == names_t{"native"});
  CHECK(x.pages.empty());
  CHECK(x.left_aside == 4);
  CHECK(w.disk.pages().empty());
  CHECK(w.disk.namespaces().size() == 3);
  REQUIRE(x.absent.size() == 1);
  CHECK(x.absent[0].pages == 2);
  CHECK(x.absent[0].erased);
  // Pages that the erasure might have missed have no owner, at the next start too.
  for (const auto& id : {native, gone})
    CHECK(w.stored_incarnations(id).at(0) > first_fresh);
  w.put(store::page_record{native, key_number(1), 0, {1, 7}, {}, 5});
  w.terms.continues = true;
  CHECK(w.start().pages.empty());
}

TEST_CASE("restore: the pages of a replaced slab file are rejected", "[restore]") {
  world w;
  const auto id = w.add("own", stored_origin::config, 5, 1);
  w.terms.own = {id};
  SECTION("the same file") {
    w.terms.own_ranks[{id, 0}] = 5;
    CHECK(w.start().pages_of(id) == 2);
  }
  SECTION("another file") {
    w.terms.own_ranks[{id, 0}] = 6;
    const auto x = w.start();
    CHECK(x.pages.empty());
    CHECK(x.outlived == 2);
    CHECK(w.stored_pages(id) == 0);
  }
  SECTION("a file from before incarnations") {
    w.terms.own_ranks[{id, 0}] = 0;
    w.put(store::page_record{id, key_number(7), 0, {9, 7}, {}, 0});
    CHECK(w.start().pages_of(id) == 1);
  }
}

TEST_CASE("restore: a namespace that the config lacks keeps its pages until it is to be forgotten", "[restore]") {
  world w;
  const auto id = w.add("own", stored_origin::config, 5, 1);
  const auto other = w.add("native", stored_origin::api, 6);
  const auto x = w.start();
  CHECK(x.served == names_t{"native"});
  REQUIRE(x.absent.size() == 1);
  CHECK(x.absent[0].name == "own");
  CHECK(x.absent[0].pages == 2);
  CHECK_FALSE(x.absent[0].erased);
  CHECK(w.stored_pages(id) == 2);
  SECTION("it comes back") {
    w.terms.own = {id};
    w.terms.own_ranks[{id, 0}] = 5;
    CHECK(w.start().pages_of(id) == 2);
  }
  SECTION("it is to be forgotten") {
    w.terms.forget_absent = true;
    const auto last = w.start();
    REQUIRE(last.absent.size() == 1);
    CHECK(last.absent[0].forgotten);
    CHECK(last.absent[0].pages == 2);
    CHECK(w.stored_pages(id) == 0);
    CHECK(w.disk.namespaces().size() == 1);
    CHECK(w.disk.ranks().size() == 1);
    CHECK(w.stored_pages(other) == 2);
  }
}

TEST_CASE("restore: engines that this config does not serve may continue under another name", "[restore]") {
  world w;
  w.terms.wires.sglang = true;
  const auto first = w.add("hf3fs", stored_origin::protocol, 5);
  const auto named = w.add("hf3fs-llama", stored_origin::protocol, 6);
  const auto sglang = w.add("sglang-default", stored_origin::protocol, 7);
  CHECK(w.start().pages.size() == 6);
  const auto before = w.terms.wires;
  std::vector<namespace_id> lost;
  SECTION("another name") {
    w.terms.wires.ns = "other";
    lost = {first, named};
  }
  SECTION("a name that is a prefix of the other one") {
    w.terms.wires.ns = "hf3";
    lost = {first, named};
  }
  SECTION("another world size") {
    w.terms.wires.world_size = 2;
    lost = {first, named};
  }
  SECTION("vLLM is not served") {
    w.terms.wires.vllm = false;
    lost = {first, named};
  }
  SECTION("SGLang is not served") {
    w.terms.wires.sglang = false;
    lost = {sglang};
  }
  const auto x = w.start();
  CHECK(x.served.size() == 3 - lost.size());
  CHECK(x.pages.size() == 6 - 2 * lost.size());
  CHECK(x.absent.size() == lost.size());
  for (const auto& id : lost)
    CHECK(w.stored_pages(id) == 0);
  w.terms.wires = before;
  const auto back = w.start();
  CHECK(back.served.size() == 3);
  CHECK(back.ranks.size() == 3);
  for (const auto& id : lost)
    CHECK(back.pages_of(id) == 0);
}

TEST_CASE("restore: the origin of a namespace is derived where an older record lacks it", "[restore]") {
  world w;
  w.add("native", stored_origin::unknown, 5);
  store::namespace_record protocol;
  protocol.spec.name = protocol.spec.model = "other";
  protocol.spec.layout = layout_of_slot_clients;
  CHECK(origin_of(protocol) == stored_origin::protocol);
  protocol.id = protocol.spec.id();
  w.put(protocol);
  const auto x = w.start();
  CHECK(x.served == names_t{"native"});
  REQUIRE(x.absent.size() == 1);
  CHECK(x.absent[0].name == "other");
}

TEST_CASE("restore: a namespace that cannot be registered is set aside", "[restore]") {
  world w;
  const auto id = w.add("native", stored_origin::api, 5);
  w.terms.forget_absent = GENERATE(false, true);
  restore_plan plan(w.terms);
  CHECK(plan.admit(w.disk.namespaces().at(0)));
  plan.set_aside(id, "the name is taken");
  CHECK_FALSE(plan.admit(w.disk.ranks().at(0)).has_value());
  for (const auto& x : w.disk.pages())
    CHECK_FALSE(plan.admit(x));
  const auto absent = plan.absent();
  REQUIRE(absent.size() == 1);
  CHECK(absent[0].reason == "the name is taken");
  CHECK(absent[0].pages == 2);
  w.disk.apply(plan.take_changes());
  CHECK(w.stored_pages(id) == (w.terms.forget_absent ? 0 : 2));
  CHECK(w.disk.namespaces().size() == (w.terms.forget_absent ? 0 : 1));
}

} // namespace restore_plan_test
