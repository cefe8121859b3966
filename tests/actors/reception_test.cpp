#include "actors/node/reception/reception.hpp"
#include "tests/actors/node_support.hpp"
#include "tests/catch.hpp"

#include <memory>

namespace reception_test {

using namespace troupe;
using namespace troupe::test;

/// The handles that a client gets when it attaches, and what they allow.

namespace {

struct reception_world : node_world {
  reception_actor proxy = spawn<reception>(supervisor);
  probe link{system()};
  probe other_link{system()};
  attach_reply mine = enter(link);
  attach_reply theirs = enter(other_link);

  /// Attaches through the reception, as every client does.
  attach_reply enter(const probe& as) { return ask(proxy, request(), as.as<>()).value<attach_reply>(); }

  const client_shard_actor& harness() const { return mine.shards.front(); }
  const client_worker_actor& io(std::size_t rank = 0) const { return mine.ranks[rank].worker; }

  match_request match(owner_id owner) const {
    return {mine.ns_id, {owner, 1}, std::chrono::seconds(1), {{key_digest{1, 1}}}};
  }
  finish_request pages(owner_id owner, slot_ref where = {3, 8}) const {
    return {mine.ns_id, 0, {owner, 2}, {{page_ref{{1, 1}, where}}}};
  }
  static frame_request batch(slot_ref where = {3, 8}) {
    return {packed<page_ref>{{page_ref{{1, 1}, where}}}, std::chrono::seconds(1)};
  }

  /// The shard gives slot 3, generation 8, of rank 0.
  void reserve(const attach_reply& who) {
    const auto asking =
        begin(who.shards[0],
              reserve_request{who.ns_id, 0, {who.owner, 2}, std::chrono::seconds(1), {{key_digest{1, 1}}}, {}});
    shard.reply(shard.take_one<reserve_request>(),
                caf::make_message(reserve_reply{{{location{{3, 8}, static_cast<std::uint32_t>(errc::ok)}}}}));
    run();
    CHECK(client().answer_to(asking).value<reserve_reply>().results.size() == 1);
  }
};

} // namespace

TEST_CASE_METHOD(reception_world, "reception: every client gets its own handles", "[reception]") {
  CHECK(mine.owner != theirs.owner);
  CHECK(mine.shards.front() != theirs.shards.front());
  CHECK(mine.ranks.size() == 2);
  CHECK(mine.ranks[0].worker != mine.ranks[1].worker);
  CHECK(mine.ranks[0].worker != theirs.ranks[0].worker);
  // None of them is an actor of the node's own.
  CHECK(mine.shards.front().address() != shard.as<>().address());
  CHECK(mine.ranks[0].worker.address() != worker0.as<>().address());
}

TEST_CASE_METHOD(reception_world, "reception: requests are forwarded to the shard and replies to the client",
                 "[reception]") {
  const auto asking = begin(harness(), match(mine.owner));
  const auto asked = shard.take_one<match_request>();
  CHECK(asked.get<match_request>(0).lease == ticket{mine.owner, 1});
  SECTION("an answer") {
    shard.reply(asked, caf::make_message(match_reply{1}));
    run();
    CHECK(client().answer_to(asking).value<match_reply>().matched == 1);
  }
  SECTION("an error") {
    shard.reply_error(asked, errc::busy);
    run();
    CHECK(client().answer_to(asking).code() == errc::busy);
  }
}

TEST_CASE_METHOD(reception_world, "reception: no reply reveals an actor behind it", "[reception]") {
  // The sender of a message to another process can be addressed from there, so it must be the client's own relay.
  probe asker(system());
  const auto sent_by = [&](const auto& handle, caf::message request, probe& from, caf::message reply, auto take) {
    asker.request(caf::actor_cast<caf::strong_actor_ptr>(handle), std::move(request));
    run();
    from.reply(take(), std::move(reply));
    run();
    const auto answers = asker.take_answers();
    REQUIRE(answers.size() == 1);
    return answers.front().sender;
  };
  CHECK(sent_by(harness(), caf::make_message(match(mine.owner)), shard, caf::make_message(match_reply{}),
                [&] { return shard.take_one<match_request>(); }) == harness());
  CHECK(sent_by(harness(), caf::make_message(stats_atom_v), shard, caf::make_message(registry_stats{}),
                [&] { return shard.take_one<stats_atom>(); }) == harness());
  CHECK(sent_by(io(), caf::make_message(fetch_atom_v, batch()), worker0, caf::make_message(frame_reply{}),
                [&] { return worker0.take_one<fetch_atom, owner_id, frame_request>(); }) == io());
  CHECK(sent_by(io(), caf::make_message(unpin_atom_v, pin_number{5}), worker0, caf::make_message(),
                [&] { return worker0.take_one<unpin_atom, owner_id, pin_number>(); }) == io());
  asker.request(caf::actor_cast<caf::strong_actor_ptr>(proxy), caf::make_message(request(), asker.as<>()));
  run();
  CHECK(asker.take_answers().front().sender == proxy);
}

TEST_CASE_METHOD(reception_world, "reception: a request ends if its shard dies or drops it", "[reception]") {
  const auto asking = begin(harness(), match(mine.owner));
  SECTION("it drops the request") {
    shard.take<match_request>(); // and with it the last reference to the waiting request
  }
  SECTION("it has died") {
    end(supervisor);
    shard.take<match_request>();
  }
  CHECK(client().answer_to(asking).code() == errc::unreachable);
}

TEST_CASE_METHOD(reception_world, "reception: a client cannot act as another client", "[reception]") {
  for (const owner_id owner : {theirs.owner, owner_id{0}}) {
    CHECK(ask(harness(), match(owner)).code() == errc::not_owner);
    CHECK(ask(harness(), release_request{mine.ns_id, {owner, 1}, 0}).code() == errc::not_owner);
    CHECK(ask(harness(), renew_request{mine.ns_id, {owner, 1}, std::chrono::hours(1)}).code() == errc::not_owner);
    CHECK(ask(harness(), commit_atom_v, pages(owner)).code() == errc::not_owner);
    CHECK(ask(harness(), abort_atom_v, pages(owner)).code() == errc::not_owner);
  }
  auto elsewhere = match(mine.owner);
  elsewhere.ns = options->namespaces[1].id();
  CHECK(ask(harness(), elsewhere).code() == errc::unknown_namespace);
  CHECK(shard.take<match_request>().empty());
  CHECK(shard.take<release_request>().empty());
  CHECK(shard.take<renew_request>().empty());
  CHECK(shard.take<commit_atom, finish_request>().empty());
  CHECK(shard.take<abort_atom, finish_request>().empty());
}

TEST_CASE_METHOD(reception_world, "reception: frames are requested and released under the owner id of the client",
                 "[reception]") {
  const auto fetching = begin(io(), fetch_atom_v, batch());
  const auto asked = worker0.take_one<fetch_atom, owner_id, frame_request>();
  CHECK(asked.get<owner_id>(1) == mine.owner);
  CHECK(asked.get<frame_request>(2).pages.items == batch().pages.items);
  worker0.reply(asked, caf::make_message(frame_reply{5, {{page_frame{8192, 0, 1}}}}));
  run();
  const auto got = client().answer_to(fetching).value<frame_reply>();
  CHECK(got.pin == 5);
  CHECK(got.frames.items == std::vector{page_frame{8192, 0, 1}});
  // Another client may know the number, which is no secret.
  begin(theirs.ranks[0].worker, unpin_atom_v, pin_number{5});
  CHECK(worker0.take_one<unpin_atom, owner_id, pin_number>().get<owner_id>(1) == theirs.owner);
  begin(theirs.ranks[0].worker, fill_atom_v, fill_request{5, {}, {}});
  CHECK(worker0.take_one<fill_atom, owner_id, fill_request>().get<owner_id>(1) == theirs.owner);
  const auto refused = begin(io(), fetch_atom_v, batch());
  worker0.reply_error(worker0.take_one<fetch_atom, owner_id, frame_request>(), errc::limit_exceeded);
  run();
  CHECK(client().answer_to(refused).code() == errc::limit_exceeded);
}

TEST_CASE_METHOD(reception_world, "reception: frames are granted only for slots that are reserved for the client",
                 "[reception]") {
  CHECK(ask(io(), place_atom_v, batch()).code() == errc::not_owner);
  reserve(mine);
  CHECK(ask(io(), place_atom_v, batch({3, 0xffffffff})).code() == errc::not_owner);
  CHECK(ask(theirs.ranks[0].worker, place_atom_v, batch()).code() == errc::not_owner);
  CHECK(worker0.take<place_atom, owner_id, frame_request>().empty());
  const auto placing = begin(io(), place_atom_v, batch());
  worker0.reply(worker0.take_one<place_atom, owner_id, frame_request>(),
                caf::make_message(frame_reply{6, {{page_frame{}}}}));
  run();
  CHECK(client().answer_to(placing).code() == errc::ok);
  begin(harness(), commit_atom_v, pages(mine.owner));
  CHECK(shard.take<commit_atom, finish_request>().size() == 1);
  CHECK(ask(io(), place_atom_v, batch()).code() == errc::not_owner);
}

TEST_CASE_METHOD(reception_world, "reception: concurrent requests are limited per client", "[reception]") {
  end(supervisor);
  options->actors.max_requests = 16;
  start();
  proxy = spawn<reception>(supervisor);
  mine = enter(link);
  theirs = enter(other_link);
  for (int i = 0; i < 16; ++i)
    begin(harness(), match(mine.owner));
  CHECK(ask(harness(), match(mine.owner)).code() == errc::limit_exceeded);
  CHECK(ask(io(), fetch_atom_v, batch()).code() == errc::limit_exceeded);
  auto asked = shard.take<match_request>();
  REQUIRE(asked.size() == 16);
  begin(theirs.shards[0], match(theirs.owner));
  CHECK(shard.take<match_request>().size() == 1);
  shard.reply(asked.front(), caf::make_message(match_reply{}));
  run();
  begin(harness(), match(mine.owner));
  CHECK(shard.take<match_request>().size() == 1);
}

TEST_CASE_METHOD(reception_world, "reception: clients cannot use the internal messages of the node", "[reception]") {
  const auto refused = [&](const auto& handle, auto... xs) {
    client().request(caf::actor_cast<caf::strong_actor_ptr>(handle), caf::make_message(xs...));
    run();
    return client().take_answers().front().content.match_elements<caf::error>();
  };
  const slot_batch slots{{{slot_ref{1, 0xffffffff}}}, true};
  CHECK(refused(harness(), owner_died_atom_v, theirs.owner));
  CHECK(refused(harness(), bind_atom_v, registry_peers{}));
  CHECK(refused(harness(), evict_request{mine.ns_id, 0, 8}));
  CHECK(refused(harness(), children_request{mine.ns_id, {}}));
  CHECK(refused(harness(), remove_namespace_request{mine.ns_id, true}));
  CHECK(refused(harness(), written_atom_v, std::uint8_t{13}, std::string("disk full")));
  CHECK(refused(harness(), erase_request{mine.ns_id, 0, {}}));
  CHECK(refused(io(), fence_atom_v, slots));
  CHECK(refused(io(), drain_atom_v));
  CHECK(refused(io(), owner_died_atom_v, theirs.owner));
  CHECK(refused(io(), fetch_atom_v, theirs.owner, batch()));
  CHECK(refused(io(), owner_quiesced_atom_v, theirs.owner));
  CHECK(refused(io(), io_completions{}));
  CHECK(refused(proxy, drain_atom_v));
  CHECK(refused(proxy, stats_atom_v));
  CHECK(refused(proxy, caf::leave_atom_v, mine.owner, link.as<>()));
  CHECK(shard.inbox_size() == 0);
  CHECK(worker0.inbox_size() == 0);
}

TEST_CASE_METHOD(reception_world, "reception: forged exit, down and error messages end no actor", "[reception]") {
  const auto tell = [&](auto message) {
    for (const auto& handle : {caf::actor_cast<caf::actor>(proxy), caf::actor_cast<caf::actor>(harness()),
                               caf::actor_cast<caf::actor>(io())})
      caf::anon_send(handle, message);
    run();
  };
  tell(caf::exit_msg{link.as<>().address(), caf::exit_reason::user_shutdown});
  tell(caf::exit_msg{caf::actor_addr{}, caf::exit_reason::user_shutdown});
  tell(caf::down_msg{link.as<>().address(), caf::exit_reason::user_shutdown});
  tell(caf::down_msg{harness().address(), caf::exit_reason::user_shutdown});
  tell(caf::make_error(caf::sec::runtime_error));
  tell(std::string("what?"));
  begin(harness(), match(mine.owner));
  CHECK(shard.take<match_request>().size() == 1);
  begin(io(), fetch_atom_v, batch());
  CHECK(worker0.take<fetch_atom, owner_id, frame_request>().size() == 1);
  probe another(system());
  CHECK(enter(another).owner != 0);
}

TEST_CASE_METHOD(reception_world, "reception: the handles of a client end with it and those of others stay",
                 "[reception]") {
  const auto gone = mine;
  SECTION("it dies") {
    link.die();
    run();
  }
  SECTION("it detaches") {
    link.request(caf::actor_cast<caf::strong_actor_ptr>(proxy), caf::make_message(caf::leave_atom_v, mine.owner));
    run();
  }
  SECTION("it attaches again") {
    enter(link);
  }
  CHECK(dead() == std::vector{gone.owner});
  CHECK(ask(gone.shards[0], match(gone.owner)).code() == errc::unreachable);
  CHECK(ask(gone.ranks[0].worker, fetch_atom_v, batch()).code() == errc::unreachable);
  CHECK(ask(gone.ranks[1].worker, fetch_atom_v, batch()).code() == errc::unreachable);
  begin(theirs.shards[0], match(theirs.owner));
  CHECK(shard.take<match_request>().size() == 1);
}

TEST_CASE_METHOD(reception_world, "reception: names are limited in length", "[reception]") {
  probe another(system());
  auto wanted = request();
  auto& name = GENERATE(false, true) ? wanted.client_name : wanted.namespace_name;
  name = std::string(257, 'x');
  CHECK(ask(proxy, wanted, another.as<>()).code() == errc::limit_exceeded);
  name.pop_back();
  CHECK(ask(proxy, wanted, another.as<>()).code() ==
        (wanted.client_name.size() == 256 ? errc::ok : errc::unknown_namespace));
}

TEST_CASE_METHOD(reception_world, "reception: only the client itself can detach", "[reception]") {
  CHECK(ask(proxy, caf::leave_atom_v, mine.owner).code() == errc::not_found);
  caf::anon_send(proxy, caf::leave_atom_v, mine.owner);
  run();
  other_link.request(caf::actor_cast<caf::strong_actor_ptr>(proxy), caf::make_message(caf::leave_atom_v, mine.owner));
  run();
  CHECK(dead().empty());
}

TEST_CASE_METHOD(reception_world, "reception: quiescence can be reported by any sender that knows the owner id",
                 "[reception]") {
  begin(io(), fetch_atom_v, batch());
  CHECK(ask(proxy, owner_quiesced_atom_v, mine.owner).code() == errc::busy);
  link.die();
  run();
  CHECK(rested().empty());
  CHECK(ask(proxy, owner_quiesced_atom_v, mine.owner).code() == errc::ok);
  CHECK(rested() == std::vector{mine.owner});
  CHECK(ask(proxy, owner_quiesced_atom_v, mine.owner).code() == errc::ok);
  CHECK(ask(proxy, owner_quiesced_atom_v, owner_id{0}).code() == errc::ok);
  CHECK(rested().empty());
}

TEST_CASE_METHOD(reception_world, "reception: a message that is no request gets no reply", "[reception]") {
  probe sender(system());
  const auto send = [&](const auto& handle, caf::message content) {
    caf::actor_cast<caf::strong_actor_ptr>(handle)->enqueue(sender.as<caf::strong_actor_ptr>(), caf::make_message_id(),
                                                            std::move(content), nullptr);
    run();
  };
  send(io(), caf::make_message(unpin_atom_v, pin_number{5}));
  worker0.reply(worker0.take_one<unpin_atom, owner_id, pin_number>(), caf::make_message());
  send(proxy, caf::make_message(caf::leave_atom_v, theirs.owner));
  run();
  CHECK(sender.inbox_size() == 0);
}

TEST_CASE_METHOD(reception_world, "reception: it ends with the node", "[reception]") {
  end(supervisor);
  CHECK(ask(proxy, request(), link.as<>()).code() == errc::unreachable);
  CHECK(ask(harness(), match(mine.owner)).code() == errc::unreachable);
}

} // namespace reception_test
