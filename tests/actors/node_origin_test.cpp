#include "actors/node/reception/directory_proxy.hpp"
#include "actors/node/reception/reception.hpp"
#include "actors/support/listeners/handshake_name.hpp"
#include "io/memory/arena_name.hpp"
#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

#include <memory>
#include <sys/stat.h>

namespace node_origin_test {

using namespace troupe;
using namespace troupe::test;

/// Whose process a client is: what its connection proves, and not what it says.

namespace {

caf::node_id another(std::uint8_t which) {
  caf::node_id::default_data::host_id_type host{};
  host.fill(which);
  return caf::make_node_id(1, host);
}

/// A process watched by a listener, in the place of a pidfd.
class seen_process final : public watched_process {
public:
  bool gone() override { return is_gone; }
  bool is_gone = false;
};

struct origin_world : node_world {
  reception_actor published = spawn<reception>(supervisor);
  std::shared_ptr<io::arena> arena = io::arena::create({8192, 4096, io::huge_page_choice::off}).value();

  origin_world() { extents->rename(io::encode(arena->name())); }

  /// It has connected by the Unix socket.
  local_process connected(const caf::node_id& home, std::shared_ptr<watched_process> watch) {
    local_process out{4711, std::move(watch)};
    peers->came(handshake_name(system(), home), out);
    return out;
  }

  answer attach_by_listener(probe& link, const attach_request& wanted, const caf::actor& as) {
    const auto number = link.request(caf::actor_cast<caf::strong_actor_ptr>(published), caf::make_message(wanted, as));
    run();
    return link.answer_to(number);
  }
  answer attach_by_listener(probe& link, const attach_request& wanted = request()) {
    return attach_by_listener(link, wanted, link.as<>());
  }

  /// The client of these handles asks for a frame.
  void touch(probe& link, const attach_reply& reply) {
    link.request(caf::actor_cast<caf::strong_actor_ptr>(reply.ranks.front().worker),
                 caf::make_message(fetch_atom_v, frame_request{{}, std::chrono::seconds(1)}));
    run();
  }
};

ino_t file_of(int descriptor) {
  struct stat status {};
  REQUIRE(::fstat(descriptor, &status) == 0);
  return status.st_ino;
}

} // namespace

TEST_CASE_METHOD(origin_world, "node: a client over TCP is remote whatever process id it sends", "[node]") {
  probe link(system(), another(7));
  for (const std::int32_t said : {1, 2, process_table::own, 4711}) {
    const auto reply = attach_by_listener(link, request_of(said)).value<attach_reply>();
    CHECK(reply.arena.elsewhere);
    CHECK(reply.arena.name.items.empty());
    CHECK(processes.watched == 0);
  }
  // Its place is free as soon as the node is done with its memory, which it never offered.
  link.die();
  run();
  advance(std::chrono::milliseconds(200));
  CHECK(processes.looks == 0);
  for (int i = 0; i < 5; ++i) {
    probe next(system(), another(static_cast<std::uint8_t>(20 + i)));
    CHECK(attach_by_listener(next).code() == errc::ok);
    next.die();
    run();
  }
}

TEST_CASE_METHOD(origin_world, "node: a client on the Unix socket is the connected process and gets the memory",
                 "[node]") {
  const auto process = std::make_shared<seen_process>();
  probe link(system(), another(7));
  const auto known = connected(another(7), process);
  const auto reply = attach_by_listener(link, request_of(1)).value<attach_reply>();
  CHECK_FALSE(reply.arena.elsewhere);
  CHECK(reply.arena.name.items == extents->info().name);
  CHECK(processes.watched == 0);
  const auto handed = known.handover->take();
  REQUIRE(handed.size() == 2);
  CHECK(file_of(handed[0].get()) == file_of(arena->name().descriptor));
  CHECK(file_of(handed[1].get()) == file_of(arena->name().proof_descriptor));
  touch(link, reply);
  link.die();
  run();
  peers->left(handshake_name(system(), another(7)));
  CHECK(dead() == std::vector{reply.owner});
  // Process 1 ends, which it is not.
  processes.alive.erase(1);
  advance(std::chrono::seconds(1));
  CHECK(rested().empty());
  process->is_gone = true;
  advance(std::chrono::seconds(1));
  CHECK(rested() == std::vector{reply.owner});
}

TEST_CASE_METHOD(origin_world, "node: a disconnected client that never requested memory is quiesced at once",
                 "[node]") {
  const auto process = std::make_shared<seen_process>();
  probe link(system(), another(7));
  connected(another(7), process);
  const auto reply = attach_by_listener(link).value<attach_reply>();
  link.request(caf::actor_cast<caf::strong_actor_ptr>(reply.shards.front()),
               caf::make_message(match_request{reply.ns_id, {reply.owner, 1}, std::chrono::seconds(1), {}}));
  run();
  CHECK(shard.take<match_request>().size() == 1);
  link.die();
  run();
  CHECK(rested() == std::vector{reply.owner});
}

TEST_CASE_METHOD(origin_world, "node: a refused client gets no descriptors", "[node]") {
  probe link(system(), another(7));
  const auto known = connected(another(7), std::make_shared<seen_process>());
  CHECK(attach_by_listener(link, request("no such namespace")).code() == errc::unknown_namespace);
  CHECK(known.handover->take().empty());
  auto far = request();
  far.home = home_elsewhere;
  CHECK(attach_by_listener(link, far).value<attach_reply>().arena.elsewhere);
  CHECK(known.handover->take().empty());
}

TEST_CASE_METHOD(origin_world, "node: a process that cannot be watched gets no memory and the reason", "[node]") {
  local_process hidden;
  hidden.unwatched = "its process is hidden";
  peers->came(handshake_name(system(), another(7)), hidden);
  probe link(system(), another(7));
  const auto refused = attach_by_listener(link);
  CHECK(refused.code() == errc::unsupported);
  CHECK(refused.failure.text.find("its process is hidden") != std::string::npos);
  CHECK(refused.failure.text.find("remote.enabled") != std::string::npos);
  options->remote.enabled = true;
  CHECK(attach_by_listener(link).value<attach_reply>().arena.elsewhere);
  CHECK(hidden.handover->take().empty());
}

TEST_CASE_METHOD(origin_world, "node: a client cannot attach with a handle of another process", "[node]") {
  probe link(system(), another(7));
  probe victim(system(), another(8));
  connected(another(8), std::make_shared<seen_process>());
  const auto theirs = attach_by_listener(victim).value<attach_reply>();
  CHECK(attach_by_listener(link, request(), victim.as<>()).code() == errc::invalid_argument);
  // A handle of the node's own process is refused too.
  probe local(system());
  CHECK(attach_by_listener(link, request_of(2), local.as<>()).code() == errc::invalid_argument);
  CHECK(dead().empty());
  CHECK(theirs.owner != 0);
}

TEST_CASE_METHOD(origin_world, "handshakes: a client cannot register an actor of another process for notifications",
                 "[node][handshake]") {
  probe behind(system());
  const auto watched = spawn<directory_proxy>(behind.as<directory_actor>(), supervisor.address(), nullptr);
  probe asker(system(), another(7));
  probe victim(system(), another(8));
  const auto ask_for = [&](const probe& who) {
    return asker.request(caf::actor_cast<caf::strong_actor_ptr>(watched),
                         caf::make_message(watch_atom_v, std::string("a"), who.as<handshake_watcher_actor>()));
  };
  const auto refused = ask_for(victim);
  run();
  CHECK(asker.answer_to(refused).code() == errc::invalid_argument);
  CHECK(behind.inbox_size() == 0);
  ask_for(asker);
  run();
  CHECK(behind.take<watch_atom, std::string, handshake_watcher_actor>().size() == 1);
}

} // namespace node_origin_test
