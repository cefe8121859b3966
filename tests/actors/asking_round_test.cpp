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

/// Answers with the number of messages that it has received, and remembers in which thread it received the first and
/// the last one.
using counter_actor = caf::typed_actor<caf::replies_to<std::uint32_t>::with<std::uint32_t>>;

struct counted {
  std::atomic<std::uint32_t> messages{0};
  std::atomic<std::thread::id> first_thread;
  std::atomic<std::thread::id> thread;
};

using sink_actor = caf::typed_actor<caf::reacts_to<std::uint32_t>>;

sink_actor::behavior_type sink(sink_actor::pointer, std::shared_ptr<counted> seen) {
  return {[=](std::uint32_t) {
    seen->thread = std::this_thread::get_id();
    ++seen->messages;
  }};
}

counter_actor::behavior_type counter(counter_actor::pointer self, std::shared_ptr<counted> seen, sink_actor next) {
  return {[=](std::uint32_t x) {
    seen->thread = std::this_thread::get_id();
    const auto n = ++seen->messages;
    if (n == 1)
      seen->first_thread = std::this_thread::get_id();
    if (x == 0)
      self->quit();
    else if (next)
      self->send(next, x);
    return n;
  }};
}

struct world {
  world() : system(config) { first = spawn(seen); }

  /// An actor that no worker has run, so none is running it still.
  counter_actor spawn(const std::shared_ptr<counted>& by, const sink_actor& next = {}) {
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
    ask<std::uint32_t>(
        system, whom, [done](result<std::uint32_t> answer) { done->set_value(std::move(answer)); }, x);
  }

  /// Waits for it.
  result<std::uint32_t> answer(std::size_t i) {
    if (answers[i].wait_for(std::chrono::minutes(1)) != std::future_status::ready)
      return fail(errc::timeout, "there is no answer");
    return answers[i].get();
  }

  bool is_answered(std::size_t i) { return answers[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  std::shared_ptr<counted> seen = std::make_shared<counted>();
  system_config config{two_workers()};
  caf::actor_system system;
  counter_actor first;
  std::vector<std::future<result<std::uint32_t>>> answers;
};

TEST_CASE("asking round: short questions of a round are answered by its own thread when it ends", "[asking_round]") {
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
  // One message at least; the workers do the rest if this thread was suspended.
  CHECK(w.is_answered(0));
  CHECK(w.is_answered(1));
  CHECK(w.seen->first_thread.load() == std::this_thread::get_id());
  CHECK(second_seen->first_thread.load() == std::this_thread::get_id());
  for (std::size_t i = 0; i < w.answers.size(); ++i)
    CHECK(*w.answer(i) == i / 2 + 1);
  // The next round begins with nothing.
  round.end();
  CHECK(w.seen->messages == 4);
}

TEST_CASE("asking round: other questions, and more than a round may have, go to the workers at once",
          "[asking_round]") {
  world w;
  asking_round round(w.system);
  w.ask_counter(w.first);
  CHECK(*w.answer(0) == 1);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  {
    const asking_round::short_question question(asking_round::most_keys + 1);
    w.ask_counter(w.first);
  }
  CHECK(*w.answer(1) == 2);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  {
    // Also for the rest of that round.
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
    CHECK(*w.answer(2) == 3);
  }
}

TEST_CASE("asking round: what a round has collected goes to the workers with a question that is not short",
          "[asking_round]") {
  world w;
  asking_round round(w.system);
  {
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
  }
  CHECK_FALSE(w.is_answered(0));
  CHECK(round.waiting_since() <= std::chrono::steady_clock::now());
  SECTION("of another kind, to the same actor") {
    w.ask_counter(w.first);
    CHECK(*w.answer(1) == 2);
  }
  SECTION("about many keys, to another actor") {
    const auto second = w.spawn(std::make_shared<counted>());
    const asking_round::short_question question(asking_round::most_keys);
    w.ask_counter(second);
    CHECK(*w.answer(1) == 1);
  }
  CHECK(*w.answer(0) == 1);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  CHECK(round.waiting_since() == timestamp::max());
}

TEST_CASE("asking round: a question of an answer's receiver goes to a worker, as nothing would end its round",
          "[asking_round]") {
  world w;
  asking_round round(w.system);
  const auto second_seen = std::make_shared<counted>();
  const auto second = w.spawn(second_seen);
  {
    const asking_round::short_question question(1);
    ask<std::uint32_t>(
        w.system, w.first,
        [&](const result<std::uint32_t>&) {
          const asking_round::short_question next(1);
          w.ask_counter(second);
        },
        std::uint32_t{1});
  }
  round.end();
  CHECK(*w.answer(0) == 1);
  CHECK(second_seen->thread.load() != std::this_thread::get_id());
}

TEST_CASE("asking round: a question to an actor of another system is for the workers of that", "[asking_round]") {
  world w;
  world other;
  asking_round round(w.system);
  const asking_round::short_question question(1);
  other.ask_counter(other.first);
  CHECK(*other.answer(0) == 1);
}

TEST_CASE("asking round: a round's thread leaves to the workers what it does not have to do itself", "[asking_round]") {
  world w;
  const auto next_seen = std::make_shared<counted>();
  const auto next = w.system.spawn<caf::lazy_init>(sink, next_seen);
  const auto passing_on = w.spawn(w.seen, next);
  asking_round round(w.system);
  {
    const asking_round::short_question question(1);
    w.ask_counter(passing_on);
  }
  // More messages of another thread than fit into the time that this one has for others.
  constexpr std::uint32_t others = 20'000;
  std::thread([&] {
    for (std::uint32_t i = 0; i < others; ++i)
      caf::anon_send(passing_on, std::uint32_t{1});
  }).join();
  round.end();
  REQUIRE(w.is_answered(0));
  // The workers do the rest, and run the actor that this one has sent messages to.
  for (int i = 0; i < 60'000 && next_seen->messages < others + 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(w.seen->messages == others + 1);
  CHECK(next_seen->messages == others + 1);
  CHECK(w.seen->thread.load() != std::this_thread::get_id());
  CHECK(next_seen->thread.load() != std::this_thread::get_id());
}

TEST_CASE("asking round: an actor that ends during a round is released, and one that has ended answers with an error",
          "[asking_round]") {
  world w;
  asking_round round(w.system);
  const auto waits = w.spawn(std::make_shared<counted>());
  {
    const asking_round::short_question question(2);
    w.ask_counter(w.first, 0);
    w.ask_counter(waits);
  }
  round.end();
  CHECK(*w.answer(0) == 1);
  {
    const asking_round::short_question question(1);
    w.ask_counter(w.first);
  }
  round.end();
  REQUIRE(w.is_answered(2));
  CHECK_FALSE(w.answer(2).has_value());
  // Only the handles here are left.
  CHECK(caf::actor_cast<caf::strong_actor_ptr>(w.first)->strong_refs == 2);
  CHECK(caf::actor_cast<caf::strong_actor_ptr>(waits)->strong_refs == 2);
}

TEST_CASE(
    "asking round: what a round has collected is done when its thread leaves, and threads without one wake workers",
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
    CHECK(*w.answer(0) == 1);
  }
  CHECK(asking_round::for_question(w.system) == nullptr);
  const asking_round::short_question question(1);
  w.ask_counter(w.first);
  CHECK(*w.answer(1) == 2);
}

} // namespace asking_round_test
