#include "actors/client/handshake/client.hpp"

#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "base/threads.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace troupe::handshake {

namespace {

/// Receives updates about restarted engines.
class restart_watcher : public handshake_watcher_actor::base {
public:
  using listener = std::function<void(const handshake_update&)>;

  restart_watcher(caf::actor_config& config, listener then)
      : handshake_watcher_actor::base(config), then_(std::move(then)) {}

  const char* name() const override { return "restart_watcher"; }

protected:
  behavior_type make_behavior() override {
    return {[this](const handshake_update& x) { then_(x); }};
  }

private:
  listener then_;
};

} // namespace

/// Shared with pending answers. The lock is held for the rules only.
struct client::core : std::enable_shared_from_this<core> {
  core(caf::actor_system& s, directory_opener o, client_options options)
      : system(s), open(std::move(o)), state(std::move(options)) {}

  /// Actions of the rules, executed without the lock.
  struct work {
    bool is_empty() const { return !way && orders.empty() && cancelled.empty() && answers.empty(); }

    handshake_proxy_actor connection;
    std::optional<watch_state::order> way;
    std::vector<client_state::fetch_order> orders;
    std::vector<cancel_function> cancelled;
    std::vector<std::pair<callback, result<resolution>>> answers;
  };

  work take() {
    work out;
    out.connection = connection;
    out.way = state.take_watch_order();
    if (auto before = std::exchange(watch_cancelled, nullptr); out.way && before)
      out.cancelled.push_back(std::move(before));
    else
      watch_cancelled = std::move(before);
    out.orders = state.take_orders();
    for (const auto fetch : state.take_abandoned())
      if (auto node = fetching.extract(fetch); !node.empty())
        out.cancelled.push_back(std::move(node.mapped()));
    for (auto& [who, what] : state.take_answers())
      if (auto node = waiting.extract(who); !node.empty())
        out.answers.emplace_back(std::move(node.mapped()), std::move(what));
    return out;
  }

  /// The work of this thread. If the directory is in this thread, answers arrive during the request and lead to more
  /// work, which is done after the current work instead of recursively: it may be as much as there are waiting
  /// requests.
  struct carrier {
    const core* of = nullptr;
    std::deque<work> todo;
  };
  static thread_local carrier* carrying;

  void carry_out(work x) {
    if (carrying != nullptr && carrying->of == this) {
      carrying->todo.push_back(std::move(x));
      return;
    }
    carrier mine{this, {}};
    // A callback may use another client.
    const auto before = std::exchange(carrying, &mine);
    mine.todo.push_back(std::move(x));
    for (; !mine.todo.empty(); mine.todo.pop_front())
      carry_out_one(mine.todo.front());
    carrying = before;
  }

  void carry_out_one(work& x) {
    if (x.way && x.way->what == watch_state::step::open)
      open_connection(x.way->id);
    else if (x.way)
      watch(x.way->id, x.connection);
    for (auto& order : x.orders) {
      auto cancel = ask_for_long<handshake_fetch_reply>(
          system, x.connection,
          [self = shared_from_this(), fetch = order.fetch](result<handshake_fetch_reply> answer) {
            self->with_state([&](timestamp now) {
              self->fetching.erase(fetch);
              self->state.answered(fetch, std::move(answer), now);
            });
          },
          std::move(order.what));
      const std::lock_guard guard(mutex);
      // It may have been answered or cancelled meanwhile.
      if (state.is_under_way(order.fetch))
        fetching.emplace(order.fetch, std::move(cancel));
      else
        x.cancelled.push_back(std::move(cancel));
    }
    for (const auto& cancel : x.cancelled)
      cancel();
    for (auto& [then, what] : x.answers)
      then(std::move(what));
  }

  template <class F>
  void with_state(F f) {
    work next;
    {
      const std::lock_guard guard(mutex);
      f(std::chrono::steady_clock::now());
      next = take();
      changed.notify_one();
    }
    carry_out(std::move(next));
  }

  void keep_time() {
    std::unique_lock held(mutex);
    while (!is_stopped) {
      if (const auto next = state.next_deadline())
        changed.wait_until(held, *next);
      else
        changed.wait(held);
      if (is_stopped)
        return;
      state.advance(std::chrono::steady_clock::now());
      auto todo = take();
      if (todo.is_empty())
        continue;
      held.unlock();
      carry_out(std::move(todo));
      held.lock();
    }
  }

  void start() {
    const std::weak_ptr<core> weak = shared_from_this();
    watcher = spawn_actor<restart_watcher>(system, [weak](const handshake_update& x) {
      if (const auto self = weak.lock())
        self->hear(x);
    });
    with_state([this](timestamp now) { state.advance(now); });
  }

  void open_connection(number attempt) {
    open([weak = weak_from_this(), attempt](result<handshake_proxy_actor> found) {
      if (const auto self = weak.lock())
        self->opened(attempt, std::move(found));
    });
  }

  void opened(number attempt, result<handshake_proxy_actor> found) {
    const bool is_open = found && *found;
    bool is_used = false;
    with_state([&](timestamp now) {
      is_used = !is_stopped && state.connection_opened(attempt, is_open, now) && is_open;
      if (is_used)
        connection = *found;
    });
    if (!is_used)
      return;
    // Called at once if the connection has ended already.
    caf::actor_cast<caf::actor>(*found)->attach_functor([weak = weak_from_this(), attempt] {
      const auto self = weak.lock();
      if (!self)
        return;
      self->with_state([&](timestamp now) {
        if (self->state.connection_lost(attempt, now))
          self->connection = nullptr;
      });
    });
  }

  void watch(number order, const handshake_proxy_actor& through) {
    auto cancel = ask_for_long<std::uint64_t>(
        system, through,
        [weak = weak_from_this(), order](const result<std::uint64_t>& watch) {
          if (const auto self = weak.lock())
            self->with_state([&](timestamp now) { self->state.watched(order, watch, now); });
        },
        watch_atom_v, std::string(), watcher);
    {
      const std::lock_guard guard(mutex);
      if (!is_stopped) {
        watch_cancelled = std::move(cancel);
        return;
      }
    }
    // The client was destroyed meanwhile.
    cancel();
  }

  void hear(const handshake_update& x) {
    handshake_proxy_actor through;
    with_state([&](timestamp now) {
      for (const auto& change : x.changes)
        state.note(change.engine, change.now.incarnation, is_there(change.now), now);
      through = connection;
    });
    ask<void>(
        system, through,
        [weak = weak_from_this(), watch = x.watch](const result<void>& seen) {
          const auto self = weak.lock();
          if (self && !seen)
            self->with_state([&](timestamp now) { self->state.watch_lost(watch, now); });
        },
        handshake_seen_request{x.watch});
  }

  caf::actor_system& system;
  const directory_opener open;
  handshake_watcher_actor watcher;
  std::mutex mutex;
  /// The open connection; null: none.
  handshake_proxy_actor connection;
  /// Cancels the most recently requested watch.
  cancel_function watch_cancelled;
  std::condition_variable changed;
  client_state state;
  std::unordered_map<number, callback> waiting;
  /// Functions that cancel the fetches in progress.
  std::unordered_map<number, cancel_function> fetching;
  number last = 0;
  bool is_stopped = false;
  std::thread timer;
};

thread_local client::core::carrier* client::core::carrying = nullptr;

client::client(caf::actor_system& system, handshake_proxy_actor connection, client_options options)
    : client(system, open_connection(std::move(connection)), std::move(options)) {}

client::client(caf::actor_system& system, directory_opener open, client_options options)
    : core_(std::make_shared<core>(system, std::move(open), std::move(options))) {
  core_->start();
  core_->timer = std::thread(named(thread_name("troupe-resolve"), [self = core_.get()] { self->keep_time(); }));
}

client::~client() {
  caf::anon_send_exit(core_->watcher, caf::exit_reason::user_shutdown);
  core_->with_state([&](timestamp) {
    core_->is_stopped = true;
    core_->state.stop({errc::shutting_down, "the client of the directory is shutting down"});
    core_->connection = nullptr;
  });
  core_->timer.join();
  cancel_function cancel;
  {
    const std::lock_guard guard(core_->mutex);
    cancel = std::exchange(core_->watch_cancelled, nullptr);
  }
  if (cancel)
    cancel();
}

client::number client::resolve(const resolve_request& x, callback then) {
  number who = 0;
  std::optional<result<resolution>> at_once;
  core_->with_state([&](timestamp now) {
    who = ++core_->last;
    at_once = core_->state.resolve(x, who, now);
    if (!at_once)
      core_->waiting.emplace(who, then);
  });
  if (at_once)
    then(std::move(*at_once));
  return who;
}

std::future<result<resolution>> client::resolve(const resolve_request& x, number* who) {
  const auto promise = std::make_shared<std::promise<result<resolution>>>();
  auto out = promise->get_future();
  const auto number_of_it = resolve(x, [promise](result<resolution> what) { promise->set_value(std::move(what)); });
  if (who != nullptr)
    *who = number_of_it;
  return out;
}

void client::cancel(number who) {
  core_->with_state([&](timestamp now) { core_->state.cancel(who, now); });
}

void client::forget(const std::string& engine) {
  core_->with_state([&](timestamp) { core_->state.forget(engine); });
}

} // namespace troupe::handshake
