#include "actors/support/ask.hpp"
#include "actors/support/asking_round.hpp"
#include "actors/support/system_config.hpp"
#include "tests/catch.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace asking_round_test {

using namespace troupe;

/// Answers with the number of messages that it has received, and remembers in which thread it received the last one.
using counter_actor = caf::typed_actor<caf::replies_to<std::uint32_t>::with<std::uint32_t>>;

struct counted {
  std::atomic<std::uint32_t> messages{0};
  std::atomic<std::thread::id> thread;
};

counter_actor::behavior_type counter(counter_actor::pointer self, std::shared_ptr<counted> seen, counter_actor next) {
  return {[=](std::uint32_t x) {
    seen->thread = std::this_thread::get_id();
    const auto n = ++seen->messages;
    if (x == 0)
      self->quit();
    else if (next)
      caf::anon_send(next, x); // its answer is no message for this actor
    return n;
  }};
}

struct world {
  world() : system(config) { first = spawn(seen); }

  /// An actor that no worker has run, so none is running it still.
  counter_actor spawn(const std::shared_ptr<counted>& by, const counter_actor& next = {}) {
    return system.spawn<caf::lazy_init>(counter, by, next);
  }

  static config::caf_config two_workers() {
    config::caf_config out;
    out.scheduler_threads = 2;
    return out;
  }

  /// Asks, and has the answer written to `answers`.
  void ask_counter(const counter_actor& whom, std::uint32_t x = 1) {
    auto done = std::make_shared<std::promise<result<std::uint32_t>>>();
    answers.push_back(done->get_future());
    ask<std::uint32_t>(system, whom, [done](result<std::uint32_t> answer) { done->set_value(std::move(answer)); }, x);
  }

  bool is_answered(std::size_t i) { return answers[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  std::shared_ptr<counted> seen = std::make_shared<counted>();
  system_config config{two_workers()};
  caf::actor_system system;
  counter_actor first;
  std::vector<std::future<result<std::uint32_t>>> answers;
};

TEST_CASE("short questions of a round are answered by its own thread when it ends", "[asking_round]") {
  world w;
  asking_round round(w.system);
  const auto second_seen = std::make_shared<counted>();
  const auto second = w.spawn(second_seen);
  for (int i = 0; i < 4; ++i) {
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
    w.ask_counter(second);
  }
  for (std::size_t i = 0; i < w.answers.size(); ++i)
    CHECK_FALSE(w.is_answered(i));
  CHECK(w.seen->messages == 0);
  round.end();
  for (std::size_t i = 0; i < w.answers.size(); ++i) {
    REQUIRE(w.is_answered(i));
    CHECK(*w.answers[i].get() == i / 2 + 1);
  }
  CHECK(w.seen->thread.load() == std::this_thread::get_id());
  CHECK(second_seen->thread.load() == std::this_thread::get_id());
  // The next round begins with nothing.
  round.end();
  CHECK(w.seen->messages == 4);
}

TEST_CASE("other questions, and more than a round may have, go to the workers at once", "[asking_round]") {
  world w;
  asking_round round(w.system);
  w.ask_counter(w.first);
  CHECK(*w.answers[0].get() == 1);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  {
    const asking_round::short_question question(asking_round::most_keys + 1);
    w.ask_counter(w.first);
  }
  CHECK(*w.answers[1].get() == 2);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());

  SECTION("also for the rest of that round") {
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
    CHECK(*w.answers[2].get() == 3);
  }
  SECTION("with what was collected before") {
    round.end();
    const auto second = w.spawn(std::make_shared<counted>());
    {
      const asking_round::short_question question(1);
      w.ask_counter(second);
    }
    CHECK_FALSE(w.is_answered(2));
    const asking_round::short_question question(asking_round::most_keys);
    CHECK(*w.answers[2].get() == 1);
  }
}

TEST_CASE("a round's thread leaves to the workers what it does not have to do itself", "[asking_round]") {
  world w;
  const auto next_seen = std::make_shared<counted>();
  const auto next = w.spawn(next_seen);
  const auto passing_on = w.spawn(w.seen, next);
  asking_round round(w.system);
  {
    const asking_round::short_question question(1);
    w.ask_counter(passing_on);
  }
  // Many messages of another thread, beyond what this one handles for others.
  constexpr std::uint32_t others = 100;
  std::thread([&] {
    for (std::uint32_t i = 0; i < others; ++i)
      caf::anon_send(passing_on, std::uint32_t{1});
  }).join();
  round.end();
  CHECK(w.is_answered(0));
  // The workers do the rest, and run the actor that this one has sent messages to.
  for (int i = 0; i < 10'000 && next_seen->messages < others + 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(w.seen->messages == others + 1);
  CHECK(next_seen->messages == others + 1);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  CHECK(next_seen->thread.load() != std::this_thread::get_id());
}

TEST_CASE("an actor that ends during a round is released, and one that has ended answers with an error",
          "[asking_round]") {
  world w;
  asking_round round(w.system);
  {
    const asking_round::short_question question(1);
    w.ask_counter(w.first, 0);
  }
  round.end();
  CHECK(*w.answers[0].get() == 1);
  {
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
  }
  round.end();
  REQUIRE(w.is_answered(1));
  CHECK_FALSE(w.answers[1].get().has_value());
}

TEST_CASE("what a round has collected is done when its thread leaves, and threads without one wake workers",
          "[asking_round]") {
  world w;
  {
    std::optional<asking_round> round(std::in_place, w.system);
    {
      const asking_round::short_question question(1);
      w.ask_counter(w.first);
    }
    CHECK_FALSE(w.is_answered(0));
    round.reset();
    CHECK(*w.answers[0].get() == 1);
  }
  CHECK(asking_round::of_this_thread() == nullptr);
  const asking_round::short_question question(1);
  w.ask_counter(w.first);
  CHECK(*w.answers[1].get() == 2);
}

} // namespace asking_round_test
