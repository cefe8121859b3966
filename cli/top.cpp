#include "base/threads.hpp"
#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/status_screen.hpp"
#include "cli/terminal.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace troupe::cli {

namespace {

using std::chrono::milliseconds;

/// A node that does not answer within this time counts as unreachable; the request is repeated.
constexpr duration answer_patience = std::chrono::seconds(5);
/// The longest delay before a new answer is drawn.
constexpr milliseconds look_interval{100};

struct polled {
  timestamp at{};
  /// Empty if the answer is a status.
  std::string why;
  nlohmann::json status;
};

polled ask_once(const node_access& node, bool with_history) {
  polled out;
  const auto answer = ask_node(node, "GET", with_history ? "/v1/status" : "/v1/status?history=false", answer_patience);
  out.at = std::chrono::steady_clock::now();
  out.why = answer.why;
  if (answer.code != exit_ok)
    return out;
  out.status = nlohmann::json::parse(answer.reply.body, nullptr, false);
  if (!is_status(out.status))
    out.why = answer.url + " does not answer as a Troupe node does";
  return out;
}

/// Polls the node in a thread of its own, so that keys are handled meanwhile.
class poller {
public:
  poller(node_access node, duration interval)
      : node_(std::move(node)), interval_(interval), thread_(named(thread_name("troupe-top"), [this] { run(); })) {}

  ~poller() {
    {
      const std::lock_guard guard(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  /// The newest answer, returned once.
  std::optional<polled> take() {
    const std::lock_guard guard(mutex_);
    return std::exchange(newest_, std::nullopt);
  }

private:
  void run() {
    bool had_history = false;
    std::unique_lock guard(mutex_);
    while (!ended_) {
      const auto begun = std::chrono::steady_clock::now();
      guard.unlock();
      auto got = ask_once(node_, !had_history);
      had_history = had_history || got.why.empty();
      guard.lock();
      newest_ = std::move(got);
      changed_.wait_until(guard, begun + interval_, [this] { return ended_; });
    }
  }

  const node_access node_;
  const duration interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::optional<polled> newest_;
  std::thread thread_;
};

void show(top_screen& screen, polled x) {
  if (x.why.empty())
    screen.observe(x.status, x.at);
  else
    screen.miss(std::move(x.why));
}

int exit_code_of(const top_screen& screen) {
  if (!screen.is_reached())
    return exit_unreachable;
  return screen.is_healthy() ? exit_ok : exit_degraded;
}

int run_on(terminal& where, const top_options& options) {
  top_screen screen(where.has_blocks(), options.interval);
  poller node(options.node, options.interval);
  for (bool goes_on = true; goes_on;) {
    if (auto got = node.take())
      show(screen, std::move(*got));
    where.draw(screen.lines(where.columns(), where.rows()));
    goes_on = screen.press(where.wait_for_key(look_interval));
  }
  return exit_ok;
}

/// Prints a line for each answer.
int run_plain(const top_options& options) {
  top_screen screen(false);
  auto next = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; options.count == 0 || i < options.count; ++i) {
    std::this_thread::sleep_until(next);
    next += options.interval;
    show(screen, ask_once(options.node, false));
    if (!print(screen.plain_line() + "\n"))
      return exit_unreachable;
  }
  return exit_code_of(screen);
}

} // namespace

int top(const top_options& options) {
  if (!options.plain && options.count == 0)
    if (const auto where = terminal::open())
      return run_on(*where, options);
  if (!options.plain && !terminal::is_built_in())
    std::cerr << "troupe: built without curses (libncurses-dev): a line for each answer instead of a screen\n";
  return run_plain(options);
}

} // namespace troupe::cli
