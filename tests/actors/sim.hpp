#pragma once

#include "actors/support/actor_support.hpp"
#include "tests/catch.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

/// Actors on a scheduler without threads, in virtual time, and probes that stand for clients and for other actors.
/// Nothing runs between two calls of a test.

namespace troupe::test {

/// A message that a probe got.
struct received {
  caf::strong_actor_ptr sender;
  caf::message_id id;
  caf::message content;

  template <class T>
  const T& get(std::size_t position) const {
    return content.get_as<T>(position);
  }
};

/// The outcome of a request.
struct answer {
  bool came = false;
  /// Empty for success.
  error failure{errc::ok, {}};
  caf::message content;

  /// ok, or the error's code; `internal` also where nothing came.
  errc code() const noexcept { return came ? failure.code : errc::internal; }

  template <class T>
  const T& value() const {
    INFO("code " << to_string(failure) << ", content " << caf::deep_to_string(content));
    REQUIRE(came);
    REQUIRE(failure.code == errc::ok);
    REQUIRE(content.match_elements<T>());
    return content.get_as<T>(0);
  }
};

/// An actor without behaviour: keeps what it is sent, and answers when and what the test says. Its messages are there
/// without any scheduler. Thread-safe.
class probe_actor : public caf::monitorable_actor {
public:
  explicit probe_actor(caf::actor_config& config);

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override;
  const char* name() const override { return "probe"; }

private:
  friend class probe;

  std::mutex mutex_;
  std::vector<received> inbox_;
  std::uint64_t last_request_ = 0;
  bool dead_ = false;
};

/// A handle to a probe actor, which ends with it.
class probe {
public:
  explicit probe(caf::actor_system& system);
  /// One of another process, as it seems to those whom it asks.
  probe(caf::actor_system& system, const caf::node_id& home);
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;
  ~probe();

  /// As whatever actor it stands for.
  template <class Handle = caf::actor>
  Handle as() const {
    return caf::actor_cast<Handle>(self_);
  }

  /// Sends a request and returns its number.
  std::uint64_t request(const caf::strong_actor_ptr& to, caf::message content);

  /// The answer to a request of this probe, which is taken out; `came` is false if there is none.
  answer answer_to(std::uint64_t number);

  /// The number of replies that were not taken out: replies to requests that were answered twice, if all others were
  /// taken.
  std::size_t answers_left();

  /// Takes all answers, as they came.
  std::vector<received> take_answers();

  /// Messages and replies that were not taken out.
  std::size_t inbox_size();

  /// Takes all messages of these types out of the inbox, answers aside.
  template <class... Ts>
  std::vector<received> take() {
    return take_if([](const caf::message& x) { return x.match_elements<Ts...>(); });
  }

  /// The only message of these types.
  template <class... Ts>
  received take_one() {
    auto all = take<Ts...>();
    REQUIRE(all.size() == 1);
    return std::move(all.front());
  }

  void reply(const received& to, caf::message content);
  void reply_error(const received& to, errc code);

  /// Ends the actor as a crash of its machine does: its monitors are notified, its pending requests are not answered.
  void die();

private:
  std::vector<received> take_if(bool (*wanted)(const caf::message&));
  probe_actor& actor() const;

  caf::strong_actor_ptr self_;
};

/// The actor system of a test.
class sim {
public:
  /// `adjust` may change the options of the actor system.
  explicit sim(void (*adjust)(caf::actor_system_config&) = nullptr);
  sim(const sim&) = delete;
  sim& operator=(const sim&) = delete;
  /// Ends all actors and checks that none is left.
  ~sim();

  caf::actor_system& system() noexcept { return *system_; }
  timestamp now();

  /// Until no actor has anything to do.
  void run();

  /// Lets time pass in steps of 10 ms, with all that happens meanwhile.
  void advance(duration time);

  /// Messages that wait for their time, and time limits of requests.
  std::size_t pending_timeouts();

  /// Spawns an actor that ends with the simulation.
  template <class Actor, class... Args>
  auto spawn(Args&&... args) {
    auto handle = spawn_actor<Actor>(*system_, std::forward<Args>(args)...);
    remember(caf::actor_cast<caf::strong_actor_ptr>(handle));
    run();
    return handle;
  }

  /// Ends with the simulation although it was spawned by others.
  void remember(caf::strong_actor_ptr actor) { spawned_.push_back(std::move(actor)); }

  /// Ends an actor now.
  template <class Handle>
  void end(const Handle& actor) {
    end_actor(caf::actor_cast<caf::strong_actor_ptr>(actor));
  }

  /// Sends a request in the name of `client()`, runs, and returns its number for `answer_to`.
  template <class Handle, class... Ts>
  std::uint64_t begin(const Handle& to, Ts&&... xs) {
    const auto number =
        client_->request(caf::actor_cast<caf::strong_actor_ptr>(to), caf::make_message(std::forward<Ts>(xs)...));
    run();
    return number;
  }

  /// Sends a request, runs, and returns the answer.
  template <class Handle, class... Ts>
  answer ask(const Handle& to, Ts&&... xs) {
    return client_->answer_to(begin(to, std::forward<Ts>(xs)...));
  }

  probe& client() noexcept { return *client_; }

private:
  void end_actor(const caf::strong_actor_ptr& actor);

  struct config;
  std::unique_ptr<config> config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_ = nullptr;
  std::unique_ptr<probe> client_;
  std::vector<caf::strong_actor_ptr> spawned_;
};

} // namespace troupe::test
