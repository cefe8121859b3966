#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/cluster/pages/staging_copier.hpp"
#include "actors/cluster/pages/staging_mover.hpp"
#include "io/memory/arena_name.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace staging_copier_test {

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::test;

namespace {

constexpr rank_number rank = 3;
constexpr owner_id owner = 5;
constexpr std::uint32_t blocks = 8;
constexpr std::uint32_t batch_pages_max = 6;
constexpr std::uint64_t number = 77;

/// The copier of a node that fetches, the memory of that node, and the sender.
struct world : sim {
  const namespace_spec ns = small_namespace();
  const std::uint64_t page_bytes = ns.geometry.page_bytes();
  const std::uint64_t slot = io::slot_bytes(page_bytes);
  std::shared_ptr<staging_buffer> staging = std::make_shared<staging_buffer>(ns.geometry, blocks);
  std::shared_ptr<page_mover> mover = make_staging_mover(staging);
  std::shared_ptr<inbound_transfers> coming = std::make_shared<inbound_transfers>();
  std::shared_ptr<io::arena> memory = *io::arena::create({6 * slot, 6 * slot, io::huge_page_choice::off});
  std::shared_ptr<copy_engine_state> state = std::make_shared<copy_engine_state>(
      copy_engine_options{ns.id(), rank, batch_pages_max, std::make_shared<io::arena_finder>()}, mover);
  copy_engine_actor copier =
      spawn<staging_copier>(state, coming, staging, *spawn_copy_engine(system(), state, lane_threads::none));
  std::vector<std::pair<transfer_task, inbound_transfers::receiver>> asked;

  world() {
    std::memset(staging->blocks().data(), 0x77, staging->blocks().size());
    const arena_info info{6 * slot, 6 * slot, io::encode(memory->name())};
    REQUIRE(ask(copier, bind_atom_v, owner, info).code() == errc::ok);
    coming->expect(
        number,
        [this](transfer_task work, inbound_transfers::receiver then) {
          asked.emplace_back(std::move(work), std::move(then));
        },
        now() + std::chrono::seconds(10));
  }

  copy_item item(std::uint32_t block, std::uint64_t frame) const {
    return {key(block), {20 + block, 9}, frame * slot, block};
  }
  copy_order order(std::vector<copy_item> items, std::uint64_t event = number) const {
    return {owner, std::move(items), {}, event};
  }
  std::vector<std::byte> page_of(std::uint32_t block) const {
    std::vector<std::byte> out(page_bytes);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::byte>(i * 31 + std::size_t{block} * 7 + 1);
    return out;
  }
  /// As a session does: from a frame of the other node.
  errc send(std::uint32_t block, bool damaged = false) {
    auto page = page_of(block);
    std::vector<block_move> moves{{block, page.data(), page.size()}};
    moves[0].checksum = io::checksum_of(page);
    if (damaged)
      page[page.size() / 2] ^= std::byte{1};
    REQUIRE(mover->scatter(moves));
    return moves[0].verdict;
  }
  errc verify(const copy_item& x) {
    return io::verify_page(memory->bytes().subspan(x.frame_offset, slot), {ns.id(), x.key, rank, x.where, page_bytes});
  }
  bool is_right(const copy_item& x) {
    const auto right = page_of(x.block);
    return verify(x) == errc::ok &&
           std::memcmp(memory->bytes().data() + x.frame_offset + io::page_header_bytes, right.data(), page_bytes) == 0;
  }
  bool blocks_untouched() const {
    return std::ranges::all_of(staging->blocks(), [](std::byte x) { return x == std::byte{0x77}; });
  }
  static transfer_result with(std::vector<errc> codes) {
    transfer_result out;
    for (const auto code : codes)
      out.results.items.push_back(static_cast<std::uint8_t>(code));
    return out;
  }
  void answer(std::size_t which, const result<transfer_result>& outcome) {
    asked[which].second(outcome);
    run();
  }
  std::vector<errc> codes(std::uint64_t request) {
    std::vector<errc> out;
    const auto came = client().answer_to(request);
    for (const auto code : came.value<copy_reply>().results)
      out.push_back(static_cast<errc>(code));
    return out;
  }
};

} // namespace

TEST_CASE_METHOD(world, "staging copier: pages are sent from frame to frame and sealed at the target", "[cluster]") {
  const std::vector items{item(1, 2), item(6, 0)};
  const auto request = begin(copier, gather_atom_v, order(items));
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].first.keys.items == std::vector<key_digest>{key(1), key(6)});
  CHECK(asked[0].first.blocks.items == std::vector<std::uint32_t>{1, 6});
  CHECK_FALSE(client().answer_to(request).came);
  CHECK(send(6) == errc::ok);
  CHECK(send(1) == errc::ok);
  // No page is sealed before the sender reports that all bytes are there.
  CHECK(verify(items[0]) != errc::ok);
  answer(0, with({errc::ok, errc::ok}));
  CHECK(codes(request) == std::vector(2, errc::ok));
  CHECK(is_right(items[0]));
  CHECK(is_right(items[1]));
  CHECK(blocks_untouched());
  CHECK_FALSE(staging->target(1));
}

TEST_CASE_METHOD(world, "staging copier: pages behind a missing page are discarded", "[cluster]") {
  const std::vector items{item(1, 0), item(2, 1), item(3, 2), item(4, 3)};
  const auto request = begin(copier, gather_atom_v, order(items));
  CHECK(send(1) == errc::ok);
  CHECK(send(2, true) == errc::corrupt);
  CHECK(send(3) == errc::ok);
  answer(0, with({errc::ok, errc::corrupt, errc::ok, errc::not_found}));
  CHECK(codes(request) == std::vector{errc::ok, errc::corrupt, errc::cancelled, errc::cancelled});
  CHECK(is_right(items[0]));
  for (std::size_t i = 1; i < 4; ++i)
    CHECK(verify(items[i]) != errc::ok);
}

TEST_CASE_METHOD(world, "staging copier: a page read from a file is gathered from its block", "[cluster]") {
  const std::vector items{item(1, 0), item(2, 1), item(3, 2)};
  const auto request = begin(copier, gather_atom_v, order(items));
  CHECK(send(1) == errc::ok);
  CHECK(send(3) == errc::ok);
  const auto from_file = page_of(2);
  std::memcpy(staging->blocks().data() + 2 * page_bytes, from_file.data(), page_bytes);
  auto outcome = with({errc::ok, errc::ok, errc::ok});
  outcome.from_files = 1;
  answer(0, outcome);
  CHECK(codes(request) == std::vector(3, errc::ok));
  for (const auto& x : items)
    CHECK(is_right(x));
}

TEST_CASE_METHOD(world, "staging copier: a frame that was not written is no page, whatever the sender reports",
                 "[cluster]") {
  const std::vector items{item(1, 0), item(2, 1)};
  const auto request = begin(copier, gather_atom_v, order(items));
  CHECK(send(1) == errc::ok);
  answer(0, with({errc::ok, errc::ok}));
  CHECK(codes(request) == std::vector{errc::ok, errc::internal});
  CHECK(verify(items[1]) != errc::ok);
}

TEST_CASE_METHOD(world, "staging copier: a sender that fails, answers short or disconnects leaves no page",
                 "[cluster]") {
  const std::vector items{item(1, 0), item(2, 1)};
  const auto request = begin(copier, gather_atom_v, order(items));
  CHECK(send(1) == errc::ok);
  CHECK(send(2) == errc::ok);
  SECTION("failed") {
    answer(0, fail(errc::timeout, "late"));
    CHECK(codes(request) == std::vector{errc::timeout, errc::cancelled});
  }
  SECTION("short") {
    answer(0, with({}));
    CHECK(codes(request) == std::vector{errc::internal, errc::cancelled});
  }
  SECTION("disconnected") {
    asked.clear();
    run();
    CHECK(codes(request) == std::vector{errc::unreachable, errc::cancelled});
  }
  for (const auto& x : items)
    CHECK(verify(x) != errc::ok);
  CHECK_FALSE(staging->target(1));
}

TEST_CASE_METHOD(world, "staging copier: unexpected orders and orders of another attachment are refused", "[cluster]") {
  CHECK(ask(copier, gather_atom_v, order({item(1, 0)}, number + 1)).code() == errc::expired);
  CHECK_FALSE(staging->target(1));
  auto other = order({item(1, 0)});
  other.owner = owner + 1;
  CHECK(ask(copier, gather_atom_v, other).code() == errc::expired);
  CHECK(ask(copier, gather_atom_v, order(std::vector(batch_pages_max + 1, item(1, 0)))).code() == errc::limit_exceeded);
  coming->end(number, [](const sending_counts&) {});
  CHECK(ask(copier, gather_atom_v, order({item(1, 0)})).code() == errc::expired);
  CHECK(asked.empty());
}

TEST_CASE_METHOD(world, "staging copier: only the frame outside of the memory fails", "[cluster]") {
  const std::vector items{item(1, 0), item(2, 6), item(3, 1)};
  const auto request = begin(copier, gather_atom_v, order(items));
  CHECK(asked.at(0).first.blocks.items == std::vector<std::uint32_t>{1, 3});
  CHECK(send(1) == errc::ok);
  CHECK(send(3) == errc::ok);
  answer(0, with({errc::ok, errc::ok}));
  CHECK(codes(request) == std::vector{errc::ok, errc::out_of_range, errc::ok});
  CHECK(is_right(items[2]));
}

TEST_CASE_METHOD(world, "staging copier: its shutdown answers all requests and keeps its memory for active writers",
                 "[cluster]") {
  const auto request = begin(copier, gather_atom_v, order({item(1, 0)}));
  anon_send_exit(copier, caf::exit_reason::user_shutdown);
  run();
  CHECK(client().answer_to(request).code() == errc::unreachable);
  const std::weak_ptr<copy_engine_state> is_there = std::exchange(state, nullptr);
  copier = nullptr;
  CHECK_FALSE(is_there.expired());
  CHECK(send(1) == errc::ok);
  asked.clear();
  run();
  CHECK(is_there.expired());
  CHECK_FALSE(staging->target(1));
}

} // namespace staging_copier_test
