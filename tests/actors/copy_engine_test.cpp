#include "actors/client/copy_engine/copy_lane.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace copy_engine_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr rank_number rank = 3;
constexpr std::uint32_t blocks = 8;
constexpr std::uint32_t batch_pages_max = 6;

/// A copy engine for a device in host memory, and the node's side of the memory that they share.
struct world : sim {
  const namespace_spec ns = small_namespace();
  const std::uint64_t slot = io::slot_bytes(ns.geometry.page_bytes());
  replay::device_memory device = *replay::device_memory::create(ns.geometry, blocks, {});
  std::vector<std::shared_ptr<io::arena>> memory;
  copy_engine_actor engine = spawn<copy_lane>(std::make_shared<copy_engine_state>(
      copy_engine_options{ns.id(), rank, batch_pages_max, std::make_shared<io::arena_finder>()},
      *make_host_page_mover(device.view())));

  arena_info share(std::uint64_t pages = 4) {
    memory.push_back(*io::arena::create({pages * slot, pages * slot, io::huge_page_choice::off}));
    return {pages * slot, pages * slot, io::encode(memory.back()->name())};
  }
  void bind(owner_id owner, const arena_info& to) { REQUIRE(ask(engine, bind_atom_v, owner, to).code() == errc::ok); }

  copy_item item(std::uint32_t block, std::uint64_t frame, std::uint64_t key_number) const {
    return {key(key_number), {20 + block, 9}, frame * slot, block};
  }

  std::span<std::byte> page(std::uint64_t frame, std::size_t of = 0) {
    return memory[of]->bytes().subspan(frame * slot, slot);
  }
  errc verify(std::uint64_t frame, const copy_item& what, std::size_t of = 0) {
    return io::verify_page(page(frame, of), {ns.id(), what.key, rank, what.where, ns.geometry.page_bytes()});
  }

  std::vector<errc> gather(owner_id owner, std::vector<copy_item> items) {
    return codes_of(ask(engine, gather_atom_v, copy_order{owner, std::move(items)}));
  }
  std::vector<errc> scatter(owner_id owner, std::vector<copy_item> items) {
    return codes_of(ask(engine, scatter_atom_v, copy_order{owner, std::move(items)}));
  }
  static std::vector<errc> codes_of(const answer& x) {
    std::vector<errc> out;
    for (const auto code : x.value<copy_reply>().results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  void fill_all() {
    for (std::uint32_t i = 0; i < blocks; ++i)
      device.fill(i, key(i), rank);
  }
  void poison_all() {
    for (std::uint32_t i = 0; i < blocks; ++i)
      device.poison(i);
  }
  bool holds(std::uint32_t block, std::uint64_t key_number) const {
    return !device.verify(block, key(key_number), rank).has_value();
  }
};

} // namespace

TEST_CASE_METHOD(world,
                 "copy engine actor: a page gathered through one mapping is valid in the other and scattered back",
                 "[copy_engine]") {
  bind(5, share());
  fill_all();
  const std::vector items{item(1, 2, 1), item(6, 0, 6)};
  CHECK(gather(5, items) == std::vector(2, errc::ok));
  CHECK(verify(2, items[0]) == errc::ok);
  CHECK(verify(0, items[1]) == errc::ok);
  CHECK(std::ranges::all_of(page(1), [](std::byte x) { return x == std::byte{0}; }));
  poison_all();
  // Into other blocks, as a load does.
  auto back = items;
  back[0].block = 4;
  CHECK(scatter(5, back) == std::vector(2, errc::ok));
  CHECK(holds(4, 1));
  CHECK(holds(6, 6));
  for (const auto untouched : {0U, 1U, 2U, 3U, 5U, 7U})
    CHECK(device.is_poisoned(untouched));
}

TEST_CASE_METHOD(world, "copy engine actor: a page that changed in the node's memory is not scattered",
                 "[copy_engine]") {
  bind(5, share());
  fill_all();
  CHECK(gather(5, {item(0, 0, 0), item(1, 1, 1)}) == std::vector(2, errc::ok));
  page(1)[io::page_header_bytes + 100] ^= std::byte{1};
  poison_all();
  CHECK(scatter(5, {item(0, 0, 0), item(1, 1, 1), item(2, 0, 2)}) ==
        std::vector{errc::ok, errc::corrupt, errc::identity_mismatch});
  CHECK(holds(0, 0));
  CHECK(device.is_poisoned(1));
  CHECK(device.is_poisoned(2));
}

TEST_CASE_METHOD(world, "copy engine actor: orders that it cannot execute are refused with a reason", "[copy_engine]") {
  fill_all();
  const auto refused = [&](owner_id owner, std::vector<copy_item> items) {
    const copy_order order{owner, std::move(items)};
    const auto gathering = ask(engine, gather_atom_v, order);
    const auto scattering = ask(engine, scatter_atom_v, order);
    CHECK(gathering.code() == scattering.code());
    CHECK_FALSE(gathering.failure.text.empty());
    CHECK_FALSE(scattering.failure.text.empty());
    return gathering.code();
  };
  SECTION("before anything is bound, whatever its number") {
    CHECK(refused(5, {item(0, 0, 0)}) == errc::expired);
    CHECK(refused(0, {item(0, 0, 0)}) == errc::expired);
    CHECK(refused(0, {}) == errc::expired);
  }
  SECTION("of another attachment") {
    bind(5, share());
    CHECK(refused(4, {item(0, 0, 0)}) == errc::expired);
  }
  SECTION("of an attachment that has ended") {
    bind(5, share());
    CHECK(ask(engine, unbind_atom_v, owner_id{5}).code() == errc::ok);
    CHECK(refused(5, {item(0, 0, 0)}) == errc::expired);
    CHECK(ask(engine, unbind_atom_v, owner_id{5}).code() == errc::ok);
    CHECK(ask(engine, unbind_atom_v, owner_id{99}).code() == errc::ok); // it has no copy in progress either
  }
  SECTION("of more pages than its limit") {
    bind(5, share());
    CHECK(refused(5, std::vector(batch_pages_max + 1, item(0, 0, 0))) == errc::limit_exceeded);
    CHECK(gather(5, std::vector(batch_pages_max, item(0, 0, 0))) == std::vector(batch_pages_max, errc::ok));
  }
}

TEST_CASE_METHOD(world, "copy engine actor: only the item outside of memory or cache fails", "[copy_engine]") {
  bind(5, share());
  fill_all();
  auto unaligned = item(3, 1, 3);
  unaligned.frame_offset += 512;
  auto far = item(3, 1, 3);
  far.frame_offset = ~std::uint64_t{0} - 4095;
  CHECK(
      gather(5, {item(0, 0, 0), item(1, 4, 1), unaligned, far, item(blocks, 1, 2), item(7, 3, 7)}) ==
      std::vector{errc::ok, errc::out_of_range, errc::out_of_range, errc::out_of_range, errc::out_of_range, errc::ok});
  CHECK(verify(0, item(0, 0, 0)) == errc::ok);
  CHECK(verify(3, item(7, 3, 7)) == errc::ok);
  CHECK(verify(1, item(blocks, 1, 2)) != errc::ok);
}

TEST_CASE_METHOD(world,
                 "copy engine actor: memory that cannot be mapped is refused and the previous memory stays bound",
                 "[copy_engine]") {
  bind(5, share());
  fill_all();
  auto bad = share();
  auto name = memory.back()->name();
  auto expected = errc::identity_mismatch;
  SECTION("of another node, where process and descriptor mean something else") {
    name.descriptor = memory.front()->name().descriptor;
  }
  SECTION("without a proof") {
    name.proof = {};
  }
  SECTION("of another size") {
    bad.bytes += slot;
  }
  SECTION("of no size") {
    bad.bytes = 0;
    expected = errc::invalid_argument;
  }
  SECTION("of a process that does not exist") {
    name.process = -1;
    expected = errc::unreachable;
  }
  SECTION("with a descriptor that is not open") {
    name.descriptor = -1;
    expected = errc::unreachable;
  }
  bad.name = io::encode(name);
  SECTION("with a malformed name") {
    bad.name.items.resize(7);
    expected = errc::invalid_argument;
  }
  const auto refused = ask(engine, bind_atom_v, owner_id{6}, bad);
  CHECK(refused.code() == expected);
  CHECK_FALSE(refused.failure.text.empty());
  CHECK(ask(engine, gather_atom_v, copy_order{6, {}}).code() == errc::expired);
  CHECK(gather(5, {item(0, 0, 0)}) == std::vector{errc::ok});
}

TEST_CASE_METHOD(world, "copy engine actor: after a new binding the previous memory is not accessed", "[copy_engine]") {
  bind(5, share());
  bind(6, share(2));
  fill_all();
  CHECK(ask(engine, gather_atom_v, copy_order{5, std::vector{item(0, 0, 0)}}).code() == errc::expired);
  CHECK(gather(6, {item(0, 1, 0), item(1, 3, 1)}) == std::vector{errc::ok, errc::out_of_range});
  CHECK(verify(1, item(0, 1, 0), 1) == errc::ok);
  for (std::uint64_t frame = 0; frame < 4; ++frame)
    CHECK(std::ranges::all_of(page(frame), [](std::byte x) { return x == std::byte{0}; }));
  // The same owner id again, from a node that counts from the start: only its memory is used.
  bind(6, share(1));
  CHECK(gather(6, {item(2, 0, 2)}) == std::vector{errc::ok});
  CHECK(verify(0, item(2, 0, 2), 2) == errc::ok);
  CHECK(verify(0, item(2, 0, 2), 1) != errc::ok);
}

TEST_CASE_METHOD(world, "copy engine actor: memory of a node that has exited stays usable until the next binding",
                 "[copy_engine]") {
  bind(5, share());
  fill_all();
  memory.clear();
  CHECK(gather(5, {item(0, 0, 0)}) == std::vector{errc::ok});
  poison_all();
  CHECK(scatter(5, {item(0, 0, 0)}) == std::vector{errc::ok});
  CHECK(holds(0, 0));
}

} // namespace copy_engine_test
