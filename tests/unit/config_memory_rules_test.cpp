#include "config/memory_rules.hpp"
#include "tests/unit/config_support.hpp"

namespace config_memory_rules_test {

using namespace troupe;
using namespace troupe::config;

namespace {

using overrides = std::vector<std::string>;

memory_bound bound_of(std::uint64_t bytes) {
  return {bytes, "this host has"};
}

/// The number of slots of `small_config` with two slabs of this size.
page_room room_with(const std::string& slab_bytes, overrides more = {}) {
  more.insert(more.end(), {"registry.durability=strict", "storage.ranks[0].slab_bytes=" + slab_bytes,
                           "storage.ranks[1].slab_bytes=" + slab_bytes});
  return room_for_pages(good(small_config, more));
}

} // namespace

TEST_CASE("config memory rules: memory that a process can never have is an error that states what would fit",
          "[config][memory]") {
  const auto config = good(small_config, {"memory.bytes=1 GiB"});
  CHECK_FALSE(fault_of_memory(config, bound_of(gibibyte + memory_of_idle_node)));
  CHECK_FALSE(fault_of_memory(config, bound_of(0))); // the bound is unknown
  const auto fault = fault_of_memory(config, {512 * mebibyte, "the control group of this process has (memory.max)"});
  REQUIRE(fault);
  CHECK(fault->path == "memory.bytes");
  for (const auto* part :
       {"1 GiB, and 64 MiB for the node", "more than the 512 MiB of memory that the control group of this process",
        "lower it to less than 448 MiB", "the kernel kills it"})
    CHECK(contains(fault->text, part));
  CHECK(fault_of_memory(config, bound_of(gibibyte + memory_of_idle_node - 1)));
  CHECK(fault_of_memory(config, bound_of(mebibyte))); // not even without pages
}

TEST_CASE("config memory rules: slots of all ranks are counted, without a slab, those that fit into memory",
          "[config][memory]") {
  const auto config = good(small_config);
  const auto page = config.namespaces[0].geometry.page_bytes();
  CHECK(slots_of_config(config) ==
        slab_slots(config.storage.ranks[0].slab_bytes, page) + slab_slots(config.storage.ranks[1].slab_bytes, page));
  const auto memory_only = good(small_config, {"memory.write_back=never", "memory.bytes=64 MiB"});
  CHECK(slots_of_config(memory_only) > 2 * slab_slots(64 * mebibyte, page) - 2);
}

TEST_CASE("config memory rules: a warning is given for memory beyond all slots of the disk", "[config][memory]") {
  // Two slabs of 4 GiB, less what does not make a whole slot.
  const auto room = room_with("4 GiB", {"memory.bytes=40 GiB"});
  CHECK(room.slab_bytes <= 8 * gibibyte);
  CHECK(room.slab_bytes > 8 * gibibyte - mebibyte);
  CHECK(room.usable_bytes() == room.slab_bytes);
  CHECK(room.unusable_bytes() == 40 * gibibyte - room.slab_bytes);
  CHECK(room_with("40 GiB", {"memory.bytes=40 GiB"}).unusable_bytes() == 0);
  // Where nothing is written, pages may have all of it.
  const overrides in_memory{"memory.bytes=40 GiB", "memory.write_back=never"};
  CHECK(room_for_pages(good(small_config, in_memory)).unusable_bytes() == 0);
}

TEST_CASE("config memory rules: memory beyond the disk is used unless every page has to be on the disk",
          "[config][memory]") {
  for (const auto* durability : {"relaxed", "none"}) {
    const overrides wanted{"memory.bytes=40 GiB", std::string("registry.durability=") + durability};
    CHECK(room_for_pages(good(small_config, wanted)).unusable_bytes() == 0);
    CHECK_FALSE(notice_of_unusable_memory(good(small_config, wanted)));
  }
  const auto notice =
      notice_of_unusable_memory(good(small_config, {"memory.bytes=40 GiB", "memory.beyond_disk=false"}));
  REQUIRE(notice);
  CHECK(contains(notice->text, "or set memory.beyond_disk to true"));
}

TEST_CASE("config memory rules: slots for client-created namespaces count with the disk space for them",
          "[config][memory]") {
  const overrides made{"memory.bytes=40 GiB", "storage.disk_bytes=8 GiB"};
  const auto both = room_with("4 GiB", made);
  CHECK(both.usable_bytes() == both.slab_bytes + 8 * gibibyte);
  node_config alone;
  alone.registry.durability = "strict";
  alone.memory.bytes = 40 * gibibyte;
  alone.storage.disk_bytes = 8 * gibibyte;
  CHECK(room_for_pages(alone).usable_bytes() == 8 * gibibyte);
  alone.storage.disk_bytes = 0; // in memory only
  CHECK(room_for_pages(alone).usable_bytes() == 40 * gibibyte);
  alone.actors.make_namespaces = false; // no pages at all
  CHECK_FALSE(notice_of_unusable_memory(alone));
}

TEST_CASE(
    "config memory rules: a limit for one client beyond a quarter of the memory is reported, unless it is the default",
    "[config][memory]") {
  const auto notice = [](const overrides& wanted) { return notice_of_client_bytes(good(small_config, wanted)); };
  CHECK_FALSE(notice({"memory.bytes=8 GiB", "memory.client_bytes=2 GiB"}));
  CHECK_FALSE(notice({"memory.bytes=64 MiB", "memory.client_bytes=1 GiB"}));
  const auto found = notice({"memory.bytes=4 GiB", "memory.client_bytes=2 GiB"});
  REQUIRE(found);
  CHECK(found->path == "memory.client_bytes");
  CHECK(contains(found->text, "1 GiB"));
}

TEST_CASE("config memory rules: unusable memory is reported where it exceeds a tenth", "[config][memory]") {
  CHECK_FALSE(notice_of_unusable_memory(good(small_config, {"registry.durability=strict", "memory.bytes=4 MiB"})));
  CHECK_FALSE(notice_of_unusable_memory(good(small_config, {"registry.durability=strict", "memory.bytes=12 MiB"})));
  const auto notice =
      notice_of_unusable_memory(good(small_config, {"registry.durability=strict", "memory.bytes=16 MiB"}));
  REQUIRE(notice);
  CHECK(notice->path == "memory.bytes");
  for (const auto* part : {"of 16 MiB can never hold a page", "storage.ranks[i].slab_bytes",
                           "namespaces that clients create could use the rest", "lower memory.bytes to"})
    CHECK(contains(notice->text, part));
  const auto with_disk = notice_of_unusable_memory(
      good(small_config, {"registry.durability=strict", "memory.bytes=1 GiB", "storage.disk_bytes=512 MiB"}));
  REQUIRE(with_disk);
  for (const auto* part : {"512 MiB for namespaces that clients create (storage.disk_bytes)",
                           "storage.ranks[i].slab_bytes or storage.disk_bytes"})
    CHECK(contains(with_disk->text, part));
}

} // namespace config_memory_rules_test
