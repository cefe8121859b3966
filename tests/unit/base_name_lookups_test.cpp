#include "base/name_lookups.hpp"
#include "base/tcp_connect.hpp"
#include "tests/catch.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace base_name_lookups_test {

using namespace troupe;
using std::chrono::hours;
using std::chrono::milliseconds;

namespace {

using addresses = name_lookups::addresses;

/// A name server that is silent until it may answer.
struct silent_server {
  name_lookups::question question() const {
    return [answer = answer] {
      answer.wait();
      return result<addresses>(addresses(1));
    };
  }

  std::promise<void> may_answer;
  std::shared_future<void> answer = may_answer.get_future().share();
};

result<addresses> two() {
  return addresses(2);
}

} // namespace

TEST_CASE("name lookups: the answer, or its error, reaches the caller", "[base]") {
  name_lookups all;
  CHECK(all.ask("two", two, hours(100)).value().size() == 2);
  // All of the range of time.
  CHECK(all.ask("two", two, duration::max()).value().size() == 2);
  const auto none = all.ask(
      "none", []() -> result<addresses> { return fail(errc::unreachable, "no such name"); }, hours(100));
  REQUIRE_FALSE(none);
  CHECK(none.error().text == "no such name");
}

TEST_CASE("name lookups: a silent name server keeps a caller for its limit, and no other caller", "[base]") {
  silent_server server;
  name_lookups all;
  const auto begun = std::chrono::steady_clock::now();
  CHECK(all.ask("silent", server.question(), milliseconds(20)).error().code == errc::timeout);
  CHECK(std::chrono::steady_clock::now() - begun >= milliseconds(20));
  CHECK(all.ask("two", two, hours(1)));
  server.may_answer.set_value();
}

TEST_CASE("name lookups: a caller that ends does not wait for a silent name server", "[base]") {
  silent_server server;
  name_lookups all;
  std::atomic<bool> closing{false};
  auto asked = std::async(std::launch::async, [&] {
    return all.ask("silent", server.question(), hours(1), [&] { return closing.load(); }).error().code;
  });
  CHECK(asked.wait_for(milliseconds(20)) == std::future_status::timeout);
  closing = true;
  CHECK(asked.get() == errc::cancelled);
  server.may_answer.set_value();
}

TEST_CASE("name lookups: so many wait for name servers at most, and the others for one of them to end", "[base]") {
  silent_server server;
  auto all = std::make_unique<name_lookups>(2);
  for (int i = 0; i < 2; ++i)
    CHECK(all->ask("silent " + std::to_string(i), server.question(), milliseconds(5)).error().code == errc::timeout);
  bool asked = false;
  const auto third = [&] {
    asked = true;
    return two();
  };
  CHECK(all->ask("third", third, milliseconds(5)).error().code == errc::timeout);
  CHECK(all->ask("third", third, hours(1), [] { return true; }).error().code == errc::cancelled);
  CHECK_FALSE(asked);
  auto waiting = std::async(std::launch::async, [&] { return all->ask("two", two, hours(1)).has_value(); });
  server.may_answer.set_value();
  CHECK(waiting.get());
  CHECK(all->ask("third", third, hours(1)));
  CHECK(asked);
}

TEST_CASE("name lookups: a silent name takes one thread, however often it is asked for", "[base]") {
  silent_server server;
  name_lookups all(2);
  for (int i = 0; i < 20; ++i)
    CHECK(all.ask("silent", server.question(), milliseconds(1)).error().code == errc::timeout);
  CHECK(all.ask("two", two, hours(1)));
  // The answer to the first question is for those who ask meanwhile, and for none who ask later.
  std::atomic<int> looks{0};
  auto joins = std::async(std::launch::async,
                          [&] { return all.ask("silent", two, hours(1), [&] { return ++looks < 0; }).value().size(); });
  // The first look is before it joins, the second while it waits.
  while (looks < 2)
    std::this_thread::yield();
  CHECK(joins.wait_for(milliseconds(20)) == std::future_status::timeout);
  server.may_answer.set_value();
  CHECK(joins.get() == 1);
  CHECK(all.ask("silent", two, hours(1)).value().size() == 2);
}

TEST_CASE("name lookups: a thread outlives the object that its caller has left", "[base]") {
  silent_server server;
  const auto ended = std::make_shared<std::promise<void>>();
  {
    name_lookups all;
    const auto last = [question = server.question(), ended] {
      auto out = question();
      ended->set_value();
      return out;
    };
    CHECK(all.ask("last", last, milliseconds(5)).error().code == errc::timeout);
  }
  server.may_answer.set_value();
  ended->get_future().wait();
}

} // namespace base_name_lookups_test
