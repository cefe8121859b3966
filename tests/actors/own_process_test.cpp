#include "tests/actors/coordinator_support.hpp"
#include "tests/actors/link_support.hpp"
#include "tests/catch.hpp"

namespace own_process_test {

using namespace troupe;
using namespace troupe::test;

/// A node has the handles of a client's link and coordinators, because it monitors the link and the others send it
/// requests. It may only answer them.

namespace {

/// Says something to an actor as one of another process, whose number it guesses or was sent.
class foreign_process {
public:
  explicit foreign_process(sim& world) : world_(world) {
    caf::actor_config config;
    caf::node_id::default_data::host_id_type host{};
    host.fill(7);
    self_ = caf::make_actor<probe_actor, caf::strong_actor_ptr>(world.system().next_actor_id(),
                                                                caf::make_node_id(4711, host), &world.system(), config);
  }
  ~foreign_process() { caf::actor_cast<probe_actor*>(self_)->cleanup(caf::exit_reason::kill, nullptr); }

  template <class Handle, class... Ts>
  void say(const Handle& to, Ts... xs) {
    const auto id = caf::message_id(++last_).with_category(caf::message_id::normal_message_category);
    caf::actor_cast<caf::strong_actor_ptr>(to)->enqueue(self_, id, caf::make_message(std::move(xs)...), nullptr);
    world_.run();
  }

private:
  sim& world_;
  caf::strong_actor_ptr self_;
  std::uint64_t last_ = 0;
};

} // namespace

TEST_CASE_METHOD(link_world, "own process: a remote sender cannot bind a client's actors or learn its attachment",
                 "[link]") {
  foreign_process other(*this);
  other.say(session, bind_atom_v, parts(), duration(limit));
  attach();
  CHECK(lookup.take<bind_atom, lookup_binding>().empty());
  work_after_attach();
  other.say(session, bind_atom_v, client_parts{}, duration(limit));
  other.say(session, wait_attached_atom_v, duration(limit));
  check_unbound(false);
  CHECK(attached_as() == owner);
}

TEST_CASE_METHOD(link_world, "own process: ticks from other senders do not start a timer of a link", "[link]") {
  attach();
  advance(timeout + std::chrono::milliseconds(20)); // that of the request to attach
  CHECK(pending_timeouts() == 0);
  for (int i = 0; i < 5; ++i)
    caf::anon_send(session, caf::tick_atom_v);
  run();
  CHECK(pending_timeouts() == 0);
  // A wait costs one timer, however many ticks other senders send.
  const auto waiting = bind();
  const auto before = pending_timeouts();
  for (int i = 0; i < 5; ++i)
    caf::anon_send(session, caf::tick_atom_v);
  run();
  CHECK(pending_timeouts() == before);
  CHECK_FALSE(came(waiting));
}

TEST_CASE_METHOD(coordinator_world, "own process: a remote sender cannot give a coordinator tasks or unbind it",
                 "[save_coordinator]") {
  foreign_process other(*this);
  const auto save = spawn_bound<save_coordinator>();
  auto mine = test_task(2);
  mine.tag = 5;
  const auto number = begin(save, mine);
  other.say(save, test_task(3));
  other.say(save, unbind_atom_v);
  other.say(save, cancel_atom_v, packed<std::uint64_t>{{5}});
  auto elsewhere = binding(78);
  probe another(system());
  elsewhere.shards = {another.as<client_shard_actor>()};
  other.say(save, bind_atom_v, elsewhere);
  grant(shard.take_one<reserve_request>());
  give(worker.take_one<place_atom, frame_request>());
  copy(copier.take_one<gather_atom, copy_order>());
  fill(worker.take_one<fill_atom, fill_request>());
  finish(shard.take_one<commit_atom, finish_request>());
  CHECK(results(number) == std::vector(2, errc::ok));
  CHECK(another.inbox_size() == 0);
}

TEST_CASE_METHOD(coordinator_world, "own process: a remote sender cannot look up, release or read statistics",
                 "[lookup_coordinator]") {
  foreign_process other(*this);
  const auto lookup = spawn<lookup_coordinator>(4U, request_timeout);
  const lookup_binding node{77, 0, test_namespace, test_limits(), {shard.as<client_shard_actor>()}};
  REQUIRE(ask(lookup, bind_atom_v, node).code() == errc::ok);
  const auto number = begin(lookup, lookup_task{test_task(3).keys, std::chrono::seconds(1)});
  other.say(lookup, unbind_atom_v);
  shard.reply(shard.take_one<match_request>(), caf::make_message(match_reply{3}));
  run();
  const auto found = client().answer_to(number).value<lookup_result>();
  CHECK(found.matched == 3);
  other.say(lookup, release_atom_v, found.lease);
  other.say(lookup, lookup_task{test_task(3).keys, std::chrono::seconds(1)});
  other.say(lookup, stats_atom_v);
  CHECK(shard.inbox_size() == 0);
}

TEST_CASE_METHOD(coordinator_world,
                 "own process: a cancel with more tags than possible tasks is refused and cancels nothing",
                 "[save_coordinator]") {
  const auto save = spawn_bound<save_coordinator>(4);
  auto mine = test_task(1);
  mine.tag = 5;
  const auto number = begin(save, mine);
  const auto refused = ask(save, cancel_atom_v, packed<std::uint64_t>{{1, 2, 3, 4, 5}});
  CHECK(refused.code() == errc::limit_exceeded);
  CHECK(refused.failure.text.find("transfer.max_tasks") != std::string::npos);
  CHECK_FALSE(client().answer_to(number).came);
  CHECK(ask(save, cancel_atom_v, packed<std::uint64_t>{{1, 2, 3, 5}}).code() == errc::ok);
  CHECK(results(number) == std::vector{errc::cancelled});
}

} // namespace own_process_test
