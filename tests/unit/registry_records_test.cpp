#include "actors/node/registry/registry_records.hpp"
#include "store/journal.hpp"
#include "store/records.hpp"
#include "tests/catch.hpp"
#include "tests/unit/record_store.hpp"
#include "tests/unit/store_support.hpp"

#include <memory>
#include <string>

namespace registry_records_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::chrono::sys_seconds today{std::chrono::seconds(1'800'000'000)};

struct world {
  namespace_spec spec = sample_namespace(2).spec;
  namespace_id ns = spec.id();
  store::journal log;
  record_table disk;

  void change(const registry_change& what) { troupe::write(log.pending(), what, today); }
  void publish(std::uint64_t n, slot_ref where, incarnation_number incarnation = 3, key_digest parent = {}) {
    change(page_published{{ns, key_number(n), parent, where, 0, 0}, incarnation});
  }
  void unpublish(std::uint64_t n) { change(page_unpublished{ns, key_number(n), 0}); }

  void write() {
    while (auto batch = log.begin_write()) {
      disk.apply(*batch);
      log.written();
    }
  }
};

} // namespace

TEST_CASE("registry records: a page is stored with its parent and incarnation", "[registry][records]") {
  world w;
  w.change(
      namespace_added{std::make_shared<const namespace_spec>(w.spec), {false, true, 9, namespace_origin::protocol}});
  w.change(rank_added{w.ns, 0, 100, 3});
  w.publish(1, {4, 7}, 3, key_number(5));
  w.publish(2, {5, 8});
  w.write();
  CHECK(w.disk.pages() == std::vector<store::page_record>{{w.ns, key_number(1), 0, {4, 7}, key_number(5), 3},
                                                          {w.ns, key_number(2), 0, {5, 8}, {}, 3}});
  CHECK(w.disk.ranks() == std::vector<store::rank_record>{{w.ns, 0, 100, 3}});
  store::namespace_record made;
  made.id = w.ns;
  made.spec = w.spec;
  made.slot_index = true;
  made.max_ranks = 9;
  made.created = today;
  made.origin = store::stored_origin::protocol;
  CHECK(w.disk.namespaces() == std::vector<store::namespace_record>{made});
}

TEST_CASE("registry records: the registration of a rank is synced, so that no power loss brings older pages back",
          "[registry][records]") {
  world w;
  w.publish(1, {4, 7});
  CHECK_FALSE(w.log.pending().must_sync());
  w.change(rank_added{w.ns, 0, 100, 4});
  CHECK(w.log.pending().must_sync());
}

TEST_CASE("registry records: changes of a refused batch are stored before later ones", "[registry][records]") {
  world w;
  w.publish(1, {4, 7});
  w.publish(2, {5, 7});
  auto refused = w.log.begin_write();
  REQUIRE(refused);
  w.unpublish(1); // meanwhile
  w.publish(3, {4, 8});
  w.log.refused(std::move(*refused));
  CHECK_FALSE(w.log.durable());
  w.write();
  CHECK(w.log.durable());
  CHECK(w.disk.pages() == std::vector<store::page_record>{{w.ns, key_number(3), 0, {4, 8}, {}, 3},
                                                          {w.ns, key_number(2), 0, {5, 7}, {}, 3}});
}

TEST_CASE("registry records: a removed namespace leaves nothing in the store", "[registry][records]") {
  world w;
  const auto other = namespace_number(99);
  w.change(namespace_added{std::make_shared<const namespace_spec>(w.spec), {}});
  w.change(rank_added{w.ns, 0, 100, 3});
  w.publish(1, {4, 7});
  w.change(rank_added{other, 0, 100, 4});
  w.change(page_published{{other, key_number(1), {}, {1, 1}, 0, 0}, 4});
  const bool written_before = GENERATE(true, false);
  if (written_before)
    w.write();
  w.publish(2, {5, 7});
  w.change(namespace_removed{w.ns});
  w.write();
  CHECK(w.disk.namespaces().empty());
  CHECK(w.disk.ranks() == std::vector<store::rank_record>{{other, 0, 100, 4}});
  CHECK(w.disk.pages() == std::vector<store::page_record>{{other, key_number(1), 0, {1, 1}, {}, 4}});
}

} // namespace registry_records_test
