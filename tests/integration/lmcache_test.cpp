#include "tests/catch.hpp"
#include "tests/integration/lmcache_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"

#include <filesystem>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <thread>

namespace lmcache_test {

/// A node in the place of LMCache's server, and clients of its protocol.

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

constexpr std::uint32_t chunk = lmcache_chunk;

using namespace lmcache_operation;
using engine = lmcache_engine;

json registration(std::int64_t instance, std::uint32_t hidden = 64, std::uint32_t world = 1) {
  return lmcache_registration(instance, hidden, world);
}

} // namespace

TEST_CASE("lmcache: a chunk stored by an LMCache worker through shared memory is found by another engine",
          "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine first(lmcache_port(node.ready_line()), 1);
  CHECK(first.look_up(1, 4, "nothing") == 0);
  CHECK(first.store(1, 3));
  // All is there: nothing to do.
  CHECK(first.store(1, 3));
  CHECK(first.store(1, 5));

  engine second(lmcache_port(node.ready_line()), 2);
  CHECK(second.look_up(1, 6, "a") == 5);
  // Answered once.
  CHECK(second.scheduler.call(query, {"a"}) == 0);
  CHECK(second.retrieve(1, 0, 3, "a"));
  CHECK(second.retrieve(1, 3, 5, "a"));
  CHECK_FALSE(second.scheduler.call(end_session, {"a"}));
  CHECK_FALSE(second.retrieve(1, 4, 6, "a"));
  CHECK_FALSE(second.retrieve(2, 0, 1, "a"));

  // Everything by name as well.
  CHECK(second.scheduler.call("get_chunk_size") == chunk);
  CHECK_FALSE(second.scheduler.call("lookup", {lmcache_key(1, "b", 0, 5), 1}));
  CHECK(second.scheduler.call("wait_prefetch_status", {"b", 10.0}) == 5);
  CHECK_FALSE(second.scheduler.call("free_lookup_locks", {lmcache_key(1, "b", 0, 5), 1}));
  CHECK_FALSE(second.scheduler.call("end_session", {"b"}));

  // Workers with other pages have another namespace, and then only what both have counts.
  engine other(lmcache_port(node.ready_line()), 3, 128);
  CHECK_FALSE(other.retrieve(1, 0, 1, "c"));
  CHECK(second.look_up(1, 5, "c") == 0);
  CHECK(other.store(1, 2));
  CHECK(second.look_up(1, 5, "d") == 2);
  CHECK_FALSE(other.worker.call(unregister, {3}));
  CHECK(second.look_up(1, 5, "e") == 5);

  CHECK_FALSE(second.scheduler.call(clear, {true}));
  CHECK(second.look_up(1, 5, "f") == 0);
  CHECK(second.store(1, 1));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: the shared memory has mode 0600 and its name is removed with the node", "[lmcache]") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), lmcache_config(scratch.path()));
  std::optional<serving_node> node(std::in_place, config);
  lmcache_client worker(lmcache_port(node->ready_line()));
  const auto name = worker.call(register_worker, {registration(1)})->at("shm_name").get<std::string>();
  const auto path = "/dev/shm/" + name;
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0600);

  // The name stays after kill -9 and is removed at the next start, which has another name.
  node->program().kill();
  CHECK(::stat(path.c_str(), &status) == 0);
  node.emplace(config);
  CHECK(::stat(path.c_str(), &status) != 0);
  lmcache_client again(lmcache_port(node->ready_line()));
  const auto next = again.call(register_worker, {registration(1)})->at("shm_name").get<std::string>();
  CHECK(next != name);
  REQUIRE(::stat(("/dev/shm/" + next).c_str(), &status) == 0);
  CHECK(node->stop() == 0);
  CHECK(::stat(("/dev/shm/" + next).c_str(), &status) != 0);
}

TEST_CASE("lmcache: a node with a data directory name equal to another's, as in containers, keeps separate memory",
          "[lmcache]") {
  const scratch_directory first;
  const scratch_directory second;
  auto config = lmcache_config(first.path());
  serving_node one(write_config(first.path(), config));
  lmcache_client worker(lmcache_port(one.ready_line()));
  const auto name = worker.call(register_worker, {registration(1)})->at("shm_name").get<std::string>();
  // The name in the directory of the other node is that of memory in use by this one.
  std::filesystem::create_directory(second.path() / "data");
  std::filesystem::permissions(second.path() / "data", std::filesystem::perms::owner_all);
  std::filesystem::copy_file(first.path() / "data" / "memory-name", second.path() / "data" / "memory-name");
  config = lmcache_config(second.path());
  {
    serving_node two(write_config(second.path(), config));
    lmcache_client other(lmcache_port(two.ready_line()));
    CHECK(other.call(register_worker, {registration(1)})->at("shm_name") != name);
    CHECK(std::filesystem::exists("/dev/shm/" + name));
    CHECK(two.stop() == 0);
  }
  CHECK(std::filesystem::exists("/dev/shm/" + name));
  CHECK(one.stop() == 0);
}

TEST_CASE("lmcache: a commit that carries tensors instead of written slots stores no page", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine one(lmcache_port(node.ready_line()), 1);
  const auto key = lmcache_key(1, "r", 0, 3, 0);
  REQUIRE(one.worker.call(prepare_store, {key, 1})->at("context").at("slots").size() == 3);
  CHECK(one.worker.call(commit_store, {key, 1, json::binary({1, 2, 3})}) == false);
  CHECK(one.look_up(1, 3, "nothing") == 0);
  // As soon as it has mapped the memory, all is well.
  CHECK(one.store(1, 3));
  CHECK(one.look_up(1, 3, "all") == 3);
  CHECK(one.retrieve(1, 0, 3, "all"));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: a node whose shared memory name was removed refuses workers and reports it", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["http"] = {{"enabled", true}, {"port", 0}};
  serving_node node(write_config(scratch.path(), config));
  const auto port = lmcache_port(node.ready_line());
  const auto name = lmcache_client(port).call(register_worker, {registration(1)})->at("shm_name").get<std::string>();
  REQUIRE(std::filesystem::remove("/dev/shm/" + name));
  node.wait_for_log("the memory /dev/shm/" + name + " was removed");
  CHECK(sum_of_metric(node, "troupe_degraded{reason=\"socket_lost\"}") == 1);
  // Another file there is not taken for the node's, nor removed with it.
  std::ofstream("/dev/shm/" + name) << "another's";
  lmcache_client late(port);
  CHECK(late.call(register_worker, {registration(2)})->at("shm_name") == "");
  CHECK(late.call(ping, {2}) == false);
  CHECK(late.call(ping, {2}) == false);
  CHECK(node.stop() == 0);
  CHECK(std::filesystem::remove("/dev/shm/" + name));
}

TEST_CASE("lmcache: unsupported requests of LMCache clients are answered at once", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  lmcache_client client(lmcache_port(node.ready_line()));
  CHECK(client.call("noop") == "OK");
  CHECK(client.call("get_experimental") == json::array());
  CHECK_FALSE(client.call("report_block_allocation", {1, "m", json::array()}));
  CHECK(client.call("store", {lmcache_key(1, "r", 0, 1, 0), 1, json::array(), json::binary({})}) ==
        json{json::binary({}), false});
  CHECK(client.call("cb_protocol_handshake", {1}) == json{0, false});
  CHECK(client.call("server_module_call", {{{"method", "m"}, {"payload", json::binary({})}}})->at("success") == false);
  for (const char* none : {"register_kv_cache", "cb_register_rope", "subscribe_kv_events", "whatever_comes"})
    CHECK_FALSE(client.call(none, {1, 2}));
  // An unknown worker is refused first and accepted next: so it registers again.
  CHECK(client.call(ping, {nullptr}) == true);
  CHECK(client.call(ping, {7}) == false);
  CHECK(client.call(ping, {7}) == true);
  CHECK(client.call(ping, {7}) == false);
  CHECK(client.call(prepare_store, {lmcache_key(1, "r", 0, 1, 0), 7})->at("context").empty());
  CHECK(client.call(commit_store, {lmcache_key(1, "r", 0, 1, 0), 7, json::binary({})}) == false);
  CHECK(client.call(prepare_retrieve, {lmcache_key(1, "r", 0, 1, 0), 7})->at("success") == false);
  CHECK(client.call(commit_retrieve, {lmcache_key(1, "r", 0, 1, 0), 7}) == false);
  CHECK_FALSE(client.call(unregister, {7}));
  auto strange = registration(7);
  strange["dtype_str"] = "complex128";
  // The worker has the memory's name, so it sends no tensors, and is refused permanently.
  CHECK_FALSE(client.call(register_worker, {strange})->at("shm_name").get<std::string>().empty());
  CHECK(client.call(prepare_store, {lmcache_key(1, "r", 0, 1, 0), 7})->at("context").empty());
  CHECK(client.call(ping, {7}) == false);
  CHECK(client.call(ping, {7}) == false);
  // Until it registers as one that can be served.
  CHECK(client.call(register_worker, {registration(7)})->at("pool_size").get<std::size_t>() > 0);
  CHECK(client.call(ping, {7}) == true);
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: clients of two LMCache versions share their pages", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  engine older(port, 1);
  lmcache_engine newer(port, 2, {}, true);
  CHECK(older.store(1, 3));
  CHECK(newer.look_up(1, 3, "n-1") == 3);
  CHECK(newer.retrieve(1, 0, 3, "n-1"));
  CHECK(newer.store(2, 2));
  CHECK(older.look_up(2, 2, "o-1") == 2);
  CHECK(older.retrieve(2, 0, 2, "o-1"));
  // Requests that only the newer version has.
  const auto key = lmcache_key_of_0_5_7(lmcache_key(1, "n-1", 0, 3));
  CHECK_FALSE(newer.scheduler.call(free_locks, {key, 1, json::array({json::array({0, 16})})}));
  CHECK(newer.scheduler.call("negotiate_chunk_size", {48}) == chunk);
  node.wait_for_log("needs chunks of a multiple of 48 tokens");
  CHECK(newer.scheduler.call("server_module_affinity_call", {{{"method", "m"}, {"payload", json::binary({})}}})
            ->at("success") == false);
  // Requests that neither version has.
  CHECK(newer.worker.call(prepare_store, {key, 2, json::array(), 5})->at("context").empty());
  node.wait_for_log("2 in 0.5.6, 3 in 0.5.7");
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: malformed messages are refused and end nothing", "[lmcache]") {
  const auto seed = GENERATE(1U, 2U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine one(lmcache_port(node.ready_line()), 1);
  lmcache_client rude(lmcache_port(node.ready_line()));
  const auto bytes = [&](std::size_t most) {
    std::string out(random() % most, '\0');
    for (auto& x : out)
      x = static_cast<char>(random());
    return out;
  };
  const auto good = json::to_msgpack(lmcache_key(1, "r", 0, 2, 0));
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> frames;
    const auto operation = json::to_msgpack(random() % 40);
    frames.push_back(random() % 4 == 0 ? bytes(20) : std::string("\x05"));
    frames.push_back(random() % 4 == 0 ? bytes(20) : std::string(operation.begin(), operation.end()));
    for (auto n = random() % 4; n > 0; --n) {
      std::string frame(good.begin(), good.end());
      if (random() % 2 == 0)
        frame = bytes(40);
      else if (random() % 2 == 0)
        frame[random() % frame.size()] = static_cast<char>(random());
      frames.push_back(frame);
    }
    rude.send_frames(frames);
    if (i % 100 == 0)
      rude.send_frames(std::vector<std::string>(40, "x"));
  }
  CHECK(rude.call(chunk_size) == chunk);
  // An invalid payload is refused in the operation's own way.
  CHECK(rude.call(query, {5}) == 0);
  CHECK(rude.call(prepare_retrieve, {5, 5})->at("success") == false);
  CHECK(rude.call(commit_store, {}) == false);
  CHECK(one.store(1, 2));
  CHECK(one.look_up(1, 2, "r") == 2);
  CHECK(one.retrieve(1, 0, 2, "r"));
  node.wait_for_log("request rejected");
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: a page corrupted in shared memory is not reported as found", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine one(lmcache_port(node.ready_line()), 1);
  CHECK(one.store(1, 3));
  const auto key = lmcache_key(1, "r", 0, 3, 0);
  const auto notified = one.worker.call(prepare_retrieve, {key, 1});
  REQUIRE(notified->at("success") == true);
  one.pool->slot(notified->at("context")["slots"][1])[5] ^= std::byte{1};
  CHECK(one.worker.call(commit_retrieve, {key, 1}) == true);
  CHECK_FALSE(one.retrieve(1, 0, 3, "s"));
  // The next one finds what comes before it, and it is stored anew.
  CHECK(one.look_up(1, 3, "t") == 1);
  CHECK(one.store(1, 3));
  CHECK(one.look_up(1, 3, "u") == 3);
  CHECK(one.retrieve(1, 0, 3, "v"));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: pages of a worker that never commits are freed only when it disconnects", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  // A few pages of everything.
  config["storage"] = {{"disk_bytes", 0}, {"ranks", json::array()}};
  config["memory"] = {{"bytes", "4 MiB"}};
  serving_node node(write_config(scratch.path(), config));
  engine one(lmcache_port(node.ready_line()), 1);
  const auto left = std::make_unique<engine>(lmcache_port(node.ready_line()), 2);
  const auto notified = left->worker.call(prepare_store, {lmcache_key(5, "r", 0, 3, 0), 2});
  REQUIRE(notified->at("context").at("slots").size() == 3);
  // Another one would write the same: that is busy, and no reason to wait.
  CHECK(one.worker.call(prepare_store, {lmcache_key(5, "r", 0, 3, 0), 1})->at("context").at("slots").empty());
  // A repeated store abandons the first one: its slots are no longer committed.
  const auto again = left->worker.call(prepare_store, {lmcache_key(5, "r", 0, 3, 0), 2});
  CHECK(again->at("context").is_object());
  CHECK_FALSE(left->worker.call(unregister, {2}));
  CHECK(left->worker.call(commit_store, {lmcache_key(5, "r", 0, 3, 0), 2, json::binary({})}) == false);
  CHECK(one.look_up(5, 3, "s") == 0);
  // As long as they are another one's, there is nothing to do.
  std::uint32_t found = 0;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (found < 3 && std::chrono::steady_clock::now() < until) {
    CHECK(one.store(5, 3));
    found = one.look_up(5, 3, one.new_request());
  }
  CHECK(found == 3);
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: LMCache clients continue after their node was killed and restarted", "[lmcache]") {
  const scratch_directory scratch;
  auto json_config = lmcache_config(scratch.path(), "strict");
  const auto reserve_port = [&] {
    serving_node probe(write_config(scratch.path(), json_config));
    const auto out = lmcache_port(probe.ready_line());
    CHECK(probe.stop() == 0);
    return out;
  };
  json_config["lmcache"]["port"] = reserve_port();
  const auto config = write_config(scratch.path(), json_config);
  std::optional<serving_node> node(std::in_place, config);
  const auto port = lmcache_port(node->ready_line());
  engine one(port, 1);
  for (std::uint32_t sequence = 0; sequence < 20; ++sequence)
    REQUIRE(one.store(sequence, 4));

  // Under load: some of these are never answered.
  for (std::uint32_t sequence = 100; sequence < 160; ++sequence)
    one.worker.send(prepare_store, {lmcache_key(sequence, "load", 0, 4, 0), 1});
  node->program().kill();
  node.emplace(config);

  const auto scheduler_ping = one.scheduler.call(ping, {nullptr});
  CHECK(scheduler_ping == true);
  // It is unknown now: it is notified, and registers again when the next request succeeds.
  CHECK(one.worker.call(ping, {1}) == false);
  CHECK(one.worker.call(prepare_retrieve, {lmcache_key(1, "r", 0, 4, 0), 1})->at("success") == false);
  CHECK(one.look_up(1, 4, "too early") == 0);
  CHECK(one.worker.call(ping, {1}) == true);
  one.enroll();
  for (std::uint32_t sequence = 0; sequence < 20; ++sequence) {
    const auto request = one.new_request();
    REQUIRE(one.look_up(sequence, 5, request) == 4);
    REQUIRE(one.retrieve(sequence, 0, 4, request));
    CHECK_FALSE(one.scheduler.call(end_session, {request}));
  }
  for (std::uint32_t sequence = 100; sequence < 160; ++sequence)
    CHECK(one.look_up(sequence, 4, one.new_request()) == 0);
  CHECK(one.store(200, 4));
  CHECK(node->stop() == 0);
}

TEST_CASE("lmcache: engines with several workers find chunks that all of them have stored", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  lmcache_client scheduler(lmcache_port(node.ready_line()));
  std::vector<lmcache_client> workers;
  std::unique_ptr<lmcache_pool> pool;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const auto notified =
        workers.emplace_back(lmcache_port(node.ready_line())).call(register_worker, {registration(10 + rank, 64, 2)});
    pool = std::make_unique<lmcache_pool>(notified->at("shm_name").get<std::string>(),
                                          notified->at("pool_size").get<std::size_t>());
  }
  const auto found = [&](const std::string& request) {
    CHECK_FALSE(scheduler.call(lookup, {lmcache_key(1, request, 0, 3, std::nullopt, 2), 2}));
    return scheduler.call(wait_status, {request, 10})->get<int>();
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    CHECK(found("r" + std::to_string(rank)) == 0);
    const auto key = lmcache_key(1, "r", 0, 3, rank, 2);
    const auto notified = workers[rank].call(prepare_store, {key, 10 + rank});
    for (const auto& slot : notified->at("context").at("slots"))
      pool->fill(slot, static_cast<std::uint8_t>(rank + 1));
    CHECK(workers[rank].call(commit_store, {key, 10 + rank, json::binary({})}) == true);
  }
  CHECK(found("both") == 3);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto key = lmcache_key(1, "both", 0, 3, rank, 2);
    const auto notified = workers[rank].call(prepare_retrieve, {key, 10 + rank});
    REQUIRE(notified->at("success") == true);
    for (const auto& slot : notified->at("context").at("slots"))
      CHECK(pool->holds(slot, static_cast<std::uint8_t>(rank + 1)));
    CHECK(workers[rank].call(commit_retrieve, {key, 10 + rank}) == true);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: a commit before its prepare leaves nothing behind", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  engine one(lmcache_port(node.ready_line()), 1);
  const auto both = [&](auto prepare, const json& prepared, auto commit, const json& committed) {
    one.worker.send(prepare, prepared);
    const auto second = one.worker.send(commit, committed);
    std::optional<json> out;
    for (int i = 0; i < 2; ++i) {
      const auto answer = one.worker.receive(patience);
      REQUIRE(answer);
      if (answer->number == second)
        out = answer->value;
    }
    return out;
  };
  // The document whose commit is refused: of two messages that are to overlap, a node that gets no turn between them
  // may have answered the first.
  const auto first_refused = [](const auto& commit) {
    std::uint32_t document = 7;
    while (commit(document) != false)
      REQUIRE(++document < 100);
    return document;
  };
  SECTION("retrieves") {
    REQUIRE(one.store(1, 4));
    // More than a worker may have open.
    for (int i = 0; i < 300; ++i) {
      const auto key = lmcache_key(1, "early-" + std::to_string(i), 0, 4, 0);
      both(prepare_retrieve, {key, 1}, commit_retrieve, {key, 1});
    }
    CHECK(one.retrieve(1, 0, 4, "in order"));
  }
  SECTION("stores") {
    const auto document = first_refused([&](std::uint32_t at) {
      const auto key = lmcache_key(at, "early", 0, 3, 0);
      return both(prepare_store, {key, 1}, commit_store, {key, 1, json::binary({})});
    });
    const auto notified = one.worker.call(prepare_store, {lmcache_key(document, "in order", 0, 3, 0), 1});
    CHECK(notified->at("context").at("slots").size() == 3);
  }
  SECTION("a repeated store") {
    const auto document = first_refused([&](std::uint32_t at) {
      const auto key = lmcache_key(at, "twice", 0, 3, 0);
      both(prepare_store, {key, 1}, prepare_store, {key, 1});
      return one.worker.call(commit_store, {key, 1, json::binary({})});
    });
    // Nothing was written for the second one, and the slots of the first one are not readable.
    CHECK(one.look_up(document, 3, "found") == 0);
    const auto notified = one.worker.call(prepare_store, {lmcache_key(document, "other", 0, 3, 0), 1});
    CHECK(notified->at("context").at("slots").size() == 3);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache: a node shuts down cleanly while pages are being sealed", "[lmcache]") {
  const std::chrono::milliseconds later(GENERATE(10, 20, 40, 80));
  INFO("told to end after " << later.count() << " ms");
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["storage"] = {{"disk_bytes", 0}, {"ranks", json::array()}};
  config["memory"] = {{"bytes", "1 GiB"}};
  serving_node node(write_config(scratch.path(), config));
  // 7.75 MiB each, and less than a quarter of the memory.
  constexpr std::uint32_t hidden = 62 * 1024;
  constexpr std::uint32_t pages = 30;
  lmcache_client worker(lmcache_port(node.ready_line()));
  const auto notified = worker.call(register_worker, {registration(1, hidden)});
  const auto name = notified->at("shm_name").get<std::string>();
  REQUIRE_FALSE(name.empty());
  const auto key = lmcache_key(1, "r", 0, pages, 0);
  const auto prepared = worker.call(prepare_store, {key, 1});
  REQUIRE(prepared->at("context").at("slots").size() == pages);
  worker.send(commit_store, {key, 1, json::binary({})});
  std::this_thread::sleep_for(later);
  CHECK(node.stop() == 0);
  CHECK_FALSE(std::filesystem::exists("/dev/shm/" + name));
}

} // namespace lmcache_test
