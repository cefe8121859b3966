#include "actors/support/spawn_with_thread.hpp"
#include "actors/support/system_config.hpp"
#include "tests/catch.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

/// The end of an actor system, while handles to actors are kept.

namespace system_end_test {

using namespace troupe;

namespace {

/// The longest that the end may take here. It takes milliseconds; a hang is a failure, after this time.
constexpr auto end_limit = std::chrono::seconds(30);

/// Runs the function in a thread. Where it hangs, so does that thread, and the test goes on.
std::future<void> end_in_background(std::function<void()> what) {
  auto ended = std::make_shared<std::promise<void>>();
  auto out = ended->get_future();
  std::thread([what = std::move(what), ended]() mutable {
    what();
    // What the function owns is part of what has to end.
    what = nullptr;
    ended->set_value();
  }).detach();
  return out;
}

/// An actor system that is ended in another thread, so that a test fails where it hangs.
class ending_system {
public:
  caf::actor_system& operator*() const { return parts_->system; }
  caf::actor_system* operator->() const { return &parts_->system; }

  std::future<void> end() {
    // A thread that has spawned an actor keeps CAF's logger, for which the system waits as well.
    caf::logger::set_current_actor_system(nullptr);
    return end_in_background([parts = std::exchange(parts_, nullptr)]() mutable { parts.reset(); });
  }

private:
  struct parts {
    system_config options{config::caf_config{}};
    caf::actor_system system{options};
  };

  std::shared_ptr<parts> parts_ = std::make_shared<parts>();
};

bool has_ended(const std::future<void>& end) {
  return end.wait_for(end_limit) == std::future_status::ready;
}

using idle_actor = caf::typed_actor<caf::reacts_to<caf::ok_atom>>;

/// Ends with the first message.
class idle : public idle_actor::base {
public:
  explicit idle(caf::actor_config& config) : idle_actor::base(config) {}

protected:
  behavior_type make_behavior() override {
    return {[this](caf::ok_atom) { quit(); }};
  }
};

} // namespace

TEST_CASE("an actor with a thread: its thread ends with it, although a handle to it is kept", "[system_end]") {
  ending_system system;
  auto kept = spawn_with_thread<idle>(*system, thread_name("troupe-test"), "the thread of a test");
  REQUIRE(kept.has_value());
  caf::anon_send(*kept, caf::ok_atom_v);
  const auto end = system.end();
  CHECK(has_ended(end));
  *kept = nullptr;
  REQUIRE(has_ended(end));
}

} // namespace system_end_test
