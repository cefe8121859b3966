#pragma once

#include "tests/sim_main/asked_requests.hpp"
#include "tests/simulation/slot_node.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::simulation {

/// An engine's connections to the node's HTTP server. Requests and answers arrive late, in any order, or not at all:
/// when the connections are cut, or the engine or the node dies.
class slot_line {
public:
  slot_line(environment& world, slot_node& node, duration patience)
      : world_(world), node_(node), random_(world.random.fork()), patience_(patience),
        requests_([&world](const std::string& name) { world.count(name); }) {}

  template <class T>
  using then = std::function<void(std::optional<result<T>>)>;

  /// `done` gets no value when there was no answer in time. It is not called when the engine has ended by then. `name`:
  /// of the request, for the counts of the world.
  template <class T>
  void ask(const char* name, slot_node::call<T> what, then<T> done);

  /// Messages in flight are lost.
  void cut() noexcept { ++path_; }
  /// The engine has ended.
  void drop() {
    ++path_, ++engine_;
    requests_.abandon_if([life = node_.life()](const auto& request) { return request.first == life; });
  }

private:
  duration way() { return random_.skewed_time(std::chrono::microseconds(20), world_.p.network_delay); }

  environment& world_;
  slot_node& node_;
  random_source random_;
  duration patience_;
  /// Count the cuts of the connection and the lives of the engine, so that earlier answers are dropped.
  std::uint64_t path_ = 0;
  std::uint64_t engine_ = 0;
  /// What has reached the node, by its life and a number.
  sim_main::asked_requests<std::pair<std::uint64_t, std::uint64_t>> requests_;
  std::uint64_t last_request_ = 0;
};

template <class T>
void slot_line::ask(const char* name, slot_node::call<T> what, then<T> done) {
  const std::pair request(node_.life(), ++last_request_);
  const auto waiting = std::make_shared<then<T>>(std::move(done));
  const auto end = [this, request, waiting, engine = engine_](std::optional<result<T>> answer) {
    // A node that has ended answers nothing any more.
    if (!answer && request.first == node_.life())
      requests_.abandoned(request);
    requests_.answered(request);
    const auto asked = std::exchange(*waiting, {});
    if (!asked || engine != engine_)
      return world_.schedule.idle();
    asked(std::move(answer));
  };
  world_.schedule.after(patience_, [end] { end(std::nullopt); });
  const auto arrives = [this, path = path_, life = node_.life()] {
    return path == path_ && node_.running() && life == node_.life();
  };
  world_.schedule.after(way(), [this, name, request, what = std::move(what), end, arrives] {
    if (!arrives())
      return world_.schedule.idle();
    requests_.asked(request, name);
    world_.trace("request arrives");
    node_.serve<T>(what, [this, end, arrives](result<T> answer) {
      world_.schedule.after(way(), [this, end, arrives, answer = std::move(answer)] {
        if (!arrives())
          return world_.schedule.idle();
        end(answer);
      });
    });
  });
}

} // namespace troupe::simulation
