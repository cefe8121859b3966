#include "actors/client/copy_engine/copy_engine_state.hpp"
#include "gpu/host_page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/near_memory.hpp"
#include "tests/unit/known_arenas.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace copy_engine_remote_test {

namespace {

using namespace troupe;

constexpr std::uint32_t blocks = 4;
constexpr owner_id owner = 21;
constexpr namespace_id ns{5, 6};
const kv_geometry geometry{3, 2, 2, 8, 2, 5};
const std::uint64_t slot_bytes = io::slot_bytes(geometry.page_bytes());

key_digest key(std::uint64_t n) {
  return hash_key(std::as_bytes(std::span(&n, 1)));
}

arena_info elsewhere() {
  arena_info out;
  out.elsewhere = true;
  out.movers.items = {host_address::of_ipv4(0x0a000001), host_address::ipv6_loopback()};
  return out;
}

/// A copy engine of a process that is on another host than its node.
struct far_device {
  explicit far_device(std::uint64_t remote_bytes = 6 * slot_bytes + 100)
      : memory(*replay::device_memory::create(geometry, blocks, {})) {
    copy_engine_options how{ns, 0, 64, arenas};
    how.exposer = network->exposer();
    how.remote_bytes = remote_bytes;
    state.emplace(how, *make_host_page_mover(memory.view()));
    for (std::uint32_t i = 0; i < blocks; ++i)
      memory.fill(i, key(i), 0);
  }

  static copy_item item(std::uint32_t block, std::uint64_t frame, std::uint64_t key_number) {
    return {key(key_number), {40 + block, 3}, frame * slot_bytes, block};
  }

  /// The memory as the node sees it.
  std::vector<std::byte> got(const remote_offer& offer) {
    std::vector<std::byte> out(offer.bytes);
    const auto mover = network->mover();
    const auto peer =
        mover->connect({offer.address.items, offer.key.items, offer.base, offer.bytes}, [](const error&) {});
    result<void> ended = fail(errc::internal, "nothing came");
    (*peer)->move(io::remote_direction::get, {{out, 0}}, [&](result<void> x) { ended = std::move(x); });
    return ended ? out : std::vector<std::byte>{};
  }

  replay::device_memory memory;
  std::shared_ptr<test::near_network> network = std::make_shared<test::near_network>();
  std::shared_ptr<test::known_arenas> arenas = std::make_shared<test::known_arenas>();
  std::optional<copy_engine_state> state;
};

} // namespace

TEST_CASE("copy engine: for a remote node it exposes its own memory and works in frames of it", "[copy_engine_state]") {
  far_device d;
  const auto offer = d.state->expose(owner, elsewhere());
  REQUIRE(offer);
  CHECK(offer->bytes == 6 * slot_bytes);
  CHECK(offer->frame_bytes == slot_bytes);
  CHECK(d.network->admitted == elsewhere().movers.items);
  // The memory begins with the proof of the offer.
  const auto seen = d.got(*offer);
  REQUIRE(offer->proof.size() >= 16);
  CHECK(std::equal(offer->proof.begin(), offer->proof.end(), seen.begin(),
                   [](std::uint8_t a, std::byte b) { return std::byte{a} == b; }));

  const auto saved = d.state->gather({owner, {{d.item(1, 5, 1)}}});
  REQUIRE(saved);
  CHECK(saved->results[0] == 0);
  const auto there = d.got(*offer);
  CHECK(io::verify_page(std::span(there).subspan(5 * slot_bytes, slot_bytes),
                        {ns, key(1), 0, {41, 3}, geometry.page_bytes()}) == errc::ok);
  d.memory.poison(3);
  auto load = d.item(1, 5, 1);
  load.block = 3;
  CHECK(d.state->scatter({owner, {{load}}})->results[0] == 0);
  CHECK_FALSE(d.memory.verify(3, key(1), 0).has_value());
  // There is no seventh frame.
  CHECK(d.state->gather({owner, {{d.item(1, 6, 1)}}})->results[0] == static_cast<std::uint8_t>(errc::out_of_range));
}

TEST_CASE("copy engine: each attachment has its own memory, which is freed when it is quiesced",
          "[copy_engine_state]") {
  far_device d;
  const auto first = d.state->expose(owner, elsewhere());
  REQUIRE(first);
  d.state->end(owner);
  CHECK(d.state->gather({owner, {{d.item(1, 0, 1)}}}).error().code == errc::expired);
  d.state->wait_for_quiesce(owner);
  d.state->drop_lost_arena();
  CHECK(d.got(*first).empty());
  const auto second = d.state->expose(owner + 1, elsewhere());
  REQUIRE(second);
  CHECK(second->address.items != first->address.items);
  CHECK_FALSE(d.got(*second).empty());
  // Also where the rest of the one before was not waited for.
  const auto third = d.state->expose(owner + 2, elsewhere());
  REQUIRE(third);
  CHECK(d.got(*second).empty());
  // And where the node is on this host the next time.
  REQUIRE(d.state->bind(owner + 3, d.arenas->add(4 * slot_bytes, 2 * slot_bytes)));
  CHECK(d.got(*third).empty());
}

TEST_CASE("copy engine: memory for fewer than two pages is refused, and so is exposing without a peer",
          "[copy_engine_state]") {
  far_device small(2 * slot_bytes - 1);
  CHECK(small.state->expose(owner, elsewhere()).error().code == errc::limit_exceeded);
  far_device d;
  CHECK(d.state->expose(owner, {}).error().code == errc::invalid_argument);
  CHECK(d.state->expose(0, elsewhere()).error().code == errc::invalid_argument);
  copy_engine_state none({ns, 0, 64, d.arenas}, *make_host_page_mover(d.memory.view()));
  CHECK(none.expose(owner, elsewhere()).error().code == errc::unsupported);
}

} // namespace copy_engine_remote_test
