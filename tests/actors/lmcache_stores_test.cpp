#include "actors/lmcache/lmcache_server.hpp"
#include "actors/lmcache/lmcache_service.hpp"
#include "actors/support/system_config.hpp"
#include "io/page.hpp"
#include "tests/actors/lmcache_node.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"
#include "tests/named_memory.hpp"
#include "tests/patience.hpp"
#include "tests/unit/raw_zmq_peer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

namespace lmcache_stores_test {

/// Which chunks of LMCache's workers become pages, and what the node's shards learn about them.

using namespace troupe;
using namespace troupe::test;
using lmcache::protocol::operation;

namespace {

constexpr std::chrono::seconds patience{60};
constexpr std::uint32_t chunk_tokens = 4;
constexpr lmcache::client_number client = 1;
const std::uint64_t page_bytes = small_namespace().geometry.page_bytes();
const std::uint64_t slot = io::slot_bytes(page_bytes);

/// A node that publishes events, with a shard and a rank that have room for every page. It forwards to the test which
/// pages are reserved and described.
caf::behavior node_with_events(caf::event_based_actor* self, const caf::actor& notified) {
  return {
      [self](const attach_request& wanted, const caf::actor&) {
        auto out = attached_to(self, wanted);
        out.wants_descriptions = true;
        return out;
      },
      [](caf::leave_atom, owner_id, const caf::actor&) {},
      [](owner_quiesced_atom, owner_id) {},
      [self, notified](const reserve_request& x) {
        self->send(notified, x);
        reserve_reply out;
        out.results.items.assign(x.keys.size(), location{});
        return out;
      },
      [](place_atom, const frame_request& x) {
        frame_reply out{1, {}};
        for (std::size_t i = 0; i < x.pages.size(); ++i)
          out.frames.items.push_back({i * slot, 0, 0});
        return out;
      },
      [](fill_atom, const fill_request& x) {
        io_reply out;
        out.results.items.assign(x.gathered.size(), 0);
        return out;
      },
      [](commit_atom, const finish_request& x) {
        finish_reply out;
        out.results.items.assign(x.pages.size(), 0);
        return out;
      },
      [](abort_atom, const finish_request&) { return finish_reply{}; },
      [self, notified](const describe_pages_request& x) {
        self->send(notified, x);
        result_codes out;
        out.results.items.assign(x.pages.keys.size(), 0);
        return out;
      },
  };
}

struct stores_world {
  named_memory memory{std::size_t{1} << 16U};
  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(1, std::uint64_t{2} << 20U);
  system_config settings{config::caf_config{}};
  caf::actor_system system{settings};
  caf::scoped_actor self{system};
  caf::actor node = system.spawn(node_with_events, caf::actor_cast<caf::actor>(self));
  std::shared_ptr<lmcache_inbox> inbox = std::make_shared<lmcache_inbox>();
  lmcache_actor server;
  std::vector<key_digest> keys = test_task(3).keys.items;

  stores_world() {
    auto parts = server_parts(self, node, inbox, extents);
    parts.chunk_tokens = chunk_tokens;
    server = spawn_actor<lmcache_server>(system, std::move(parts));
  }
  ~stores_world() {
    self->send_exit(server, caf::exit_reason::user_shutdown);
    self->send_exit(node, caf::exit_reason::user_shutdown);
  }

  /// A request about the three chunks, of which the worker has the tokens.
  lmcache::incoming wanted(operation what) {
    lmcache::incoming x;
    x.client = client;
    x.number = "answered";
    x.what = what;
    x.instance = 1;
    x.process = ::getpid();
    x.chunks.model = small_namespace().model;
    x.chunks.world_size = 1;
    x.chunks.worker = 0;
    x.chunks.request = "r";
    x.chunks.end = 3;
    x.chunks.keys = keys;
    x.chunks.tokens.resize(3 * chunk_tokens);
    std::iota(x.chunks.tokens.begin(), x.chunks.tokens.end(), 100U);
    return x;
  }
  void send(lmcache::incoming x) {
    inbox->put(std::make_shared<lmcache::incoming>(std::move(x)));
    caf::anon_send(server, caf::update_atom_v);
  }
  void send(operation what) { send(wanted(what)); }
  void register_memory(bool sliding) {
    auto x = wanted(operation::register_kv_cache);
    auto layout = std::make_shared<remote_layout>();
    layout->memories.emplace_back(shared_memory_handle{memory.name(), memory.size()});
    layout->runs.push_back({0, 0, page_bytes, page_bytes});
    layout->blocks = 4;
    x.opened = lmcache::open_context{small_namespace(), layout, sliding};
    send(std::move(x));
  }
  /// The next message of this kind; the test ends if there is none.
  template <class T>
  T next() {
    std::optional<T> out;
    self->receive([&](const T& x) { out = x; }, caf::after(patience) >> [] {});
    REQUIRE(out);
    return *std::move(out);
  }
  std::span<std::byte> block(std::size_t number) const {
    return memory.bytes().subspan(number * page_bytes, page_bytes);
  }
  /// Whether the page in this frame is that block.
  bool has(std::size_t frame, std::size_t number) const {
    const auto page = extents->memory().subspan(frame * slot + io::page_header_bytes, page_bytes);
    return std::ranges::equal(page, block(number));
  }
  void await_answer() { CHECK(next<std::string>() == "answered"); }
};

} // namespace

TEST_CASE_METHOD(stores_world,
                 "lmcache stores: stored pages are described by their tokens and the chain of their hashes",
                 "[lmcache]") {
  auto worker = wanted(operation::register_context);
  worker.registration = lmcache::context{{{small_namespace(), {}}}};
  send(std::move(worker));
  await_answer();
  send(operation::prepare_store);
  await_answer();
  send(operation::commit_store);
  await_answer();
  CHECK(next<reserve_request>().keys.items == keys);
  const auto described = next<describe_pages_request>();
  CHECK(described.ns == small_namespace().id());
  const auto& pages = described.pages;
  CHECK(pages.block_tokens == chunk_tokens);
  CHECK(pages.blocks_per_page == 1);
  CHECK(pages.groups.empty());
  CHECK(pages.keys.items == keys);
  CHECK(pages.has_parent.items == std::vector<std::uint8_t>{0, 1, 1});
  REQUIRE(pages.hashes.size() == 3);
  CHECK(pages.hashes[0] != pages.hashes[1]);
  CHECK(pages.parents.items == std::vector<std::uint64_t>{0, pages.hashes[0], pages.hashes[1]});
  CHECK(pages.tokens.items == wanted(operation::store).chunks.tokens);
}

TEST_CASE_METHOD(stores_world, "lmcache stores: a chunk without a block of the worker is not stored", "[lmcache]") {
  const bool sliding = GENERATE(false, true);
  register_memory(sliding);
  await_answer();
  for (std::size_t i = 0; i < 4; ++i)
    std::ranges::fill(block(i), static_cast<std::byte>(i + 1));
  auto x = wanted(operation::store);
  SECTION("in the middle") {
    x.blocks = {1, 0, 2};
    send(std::move(x));
    CHECK(next<reserve_request>().keys.items == std::vector{keys[0]});
    CHECK(next<reserve_request>().keys.items == std::vector{keys[2]});
    await_answer();
  }
  SECTION("at the end") {
    x.blocks = {1, 2, 0};
    send(std::move(x));
    CHECK(next<reserve_request>().keys.items == std::vector{keys[0], keys[1]});
    await_answer();
    CHECK(has(0, 1));
    CHECK(has(1, 2));
  }
}

TEST_CASE("lmcache service: its listener counts the clients of the node", "[lmcache]") {
  config::lmcache_config how;
  how.port = 0;
  const auto counts = std::make_shared<lmcache::counters>();
  const auto opened = lmcache_service::prepare(how, counts, false);
  REQUIRE(opened);
  (*opened)->serve({[](const lmcache::incoming&) {}, [](lmcache::client_number) {}});
  const raw_zmq_peer peer((*opened)->port());
  peer.shake_hands();
  peer.wait_until_ready();
  // A ping, as frames with their flags and lengths.
  REQUIRE(peer.send(std::string("\x01\x01\x01\x01\x01\x16\x00\x01\xc0", 9)));
  CHECK(eventually([&] { return counts->clients == 1; }));
}

} // namespace lmcache_stores_test
