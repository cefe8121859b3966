#include "tests/catch.hpp"
#include "tests/event_view.hpp"
#include "tests/integration/capi_engine.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <zmq.h>

namespace events_test {

/// A node that publishes events, an engine with a pool of pages, and subscribers over ZeroMQ.

using namespace troupe::test;

namespace {

constexpr std::size_t event_page_bytes = 16384;
constexpr std::uint32_t event_pages = 64;
constexpr std::uint32_t event_tokens = 16;

nlohmann::json publishing_node(const scratch_directory& scratch) {
  auto out = node_config(scratch.path());
  out["namespaces"] = nlohmann::json::array();
  out["storage"] = {{"ranks", nlohmann::json::array()}};
  out["memory"]["bytes"] = "8 MiB";
  out["events"] = {{"endpoint", "ipc://" + (scratch.path() / "events").string()},
                   {"replay_endpoint", "ipc://" + (scratch.path() / "replay").string()},
                   {"heartbeat", "100 ms"},
                   {"buffer_batches", 8}};
  return out;
}

class described_pool {
public:
  explicit described_pool(troupe_connection* connection) : memory_(event_pages * event_page_bytes) {
    auto geometry = sized<troupe_geometry>();
    geometry.layers = 1;
    geometry.page_tokens = event_tokens;
    geometry.opaque_block_bytes = event_page_bytes;
    auto ns = sized<troupe_namespace>();
    ns.model = "test/events";
    ns.dtype = "bfloat16";
    ns.world_size = 1;
    ns.geometry = &geometry;
    auto options = sized<troupe_pages_options>();
    const troupe_layer layer{memory_.data(), memory_.size(), event_page_bytes, 0, 0, 0};
    troupe_pages* out = nullptr;
    call(troupe_pages_create, connection, &ns, &options, &layer, std::size_t{1}, event_pages, &out);
    pages_.reset(out);
  }

  static std::vector<std::uint8_t> keys(std::uint64_t first, std::size_t count) {
    std::vector<std::uint8_t> out(16 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::array<std::uint64_t, 2> key{first + i + 1, 77};
      std::memcpy(out.data() + 16 * i, key.data(), 16);
    }
    return out;
  }

  std::size_t put(std::uint64_t first, std::size_t count) {
    std::vector<std::uint32_t> blocks(count);
    for (std::size_t i = 0; i < count; ++i)
      blocks[i] = static_cast<std::uint32_t>(i);
    std::size_t done = 0;
    call(troupe_pages_put, pages_.get(), static_cast<const std::uint8_t*>(keys(first, count).data()),
         static_cast<const std::uint32_t*>(blocks.data()), count, 20.0, static_cast<std::int32_t*>(nullptr), &done);
    return done;
  }

  bool has(std::uint64_t n) {
    std::size_t found = 0;
    call(troupe_pages_exist, pages_.get(), static_cast<const std::uint8_t*>(keys(n, 1).data()), std::size_t{1}, 20.0,
         &found);
    return found == 1;
  }

  bool is_wanted() {
    std::uint32_t out = 0;
    call(troupe_pages_wants_descriptions, pages_.get(), &out);
    return out == 1;
  }

  void describe(std::uint64_t first, std::size_t count) {
    const auto named = keys(first, count);
    std::vector<std::uint64_t> hashes(count);
    std::vector<std::uint64_t> parents(count);
    std::vector<std::uint8_t> has_parent(count);
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = 1'000'000 + first + i;
      parents[i] = hashes[i] - 1;
      has_parent[i] = i > 0 ? 1 : 0;
      tokens.insert(tokens.end(), event_tokens, static_cast<std::uint32_t>(first + i));
    }
    auto x = sized<troupe_descriptions>();
    x.block_tokens = event_tokens;
    x.group_idx = -1;
    x.count = count;
    x.keys = named.data();
    x.hashes = hashes.data();
    x.parents = parents.data();
    x.has_parent = has_parent.data();
    x.tokens = tokens.data();
    call(troupe_pages_describe, pages_.get(), static_cast<const troupe_descriptions*>(&x));
  }

private:
  struct end {
    void operator()(troupe_pages* x) const { troupe_pages_destroy(x); }
  };
  std::vector<std::uint8_t> memory_;
  std::unique_ptr<troupe_pages, end> pages_;
};

/// A subscriber that requests what it has missed.
class zmq_subscriber {
public:
  explicit zmq_subscriber(const nlohmann::json& config)
      : replay_at_(config["events"]["replay_endpoint"]), context_(zmq_ctx_new()), in_(zmq_socket(context_, ZMQ_SUB)) {
    const int none = 0;
    zmq_setsockopt(in_, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(in_, ZMQ_SUBSCRIBE, "kv@", 3);
    REQUIRE(zmq_connect(in_, config["events"]["endpoint"].get<std::string>().c_str()) == 0);
  }
  zmq_subscriber(const zmq_subscriber&) = delete;
  zmq_subscriber& operator=(const zmq_subscriber&) = delete;
  ~zmq_subscriber() {
    zmq_close(in_);
    zmq_ctx_term(context_);
  }

  event_view view;
  int replays = 0;
  std::string topic;

  /// Receives until the condition holds.
  template <class Condition>
  bool receive_until(Condition holds) {
    return eventually([&] {
      while (const auto frames = receive(in_, 50)) {
        REQUIRE(frames->size() == 3);
        topic = (*frames)[0];
        arrived(number_of((*frames)[1]), (*frames)[2]);
      }
      return holds();
    });
  }

  std::set<std::uint64_t> known() const {
    std::set<std::uint64_t> out;
    for (const auto& [name, block] : view.blocks)
      out.insert(std::get<2>(name) - 1'000'000);
    return out;
  }

private:
  static std::uint64_t number_of(const std::string& bytes) {
    std::uint64_t out = 0;
    for (const char c : bytes)
      out = out << 8U | static_cast<unsigned char>(c);
    return out;
  }

  static std::optional<std::vector<std::string>> receive(void* socket, long wait) {
    zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, wait) <= 0)
      return std::nullopt;
    std::vector<std::string> out;
    for (bool more = true; more;) {
      zmq_msg_t x;
      zmq_msg_init(&x);
      REQUIRE(zmq_msg_recv(&x, socket, 0) >= 0);
      out.emplace_back(static_cast<const char*>(zmq_msg_data(&x)), zmq_msg_size(&x));
      more = zmq_msg_more(&x) != 0;
      zmq_msg_close(&x);
    }
    return out;
  }

  void arrived(std::uint64_t number, const std::string& batch) {
    if (last_ && number <= *last_)
      return;
    if (!last_ || number != *last_ + 1)
      replay();
    if (last_ && number == *last_ + 1)
      apply(number, batch);
  }

  void apply(std::uint64_t number, const std::string& batch) {
    CHECK(view.apply(batch) == "");
    last_ = number;
  }

  void replay() {
    ++replays;
    void* const socket = zmq_socket(context_, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    REQUIRE(zmq_connect(socket, replay_at_.c_str()) == 0);
    std::array<char, 8> start{};
    const auto from = last_ ? *last_ + 1 : 0;
    for (std::size_t i = 0; i < 8; ++i)
      start[i] = static_cast<char>(from >> (8 * (7 - i)));
    REQUIRE(zmq_send(socket, "", 0, ZMQ_SNDMORE) == 0);
    REQUIRE(zmq_send(socket, start.data(), start.size(), 0) == 8);
    for (bool ended = false; !ended;) {
      const auto frames = receive(socket, 20000);
      REQUIRE(frames.has_value());
      REQUIRE(frames->size() == 4);
      const auto number = number_of((*frames)[2]);
      ended = number == ~std::uint64_t{0};
      if (!ended && (!last_ || number > *last_))
        apply(number, (*frames)[3]);
    }
    zmq_close(socket);
  }

  std::string replay_at_;
  void* context_;
  void* in_;
  std::optional<std::uint64_t> last_;
};

} // namespace

TEST_CASE("events: subscribers know what lookups find, also after evictions and kill -9", "[events]") {
  const scratch_directory scratch;
  const auto config = publishing_node(scratch);
  const auto file = write_config(scratch.path(), config);
  std::optional<serving_node> node(file);
  const auto socket = std::filesystem::status(scratch.path() / "events").permissions();
  CHECK((socket & (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) ==
        std::filesystem::perms::none);
  const auto connection = connect_to(node->address());
  described_pool pool(connection.get());
  REQUIRE(pool.is_wanted());
  zmq_subscriber early(config);
  REQUIRE(pool.put(0, event_pages) == event_pages);
  pool.describe(0, event_pages);
  CHECK(early.receive_until([&] { return early.view.blocks.size() == event_pages; }));
  CHECK(early.topic == "kv@" + config["node_name"].get<std::string>() + "@test/events");
  CHECK(early.view.blocks.begin()->second.tokens.size() == event_tokens);

  // More than there is room for.
  constexpr std::uint64_t total = 20 * event_pages;
  for (std::uint64_t first = event_pages; first < total; first += event_pages) {
    REQUIRE(pool.put(first, event_pages) == event_pages);
    pool.describe(first, event_pages);
  }
  const auto there = [&] {
    std::set<std::uint64_t> out;
    for (std::uint64_t n = 0; n < total; ++n)
      if (pool.has(n))
        out.insert(n);
    return out;
  };
  CHECK(early.receive_until([&] { return early.known() == there(); }));
  CHECK(early.known().size() < total);
  CHECK(early.view.removed > 0);
  zmq_subscriber late(config);
  CHECK(late.receive_until([&] { return late.known() == there(); }));
  CHECK(late.replays > 0);

  node->program().kill();
  node.emplace(file);
  CHECK(early.receive_until([&] { return early.view.blocks.empty(); }));
  REQUIRE(eventually([&] { return pool.put(5, 1) == 1; }));
  pool.describe(5, 1);
  CHECK(early.receive_until([&] { return early.known() == std::set<std::uint64_t>{5}; }));
  CHECK(late.receive_until([&] { return late.known() == std::set<std::uint64_t>{5}; }));
}

TEST_CASE("events: two engines feed one node: each page is published once, and its removal is right for both",
          "[events]") {
  const scratch_directory scratch;
  const auto config = publishing_node(scratch);
  serving_node node(write_config(scratch.path(), config));
  const auto one = connect_to(node.address());
  const auto other = connect_to(node.address());
  std::optional<described_pool> first(one.get());
  described_pool second(other.get());
  zmq_subscriber router(config);
  constexpr std::uint64_t half = event_pages / 2;
  // The second engine has a part of the first one's pages, which it finds and describes as well.
  REQUIRE(first->put(0, half) == half);
  first->describe(0, half);
  second.put(half / 2, half);
  second.describe(half / 2, half);
  CHECK(router.receive_until([&] { return router.known().size() == half + half / 2; }));
  CHECK(router.view.stored == half + half / 2);
  // What either of them evicts by its saves is removed for both.
  constexpr std::uint64_t total = 20 * event_pages;
  for (std::uint64_t at = event_pages; at < total; at += event_pages) {
    auto& engine = (at / event_pages) % 2 == 0 ? *first : second;
    REQUIRE(engine.put(at, event_pages) == event_pages);
    engine.describe(at, event_pages);
  }
  const auto there = [&](described_pool& by) {
    std::set<std::uint64_t> out;
    for (std::uint64_t n = 0; n < total; ++n)
      if (by.has(n))
        out.insert(n);
    return out;
  };
  CHECK(router.receive_until([&] { return router.known() == there(*first); }));
  CHECK(there(*first) == there(second));
  CHECK(router.view.removed > 0);
  // The end of an engine takes none of its pages with it.
  const auto before = router.known();
  first.reset();
  CHECK(router.receive_until([&] { return router.known() == before && router.known() == there(second); }));
}

TEST_CASE("events: a node without events wants no descriptions", "[events]") {
  const scratch_directory scratch;
  auto config = publishing_node(scratch);
  config.erase("events");
  serving_node node(write_config(scratch.path(), config));
  const auto connection = connect_to(node.address());
  described_pool pool(connection.get());
  CHECK_FALSE(pool.is_wanted());
  pool.describe(0, 3); // ignored
}

TEST_CASE("events: events may not leave the host in the clear", "[events]") {
  const scratch_directory scratch;
  auto config = publishing_node(scratch);
  config["events"]["endpoint"] = "tcp://0.0.0.0:5557";
  const auto refused = run(program_with({"check-config", write_config(scratch.path(), config).string()}));
  CHECK(refused.code != 0);
  CHECK((refused.out + refused.err).find("events.endpoint") != std::string::npos);
}

} // namespace events_test
