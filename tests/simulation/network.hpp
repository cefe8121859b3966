#pragma once

#include "base/error.hpp"
#include "tests/simulation/environment.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe::simulation {

/// 0 is the node, clients follow.
using process_number = std::uint32_t;
inline constexpr process_number node_process = 0;
inline constexpr process_number processes_max = 8;

/// What an actor is; with its process and its index it is an address.
enum class role : std::uint8_t { supervisor, shard, allocator, worker, link, lookup, load, save, copier, engine };

struct address {
  process_number process = 0;
  role what = role::supervisor;
  std::uint32_t index = 0;

  constexpr std::uint64_t packed() const noexcept {
    return (std::uint64_t{process} << 24U) | (static_cast<std::uint64_t>(what) << 16U) | index;
  }
  std::string name() const;
};

/// A connection between two processes. 0 stands for "inside of one process".
using connection_id = std::uint64_t;
inline constexpr connection_id local = 0;

/// How messages travel, as CAF's do: in order from one actor to another, with any delay; between processes over a
/// connection, and when that is cut all that is under way in it is lost. Each side gets a notice of that later. A
/// process that ends loses everything; one that is paused (SIGSTOP, a host that swaps) handles everything afterwards.
class network {
public:
  explicit network(environment& world);

  // -- processes ----------------------------------------------------------------------------------------------------

  void start(process_number which);
  /// What is under way to it, and all its timers, are lost. Its connections are cut.
  void kill(process_number which);
  bool up(process_number which) const noexcept { return processes_[which].up; }
  void pause(process_number which, duration how_long);
  bool is_paused(process_number which) const noexcept { return processes_[which].paused_until > world_.now(); }
  /// Everything to and from the process takes `factor` times as long for a while.
  void slow_down(process_number which, std::uint32_t factor, duration how_long);
  /// How long the process has been paused so far, at most.
  duration paused(process_number which) const noexcept { return processes_[which].paused; }

  // -- connections --------------------------------------------------------------------------------------------------

  /// `on_down` is called in each process that lives, some time after a cut. 0 if the node is not there.
  connection_id connect(process_number client, std::function<void()> client_down, std::function<void()> node_down);
  void cut(connection_id which);
  bool open(connection_id which) const noexcept { return connections_.contains(which); }

  // -- messages -----------------------------------------------------------------------------------------------------

  /// `what` must be a literal.
  void send(const address& from, const address& to, connection_id via, std::string_view what,
            std::function<void()> handle);

  /// A timer of a process. `wanted` says when it rings whether anybody is still interested; empty: always.
  void after(process_number where, duration delay, std::function<void()> ring, std::function<bool()> wanted = {});

  /// An answer that is owed.
  template <class T>
  class promise {
  public:
    void deliver(result<T> value) const { send_back_(std::move(value)); }

  private:
    friend class network;
    explicit promise(std::function<void(result<T>)> send_back) : send_back_(std::move(send_back)) {}
    std::function<void(result<T>)> send_back_;
  };

  /// A request and its answer. With a timeout of zero it waits forever. An answer that comes after the timeout finds
  /// nobody.
  template <class T>
  void request(const address& from, const address& to, connection_id via, duration timeout, std::string_view what,
               std::function<void(promise<T>)> serve, std::function<void(result<T>)> on_reply);

  /// Answers that nobody has given: the first one in words, or an empty text.
  std::string unanswered() const;

private:
  struct process {
    bool up = false;
    std::uint32_t incarnation = 0;
    timestamp paused_until = timestamp::min();
    duration paused{};
    timestamp slow_until = timestamp::min();
    std::uint32_t slow_factor = 1;
  };

  struct connection {
    process_number client = 0;
    std::function<void()> client_down;
    std::function<void()> node_down;
  };

  struct debt {
    address by;
    std::string_view what;
  };

  /// Plans `run` for a process: dropped when the process has ended, later when it is paused.
  void plan(process_number where, timestamp when, connection_id via, std::function<void()> run);
  duration delay(const address& from, const address& to);
  bool overtakes(const address& from, const address& to) const noexcept;
  std::uint64_t owe(const address& from, std::string_view what);
  /// False if it was paid before, which is a failure.
  bool pay(std::uint64_t number, const address& from, std::string_view what);

  environment& world_;
  random_source random_;
  std::array<process, processes_max> processes_;
  std::unordered_map<connection_id, connection> connections_;
  /// Per sender and receiver: when the last message arrives.
  std::unordered_map<std::uint64_t, timestamp> last_arrival_;
  std::unordered_map<std::uint64_t, debt> debts_;
  connection_id last_connection_ = 0;
  std::uint64_t last_debt_ = 0;
};

template <class T>
using promise = network::promise<T>;

template <class T>
void network::request(const address& from, const address& to, connection_id via, duration timeout,
                      std::string_view what, std::function<void(promise<T>)> serve,
                      std::function<void(result<T>)> on_reply) {
  const auto waiting = std::make_shared<bool>(true);
  if (timeout > duration::zero())
    after(
        from.process, timeout,
        [waiting, on_reply] {
          *waiting = false;
          on_reply(troupe::fail(errc::timeout, "no answer in time"));
        },
        [waiting] { return *waiting; });
  const auto answer_to = [this, from, to, via, what, waiting, on_reply](std::uint64_t number, result<T> value) {
    if (!pay(number, to, what))
      return;
    send(to, from, via, "answer", [waiting, on_reply, value = std::move(value)]() mutable {
      if (std::exchange(*waiting, false))
        on_reply(std::move(value));
    });
  };
  send(from, to, via, what, [this, to, what, serve = std::move(serve), answer_to] {
    serve(promise<T>([number = owe(to, what), answer_to](result<T> value) { answer_to(number, std::move(value)); }));
  });
}

} // namespace troupe::simulation
