#include "actors/support/ask.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <thread>

namespace troupe::test {

namespace {

using echo_actor = caf::typed_actor<caf::replies_to<std::uint64_t>::with<std::uint64_t>>;

/// Where a message was handled.
struct trace {
  std::atomic<std::uint64_t> handled{0};
  std::mutex mutex;
  std::vector<std::thread::id> threads;

  void note() {
    ++handled;
    std::lock_guard guard(mutex);
    threads.push_back(std::this_thread::get_id());
  }
  std::thread::id last() {
    std::lock_guard guard(mutex);
    return threads.back();
  }
};

/// Answers with what it was given plus one; `then` is called first.
echo_actor::behavior_type echo(echo_actor::pointer, std::shared_ptr<trace> seen,
                               std::function<void(std::uint64_t)> then) {
  return {
      [seen, then](std::uint64_t x) -> std::uint64_t {
        seen->note();
        if (then)
          then(x);
        return x + 1;
      },
  };
}

struct threads_world {
  caf::actor_system_config config;
  caf::actor_system system{config};
  std::shared_ptr<trace> seen = std::make_shared<trace>();

  echo_actor spawn(std::function<void(std::uint64_t)> then = {}) {
    return system.spawn([seen = seen, then](echo_actor::pointer self) { return echo(self, seen, then); });
  }

  /// The answer goes to the promise.
  void ask_for(const echo_actor& to, std::uint64_t x, std::shared_ptr<std::promise<std::uint64_t>> promise) {
    ask<std::uint64_t>(
        system, to, [promise](result<std::uint64_t> answer) { promise->set_value(answer.value_or(0)); }, x);
  }

  static void end(const echo_actor& x) { caf::anon_send_exit(x, caf::exit_reason::user_shutdown); }
};

constexpr auto patience = std::chrono::seconds(60);

/// An actor counts as at work for a moment after its last answer, so it may take several attempts until it works here.
/// Whether one succeeded: then its answer was there at once.
bool worked_here(threads_world& world, const echo_actor& actor, std::uint64_t x) {
  for (int attempt = 0; attempt < 10'000; ++attempt) {
    const auto answer = std::make_shared<std::promise<std::uint64_t>>();
    auto future = answer->get_future();
    {
      const lent_thread::offer to_it(world.system);
      world.ask_for(actor, x, answer);
    }
    const bool at_once = future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    REQUIRE(future.wait_for(patience) == std::future_status::ready);
    CHECK(future.get() == x + 1);
    if (at_once && world.seen->last() == std::this_thread::get_id())
      return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

} // namespace

TEST_CASE("lent thread: an actor with nothing to do works on the thread that asks it") {
  threads_world world;
  const auto actor = world.spawn();
  CHECK(worked_here(world, actor, 41));
  // And on a thread of the scheduler where nothing is lent.
  const auto answer = std::make_shared<std::promise<std::uint64_t>>();
  world.ask_for(actor, 1, answer);
  REQUIRE(answer->get_future().wait_for(patience) == std::future_status::ready);
  CHECK(world.seen->last() != std::this_thread::get_id());
  threads_world::end(actor);
}

TEST_CASE("lent thread: an actor that is at work goes on where it is") {
  threads_world world;
  std::promise<void> begun;
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future().share();
  const auto actor = world.spawn([&begun, may_go_on](std::uint64_t x) {
    if (x != 1)
      return;
    begun.set_value();
    may_go_on.wait();
  });
  const auto first = std::make_shared<std::promise<std::uint64_t>>();
  world.ask_for(actor, 1, first);
  REQUIRE(begun.get_future().wait_for(patience) == std::future_status::ready);
  const auto second = std::make_shared<std::promise<std::uint64_t>>();
  auto future = second->get_future();
  {
    const lent_thread::offer to_it(world.system);
    world.ask_for(actor, 2, second);
  } // returns, though the actor is busy
  CHECK(future.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  go_on.set_value();
  REQUIRE(future.wait_for(patience) == std::future_status::ready);
  CHECK(future.get() == 3);
  CHECK(world.seen->last() != std::this_thread::get_id());
  threads_world::end(actor);
}

TEST_CASE("lent thread: what an actor asks others while it runs here goes to the scheduler") {
  threads_world world;
  const auto seen_by_other = std::make_shared<trace>();
  const auto other =
      world.system.spawn([seen_by_other](echo_actor::pointer self) { return echo(self, seen_by_other, {}); });
  std::atomic<std::uint64_t> asked{0};
  const auto actor = world.spawn([&world, &asked, other](std::uint64_t) {
    ++asked;
    const lent_thread::offer inside(world.system); // lends nothing where the thread is at work already
    ask<std::uint64_t>(
        world.system, other, [](const result<std::uint64_t>&) {}, std::uint64_t{10});
  });
  const auto here = std::this_thread::get_id();
  {
    const lent_thread::offer outer(world.system);
    const lent_thread::offer again(world.system); // nor does a second offer take it
  }
  CHECK(worked_here(world, actor, 1));
  const auto until = std::chrono::steady_clock::now() + patience;
  while (seen_by_other->handled < asked && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  CHECK(seen_by_other->handled == asked);
  {
    std::lock_guard guard(seen_by_other->mutex);
    CHECK(std::ranges::count(seen_by_other->threads, here) == 0);
  }
  threads_world::end(actor);
  threads_world::end(other);
}

TEST_CASE("lent thread: an actor that is gone answers that it is") {
  threads_world world;
  const auto actor = world.spawn();
  {
    caf::scoped_actor self{world.system};
    self->monitor(actor);
    threads_world::end(actor);
    self->receive([](const caf::down_msg&) {});
  }
  std::promise<errc> promise;
  {
    const lent_thread::offer to_it(world.system);
    ask<std::uint64_t>(
        world.system, actor,
        [&promise](result<std::uint64_t> answer) { promise.set_value(answer ? errc::ok : answer.error().code); },
        std::uint64_t{1});
  }
  auto future = promise.get_future();
  REQUIRE(future.wait_for(patience) == std::future_status::ready);
  CHECK(future.get() != errc::ok);
}

TEST_CASE("lent thread: many threads that ask the same actors each get every answer once") {
  threads_world world;
  std::array<std::atomic<int>, 3> inside{};
  std::atomic<bool> twice{false};
  std::vector<echo_actor> actors;
  for (std::size_t i = 0; i < inside.size(); ++i)
    actors.push_back(world.spawn([&inside, &twice, i](std::uint64_t) {
      if (inside[i].fetch_add(1) != 0)
        twice = true; // two threads in one actor
      inside[i].fetch_sub(1);
    }));
  constexpr std::uint64_t rounds = 3000;
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> askers;
  for (std::uint64_t t = 0; t < 4; ++t)
    askers.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const lent_thread::offer to_them(world.system);
        for (const auto& x : actors)
          ask<std::uint64_t>(
              world.system, x,
              [&answers, &wrong, expected = t * rounds + i + 1](const result<std::uint64_t>& answer) {
                if (!answer || *answer != expected)
                  ++wrong;
                ++answers;
              },
              t * rounds + i);
      }
    });
  for (auto& x : askers)
    x.join();
  const auto until = std::chrono::steady_clock::now() + patience;
  while (answers < 4 * rounds * actors.size() && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  CHECK(answers == 4 * rounds * actors.size());
  CHECK(wrong == 0);
  CHECK_FALSE(twice);
  CHECK(world.seen->handled == 4 * rounds * actors.size());
  for (const auto& x : actors)
    threads_world::end(x);
}

} // namespace troupe::test
