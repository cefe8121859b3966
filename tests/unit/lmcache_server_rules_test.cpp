#include "lmcache/server_rules.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace lmcache_server_rules_test {

using namespace troupe;
using namespace troupe::lmcache;

namespace {

using end_reason = server_rules::end_reason;

std::shared_ptr<const remote_layout> memory_named(const std::string& name) {
  auto out = std::make_shared<remote_layout>();
  out->memories.emplace_back(shared_memory_handle{name, 4096});
  return out;
}

struct worker {
  client_number client = 1;
  instance_id instance = 7;
  std::int32_t process = 0;

  instance_name name() const { return {client, instance}; }
};

/// The orders of the rules in words: "prepare 1", "accept 1", "reject 1", "end 1", "release 1".
struct server {
  server_rules rules;
  timestamp time{std::chrono::hours(1)};
  std::vector<std::string> said{};

  change_number enroll(const worker& x, std::shared_ptr<const remote_layout> memory, bool invalid = false) {
    server_rules::registration wanted{x.name(), x.process, {}, std::move(memory), false, invalid};
    const auto out = rules.enroll(std::move(wanted), time);
    listen();
    return out;
  }
  change_number unregister(const worker& x) {
    const auto out = rules.unregister(x.name(), x.process, time);
    listen();
    return out;
  }
  change_number registered(const worker& x, std::shared_ptr<const remote_layout> memory) {
    const auto out = enroll(x, std::move(memory));
    prepared(out);
    REQUIRE(rules.current(x.name()) == out);
    said.clear();
    return out;
  }
  void prepared(change_number x) {
    rules.prepared(x, time);
    listen();
  }
  void failed(change_number x, errc why) {
    rules.failed(x, why, time);
    listen();
  }
  void work_ends(change_number x) {
    rules.end_work(x, time);
    rules.end_copy(x, time);
    listen();
  }
  bool work_begins(change_number x) { return rules.begin_copy(x) && rules.begin_work(x); }
  void pass(duration by) {
    time += by;
    rules.tick(time);
    listen();
  }
  void listen() {
    for (const auto& effect : rules.take_outbox()) {
      if (const auto* a = std::get_if<server_rules::prepare>(&effect))
        said.push_back("prepare " + std::to_string(a->change));
      if (const auto* b = std::get_if<server_rules::settle>(&effect))
        said.push_back((b->accepted ? "accept " : "reject ") + std::to_string(b->change));
      if (const auto* c = std::get_if<server_rules::end>(&effect))
        said.push_back("end " + std::to_string(c->change));
      if (const auto* d = std::get_if<server_rules::release>(&effect))
        said.push_back("release " + std::to_string(d->change));
    }
  }
  std::vector<std::string> take() {
    listen();
    return std::exchange(said, {});
  }
};

using words = std::vector<std::string>;

} // namespace

TEST_CASE("server rules: a registration is answered when it is prepared", "[lmcache]") {
  server x;
  const worker one;
  const auto memory = memory_named("/a");
  CHECK(x.enroll(one, memory) == 1);
  CHECK(x.take() == words{"prepare 1"});
  CHECK(x.rules.current(one.name()) == 0);
  CHECK_FALSE(x.rules.begin_copy(1));
  x.prepared(1);
  CHECK(x.take() == words{"accept 1"});
  CHECK(x.rules.current(one.name()) == 1);
  CHECK(x.rules.instances() == 1);
  // A repetition changes nothing.
  CHECK(x.enroll(one, memory_named("/a")) == 2);
  CHECK(x.take() == words{"accept 2"});
  CHECK(x.rules.current(one.name()) == 1);
  CHECK(x.unregister(one) == 3);
  CHECK(x.take() == words{"end 1", "release 1", "accept 3"});
  CHECK(x.rules.instances() == 0);
  CHECK(x.rules.drained());
}

TEST_CASE("server rules: repeated registrations are answered when no lane works on the old memory", "[lmcache]") {
  server x;
  const worker one;
  const auto first = x.registered(one, memory_named("/a"));
  REQUIRE(x.work_begins(first));
  const auto second = x.enroll(one, memory_named("/a"));
  const auto third = x.enroll(one, memory_named("/a"));
  CHECK(x.take() == words{"end 1"});
  CHECK_FALSE(x.rules.begin_work(first));
  x.work_ends(first);
  CHECK(x.take() == words{"prepare 3", "release 1"});
  x.prepared(third);
  CHECK(x.take() == words{"reject 2", "accept 3"});
  CHECK(second == 2);
}

TEST_CASE("server rules: a reconnect or deregistration is answered when no lane works on the memory", "[lmcache]") {
  const auto how = GENERATE(0, 1, 2, 3, 4);
  INFO("how " << how);
  server x;
  worker one{1, 7, 1000};
  worker again{2, 7, 1000};
  if (how == 2)
    one.process = again.process = 0;
  if (how == 3) {
    one.process = again.process = 0;
    again.instance = 8;
  }
  const auto first = x.registered(one, memory_named("/a"));
  REQUIRE(x.work_begins(first));
  // How 1: it is not known yet that the old connection has ended.
  if (how != 1)
    x.rules.client_disconnected(1, x.time);
  const auto second =
      how == 4 ? x.unregister(again) : x.enroll(again, memory_named(how == 0 || how == 2 ? "/another" : "/a"));
  CHECK(x.take() == words{"end 1"});
  if (how == 1)
    x.rules.client_disconnected(1, x.time);
  x.work_ends(first);
  if (how == 4) {
    CHECK(x.take() == words{"accept 2", "release 1"});
    return;
  }
  CHECK(x.take() == words{"prepare 2", "release 1"});
  x.prepared(second);
  CHECK(x.take() == words{"accept 2"});
}

TEST_CASE("server rules: of two registrations in progress the one that was sent last counts", "[lmcache]") {
  server x;
  const worker one;
  const auto first = x.enroll(one, memory_named("/a"));
  const auto second = x.enroll(one, memory_named("/b"));
  CHECK(x.take() == words{"prepare 1", "prepare 2"});
  const bool in_order = GENERATE(true, false);
  x.prepared(in_order ? first : second);
  CHECK(x.take() == (in_order ? words{"release 1"} : words{"reject 1", "accept 2"}));
  CHECK(x.rules.current(one.name()) == (in_order ? 0 : second));
  x.prepared(in_order ? second : first);
  CHECK(x.take() == (in_order ? words{"reject 1", "accept 2"} : words{"release 1"}));
  CHECK(x.rules.current(one.name()) == second);
}

TEST_CASE("server rules: a deregistration sent after a registration wins", "[lmcache]") {
  server x;
  const worker one;
  x.enroll(one, memory_named("/a"));
  x.unregister(one);
  CHECK(x.take() == words{"prepare 1", "reject 1", "accept 2"});
  x.prepared(1);
  CHECK(x.take() == words{"release 1"});
  CHECK(x.rules.current(one.name()) == 0);
}

TEST_CASE("server rules: lanes of other processes do not delay a registration", "[lmcache]") {
  server x;
  const worker one{1, 7, 1000};
  const worker other{2, 7, 2000};
  const auto first = x.registered(one, memory_named("/a"));
  REQUIRE(x.work_begins(first));
  const auto second = x.enroll(other, memory_named("/b"));
  CHECK(x.take() == words{"prepare 2"});
  x.prepared(second);
  CHECK(x.take() == words{"accept 2"});
  CHECK(x.rules.is_current(first));
  // A registration that may be the same process waits for the lane, which gets no more work meanwhile.
  const worker unknown{3, 7, 0};
  const auto third = x.enroll(unknown, memory_named("/c"));
  CHECK(x.take().empty());
  CHECK_FALSE(x.rules.begin_work(first));
  x.work_ends(first);
  CHECK(x.take() == words{"prepare 3"});
  CHECK(x.rules.begin_work(first));
  x.prepared(third);
  CHECK(x.take().empty());
  x.work_ends(first);
  CHECK(x.take() == words{"accept 3"});
}

TEST_CASE("server rules: a disconnected worker leaves nothing behind", "[lmcache]") {
  server x;
  const worker one;
  const auto first = x.registered(one, memory_named("/a"));
  REQUIRE(x.work_begins(first));
  x.enroll(one, memory_named("/b"));
  x.rules.client_disconnected(1, x.time);
  CHECK(x.take() == words{"end 1", "reject 2"});
  CHECK_FALSE(x.rules.drained());
  x.work_ends(first);
  CHECK(x.take() == words{"release 1"});
  CHECK(x.rules.drained());
  // The memory of a worker is being opened when it disconnects.
  const auto third = x.enroll({2, 1, 0}, memory_named("/c"));
  x.rules.client_disconnected(2, x.time);
  x.prepared(third);
  CHECK(x.take() == words{"prepare 3", "reject 3", "release 3"});
  // Pings of a later client with that number are the first ones again.
  CHECK_FALSE(x.rules.answer_ping({2, 1}));
  x.rules.client_disconnected(2, x.time);
  CHECK_FALSE(x.rules.answer_ping({2, 1}));
}

TEST_CASE("server rules: a ping makes an unknown worker register again, and a rejected one stays away", "[lmcache]") {
  server x;
  const worker one;
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  CHECK(x.rules.answer_ping(one.name()));
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  const auto first = x.enroll(one, memory_named("/a"));
  // A registration is in progress: another one would only replace it.
  CHECK(x.rules.answer_ping(one.name()));
  CHECK(x.rules.answer_ping(one.name()));
  // Threads and descriptors may be there later.
  const auto why = GENERATE(errc::limit_exceeded, errc::io_error, errc::unsupported);
  const bool may_pass = why != errc::unsupported;
  x.failed(first, why);
  CHECK(x.take() == words{"prepare 1", "reject 1"});
  const bool after_one = x.rules.answer_ping(one.name());
  const bool after_two = x.rules.answer_ping(one.name());
  CHECK((after_one || after_two) == may_pass);
  x.registered(one, memory_named("/a"));
  CHECK(x.rules.answer_ping(one.name()));
  x.enroll(one, nullptr, true);
  CHECK(x.take() == words{"end 2", "release 2", "reject 3"});
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  CHECK_FALSE(x.rules.answer_ping(one.name()));
}

TEST_CASE("server rules: many pings of one client do not evict the pings of another", "[lmcache]") {
  server x;
  for (instance_id i = 0; i < 100000; ++i)
    x.rules.answer_ping({1, i});
  CHECK_FALSE(x.rules.answer_ping({2, 7}));
  CHECK(x.rules.answer_ping({2, 7}));
  // Of its own pings, the last ones are remembered.
  CHECK(x.rules.answer_ping({1, 99999}));
  CHECK_FALSE(x.rules.answer_ping({1, 0}));
}

TEST_CASE("server rules: the number of workers of one client is bounded, and others are served", "[lmcache]") {
  server x;
  for (instance_id i = 0; i < 16; ++i)
    x.registered({1, i}, nullptr);
  const auto more = x.enroll({1, 16}, nullptr);
  CHECK(x.take() == words{"reject " + std::to_string(more)});
  // It may come again when there is room.
  x.unregister({1, 3});
  x.take();
  x.registered({1, 16}, nullptr);
  x.registered({2, 1}, nullptr);
  CHECK(x.rules.instances() == 17);
}

TEST_CASE("server rules: the number of preparations of one client is bounded, wanted or not", "[lmcache]") {
  server x;
  const worker one;
  std::vector<change_number> all;
  // Each takes the place of the one before, whose preparation continues.
  for (int i = 0; i < 64; ++i)
    all.push_back(x.enroll(one, memory_named("/" + std::to_string(i))));
  const auto prepares = [](const words& said) {
    return std::ranges::count_if(said, [](const auto& y) { return y.starts_with("prepare"); });
  };
  CHECK(prepares(x.take()) == 4);
  // Another client does not wait for it.
  const auto other = x.enroll({2, 1, 5}, nullptr);
  CHECK(x.take() == words{"prepare " + std::to_string(other)});
  x.prepared(all[0]);
  CHECK(x.take() == words{"release " + std::to_string(all[0])});
  x.pass(std::chrono::seconds(1));
  CHECK(x.take() == words{"prepare " + std::to_string(all.back())});
  x.prepared(all.back());
  CHECK(x.rules.current(one.name()) == all.back());

  // A registration that gets no turn is still answered.
  const auto late = x.enroll({1, 8, 9}, nullptr);
  x.take();
  x.pass(std::chrono::minutes(3));
  const auto said = x.take();
  CHECK(std::ranges::count(said, "reject " + std::to_string(late)) + (prepares(said) > 0 ? 1 : 0) >= 1);
}

TEST_CASE("server rules: a self-copying worker that lost its state is registered again", "[lmcache]") {
  server x;
  const worker one;
  x.registered(one, nullptr);
  x.enroll(one, nullptr);
  CHECK(x.take() == words{"accept 2"});
  server_rules::registration again{one.name(), one.process, {}, nullptr, false, false, true};
  x.rules.enroll(again, x.time);
  CHECK(x.take() == words{"end 1", "release 1", "prepare 3"});
}

TEST_CASE("server rules: the removal of a namespace is waited for within limits", "[lmcache]") {
  server x;
  const worker one;
  x.registered(one, memory_named("/a"));
  x.rules.sent_away(1, x.time);
  CHECK(x.take() == words{"end 1", "release 1"});
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  CHECK(x.rules.answer_ping(one.name()));
  const auto again = x.enroll(one, memory_named("/a"));
  x.failed(again, errc::busy);
  CHECK(x.take() == words{"prepare 2"});
  x.pass(std::chrono::milliseconds(100));
  CHECK(x.take().empty());
  CHECK(x.rules.next_deadline() <= x.time + std::chrono::milliseconds(150));
  x.pass(std::chrono::milliseconds(150));
  CHECK(x.take() == words{"prepare 2"});
  const bool returns = GENERATE(true, false);
  if (returns) {
    x.prepared(again);
    CHECK(x.take() == words{"accept 2"});
    return;
  }
  for (int i = 0; i < 1000 && x.said.empty(); ++i) {
    x.failed(again, errc::busy);
    x.pass(std::chrono::milliseconds(250));
    if (!x.said.empty() && x.said.back() == "prepare 2")
      x.said.clear();
  }
  CHECK(x.take() == words{"reject 2"});
  // Not for good.
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  CHECK(x.rules.answer_ping(one.name()));
}

TEST_CASE("server rules: a registration that takes too long is rejected, and its late result is released",
          "[lmcache]") {
  server x;
  const auto first = x.enroll({}, memory_named("/a"));
  x.pass(std::chrono::minutes(1));
  CHECK(x.take() == words{"prepare 1"});
  x.pass(std::chrono::minutes(1));
  CHECK(x.take() == words{"reject 1"});
  x.prepared(first);
  CHECK(x.take() == words{"release 1"});
  CHECK(x.rules.next_deadline() == timestamp::max());
}

TEST_CASE("server rules: at shutdown every request is answered after the lanes have finished", "[lmcache]") {
  server x;
  const worker one;
  const auto first = x.registered(one, memory_named("/a"));
  REQUIRE(x.work_begins(first));
  x.enroll(one, memory_named("/b"));
  x.enroll({2, 2, 0}, memory_named("/c"));
  x.take();
  x.rules.stop(x.time);
  CHECK(x.take() == words{"reject 3"});
  CHECK_FALSE(x.rules.answer_ping(one.name()));
  CHECK_FALSE(x.rules.drained());
  x.work_ends(first);
  CHECK(x.take() == words{"reject 2", "release 1"});
  x.enroll(one, memory_named("/b"));
  CHECK(x.take() == words{"reject 4"});
  x.prepared(3);
  CHECK(x.take() == words{"release 3"});
  CHECK(x.rules.drained());
}

} // namespace lmcache_server_rules_test
