#include "io/usrbio/usrbio_engine.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"
#include "io/engine/engine_resources.hpp"
#include "io/engine/operation_table.hpp"
#include "io/usrbio/known_file.hpp"
#include "io/usrbio/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <pthread.h>
#include <sys/prctl.h>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace troupe::io {

namespace {

using clock = std::chrono::steady_clock;
using usrbio::flight;
using usrbio::known_buffer;
using usrbio::session;
using usrbio::transfer_ring;

// The pause between polls of the rings while transfers are in progress, from the shortest after an event to the
// longest. Short compared to the transfer of a page, long compared to the cost of a poll.
constexpr auto shortest_pause = std::chrono::microseconds(20);
constexpr auto longest_pause = std::chrono::microseconds(500);
// The pause while the daemon is lost and its transfers are waited out.
constexpr auto quarantine_pause = std::chrono::milliseconds(20);
// The pause between attempts to get rings from a daemon that refuses them.
constexpr auto first_retry = std::chrono::milliseconds(100);
constexpr auto last_retry = std::chrono::seconds(10);

constexpr std::size_t batch = 64;

} // namespace

/// The loop of the engine's thread and its state; `commands_`, `woken_` and `ended_` are shared with callers.
///
/// Every row of the table waits here or runs. A running row is unsent or in progress. In progress it belongs to one
/// session, and ends by a result that names it in a ring of that session, or when that session has ended. Until then
/// the daemon may use its memory and its place in the file: a cancellation only changes the answer.
///
/// A session has ended when its daemon is lost and its quarantine has passed. Its rings are polled meanwhile, since a
/// daemon that was cut off from its mount may still answer.
class usrbio_engine::loop {
public:
  loop(usrbio_engine& engine, std::unique_ptr<session> first)
      : engine_(engine), resources_(engine.options_.max_files, engine.options_.max_buffers),
        files_(engine.options_.max_files), buffers_(engine.options_.max_buffers), current_(std::move(first)) {}

  void run() {
    for (;;) {
      deliver();
      if (!take_commands())
        return;
      obey();
      follow_daemon();
      expire();
      start_waiting();
      sleep();
      reap();
    }
  }

  result<std::uint32_t> add_file(int descriptor) {
    if (stopping_)
      return fail(errc::shutting_down, "the io engine has been stopped");
    auto id = resources_.add_file(descriptor);
    if (!id)
      return id;
    auto made = usrbio::known_file::add(engine_.mount_, descriptor);
    if (!made) {
      resources_.remove_file(*id);
      return tl::unexpected(std::move(made.error()));
    }
    files_[*id] = std::move(*made);
    return id;
  }

  void remove_file(std::uint32_t file) {
    if (resources_.descriptor(file) < 0)
      return;
    files_[file].reset();
    resources_.remove_file(file);
  }

  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) {
    if (stopping_)
      return fail(errc::shutting_down, "the io engine has been stopped");
    auto id = resources_.add_buffer(bytes);
    if (!id)
      return id;
    auto& made = buffers_[*id];
    made.mapping = usrbio::shared_mapping_of(bytes);
    // Without a daemon the file is registered when the next one appears.
    auto notified = current_ ? tell(made, *current_) : result<void>{};
    if (!notified) {
      made = {};
      resources_.remove_buffer(*id);
      engine_.mount_->look();
      return tl::unexpected(std::move(notified.error()));
    }
    return id;
  }

  void remove_buffer(std::uint32_t buffer) {
    if (resources_.buffer(buffer).empty())
      return;
    buffers_[buffer] = {};
    resources_.remove_buffer(buffer);
  }

private:
  using index = operation_table::index;
  using queue_name = operation_table::queue_name;

  // -- callers --

  bool take_commands() {
    taken_.requests.clear();
    taken_.cancelled_tags.clear();
    taken_.calls.clear();
    std::lock_guard guard(engine_.mutex_);
    std::swap(taken_.requests, engine_.commands_.requests);
    std::swap(taken_.cancelled_tags, engine_.commands_.cancelled_tags);
    std::swap(taken_.calls, engine_.commands_.calls);
    taken_.stop = engine_.commands_.stop;
    engine_.woken_ = false;
    // Decided under the lock under which commands are queued: none comes after the last round.
    const bool idle = taken_.requests.empty() && taken_.calls.empty() && table_.empty() && done_.empty();
    engine_.ended_ = taken_.stop && idle;
    return !engine_.ended_;
  }

  void obey() {
    for (const auto& call : taken_.calls)
      call(*this);
    for (const auto& what : taken_.requests)
      accept(what);
    if (!taken_.cancelled_tags.empty())
      cancel_tags();
    if (taken_.stop && !stopping_) {
      stopping_ = true;
      stop_over_ = later(clock::now(), engine_.options_.usrbio.quarantine);
      table_.for_each([this](index i, const operation_table::row&) { abandon(i, errc::shutting_down); });
    }
  }

  void accept(const request& what) {
    // The daemon is not trusted to find ranges outside its memory: it checks only the first of several.
    const auto code = stopping_ ? errc::shutting_down : resources_.check(what);
    if (code == errc::ok)
      table_.add(what, what.op == operation::read ? queue_name::concurrent : queue_name::serial);
    else
      done_.push_back({what.tag, code, 0});
  }

  void cancel_tags() {
    const std::unordered_set<std::uint64_t> tags(taken_.cancelled_tags.begin(), taken_.cancelled_tags.end());
    table_.for_each([&](index i, const operation_table::row& r) {
      if (tags.contains(r.what.tag))
        abandon(i, errc::cancelled);
    });
  }

  // -- requests --

  bool is_under_way(index i) const noexcept { return i < flights_.size() && flights_[i].of != nullptr; }

  void abandon(index i, errc why) {
    auto& r = table_.at(i);
    if (r.state == operation_table::state::waiting || !is_under_way(i))
      return finish(i, why, 0);
    if (r.abandoned == errc::ok)
      r.abandoned = why;
  }

  void expire() {
    if (!table_.next_deadline())
      return;
    const auto now = clock::now();
    for (auto i = table_.take_expired(now); i != operation_table::none; i = table_.take_expired(now))
      abandon(i, errc::timeout);
  }

  void finish(index i, errc status, int system_errno) {
    done_.push_back({table_.at(i).what.tag, status, system_errno});
    table_.remove(i);
  }

  void start_waiting() {
    bool sent = false;
    for (const auto direction : {operation::read, operation::write}) {
      const auto which = static_cast<std::size_t>(direction);
      const auto queue = direction == operation::read ? queue_name::concurrent : queue_name::serial;
      auto& again = unsent_[which];
      bool room = true;
      while (room && !again.empty()) {
        const auto handle = again.back();
        const bool abandoned = table_.find_running(handle) == nullptr;
        room = abandoned || send(operation_table::index_of(handle));
        if (room)
          again.pop_back();
      }
      while (room && table_.waiting(queue) > 0 && (!current_ || sent_[which] < engine_.options_.depth)) {
        const auto i = table_.start_next(queue);
        if (flights_.size() <= i)
          flights_.resize(i + 1);
        flights_[i] = {};
        if (!(room = send(i)))
          again.push_back(table_.handle_of(i));
      }
      if (current_ && std::exchange(prepared_[which], false)) {
        current_->ring(direction).submit();
        sent = true;
      }
    }
    if (sent)
      pause_ = shortest_pause;
  }

  // Returns false if there is no room in the ring or for a copy. Otherwise the row is in progress, or has ended.
  bool send(index i) {
    auto& r = table_.at(i);
    auto& f = flights_[i];
    if (!current_ || !is_allowed(engine_.options_.gate, r.what.op)) {
      finish(i, errc::io_error, current_ ? ESTALE : ENOTCONN);
      return true;
    }
    const auto& buffer = buffers_[r.what.buffer];
    auto* data = r.what.data + r.done;
    auto length = std::min(r.what.length - r.done, largest_transfer);
    const usrbio::iov* memory = nullptr;
    if (buffer.mapping) {
      if (!buffer.region) {
        finish(i, errc::io_error, ENOTCONN);
        return true;
      }
      memory = &buffer.region->memory();
      if (const auto block = memory->block_size; block != 0)
        length = std::min(length, block - static_cast<std::uint64_t>(data - buffer.mapping->base) % block);
    } else {
      f.copy = current_->take_copy();
      if (!f.copy)
        return false;
      length = std::min(length, session::copy_bytes);
      if (r.what.op == operation::write)
        std::memcpy(current_->copy(*f.copy), data, length);
      memory = &current_->copies();
      data = current_->copy(*f.copy);
    }
    const auto code = current_->ring(r.what.op).prepare(*memory, data, length, files_[r.what.file]->descriptor(),
                                                        r.what.file_offset + r.done, table_.handle_of(i));
    if (code < 0) {
      f.give_copy_back(*current_);
      if (code == -EAGAIN)
        return false;
      finish(i, status_of(-code), -code);
      return true;
    }
    f.of = current_.get();
    f.length = length;
    ++current_->under_way;
    ++sent_[static_cast<std::size_t>(r.what.op)];
    prepared_[static_cast<std::size_t>(r.what.op)] = true;
    return true;
  }

  // -- the daemon --

  void follow_daemon() {
    const auto there = engine_.mount_->session();
    if (current_ && current_->number() != there)
      retire();
    release();
    if (current_ || there == 0 || stopping_)
      return;
    const auto now = clock::now();
    if (now < next_try_)
      return;
    if (const auto opened = open_session(there); !opened) {
      log::get("io")->warn("{}: {}; retrying in {} ms", engine_.options_.name.text(), opened.error().text,
                           std::chrono::duration_cast<std::chrono::milliseconds>(retry_).count());
      next_try_ = now + retry_;
      retry_ = std::min<duration>(retry_ * 2, last_retry);
      engine_.mount_->look();
      return;
    }
    retry_ = first_retry;
    log::get("io")->info("{}: USRBIO transfers resumed", engine_.options_.name.text());
  }

  result<void> open_session(usrbio::session_number number) {
    auto opened = session::open(engine_.mount_, number, engine_.options_.depth);
    if (!opened)
      return tl::unexpected(std::move(opened.error()));
    if (auto done = usrbio::renew_all(files_, engine_.options_.name.text()); !done)
      return done;
    for (std::uint32_t id = 0; id < buffers_.size(); ++id)
      if (!resources_.buffer(id).empty())
        if (auto notified = tell(buffers_[id], **opened); !notified)
          return notified;
    current_ = std::move(*opened);
    sent_ = {};
    return {};
  }

  result<void> tell(known_buffer& buffer, session& of) {
    buffer.region.reset();
    if (!buffer.mapping)
      return of.make_copies();
    auto region = engine_.mount_->share(*buffer.mapping, engine_.options_.usrbio.block_bytes, of.number());
    if (!region)
      return tl::unexpected(std::move(region.error()));
    buffer.region = std::move(*region);
    return {};
  }

  void retire() {
    reap(); // its answers are valid although it is lost
    log::get("io")->error("{}: 3FS daemon lost with {} transfers in progress", engine_.options_.name.text(),
                          current_->under_way);
    current_->over = later(clock::now(), engine_.options_.usrbio.quarantine);
    retired_.push_back(std::move(current_));
    for (auto& buffer : buffers_)
      buffer.region.reset();
    prepared_ = {};
  }

  void release() {
    if (retired_.empty() && stop_over_ == timestamp::max())
      return;
    const auto now = clock::now();
    for (auto& x : retired_)
      if (x->under_way > 0 && now >= std::min(x->over, stop_over_))
        abandon(*x);
    std::erase_if(retired_, [](const auto& x) { return x->under_way == 0; });
    if (current_ && now >= stop_over_ && current_->under_way > 0)
      abandon(*current_);
  }

  void abandon(session& of) {
    log::get("io")->error("{}: {} transfers failed: the 3FS daemon never answered them", engine_.options_.name.text(),
                          of.under_way);
    table_.for_each([&](index i, const operation_table::row& r) {
      if (!is_under_way(i) || flights_[i].of != &of)
        return;
      flights_[i] = {};
      finish(i, r.abandoned == errc::ok ? errc::io_error : r.abandoned, r.abandoned == errc::ok ? ENOTCONN : 0);
    });
    of.under_way = 0;
  }

  void reap() {
    bool any = false;
    for (auto& x : retired_)
      any = (x->under_way > 0 && reap(*x)) || any;
    if (current_ && current_->under_way > 0)
      any = reap(*current_) || any;
    pause_ = any ? shortest_pause : std::min<duration>(pause_ * 2, current_ ? longest_pause : quarantine_pause);
  }

  bool reap(session& of) {
    bool any = false;
    for (const auto direction : {operation::read, operation::write}) {
      std::array<usrbio::cqe, batch> room{};
      for (;;) {
        const auto got = of.ring(direction).reap(room);
        for (const auto& x : got)
          take(of, x);
        any = any || !got.empty();
        if (got.size() < room.size())
          break;
      }
    }
    return any;
  }

  void take(session& of, const usrbio::cqe& x) {
    const auto handle = transfer_ring::handle_of(x);
    auto* const r = table_.find_running(handle);
    const auto i = operation_table::index_of(handle);
    if (r == nullptr || flights_[i].of != &of)
      return unmatched(handle, x.result);
    auto& f = flights_[i];
    // A result above the requested length is invalid.
    const auto outcome = x.result > static_cast<std::int64_t>(f.length) ? -EIO : x.result;
    if (f.copy && r->what.op == operation::read && outcome > 0)
      std::memcpy(r->what.data + r->done, of.copy(*f.copy), static_cast<std::size_t>(outcome));
    f.give_copy_back(of);
    f.of = nullptr;
    --of.under_way;
    if (current_.get() == &of)
      --sent_[static_cast<std::size_t>(r->what.op)];
    if (outcome < 0)
      engine_.mount_->look();
    const auto judged = judge_transfer(r->what, outcome, r->done, r->fruitless);
    if (!judged.again)
      return finish(i, final_status(judged.status, r->abandoned), judged.system_errno);
    if (r->abandoned != errc::ok)
      return finish(i, r->abandoned, 0);
    engine_.continued_.fetch_add(1, std::memory_order_relaxed);
    unsent_[static_cast<std::size_t>(r->what.op)].push_back(handle);
  }

  void unmatched(std::uint64_t handle, std::int64_t outcome) {
    const auto count = engine_.unmatched_.fetch_add(1, std::memory_order_relaxed) + 1;
    log::get("io")->error("3FS's daemon answered {:#x} with {}, which belongs to no request; {} such so far", handle,
                          outcome, count);
  }

  void sleep() {
    if (!done_.empty())
      return;
    auto until = table_.next_deadline().value_or(timestamp::max());
    const auto now = clock::now();
    const bool unsent = !unsent_[0].empty() || !unsent_[1].empty();
    if (unsent || !retired_.empty() || (current_ && current_->under_way > 0))
      until = std::min(until, later(now, pause_));
    if (!current_ && engine_.mount_->session() != 0)
      until = std::min(until, next_try_);
    if (stopping_)
      until = std::min(until, std::max(stop_over_, later(now, shortest_pause)));
    std::unique_lock held(engine_.mutex_);
    if (until == timestamp::max())
      engine_.left_.wait(held, [this] { return engine_.woken_; });
    else
      engine_.left_.wait_until(held, until, [this] { return engine_.woken_; });
  }

  void deliver() {
    if (done_.empty())
      return;
    engine_.completed_.fetch_add(done_.size(), std::memory_order_relaxed);
    engine_.sink_(done_);
    done_.clear();
  }

  usrbio_engine& engine_;
  engine_resources resources_;
  std::vector<std::unique_ptr<usrbio::known_file>> files_;
  std::vector<known_buffer> buffers_;
  operation_table table_;
  /// Indexed by row.
  std::vector<flight> flights_;
  /// Handles, by direction: running rows that are to be sent again, or sent when there is room.
  std::array<std::vector<std::uint64_t>, 2> unsent_;
  /// By direction: transfers in progress in the session; prepared and not submitted.
  std::array<std::uint32_t, 2> sent_{};
  std::array<bool, 2> prepared_{};
  std::unique_ptr<session> current_;
  std::vector<std::unique_ptr<session>> retired_;
  timestamp next_try_ = timestamp::min();
  duration retry_ = first_retry;
  duration pause_ = shortest_pause;
  commands taken_;
  std::vector<completion> done_;
  bool stopping_ = false;
  timestamp stop_over_ = timestamp::max();
};

usrbio_engine::usrbio_engine(const engine_options& options, completion_sink sink, std::shared_ptr<usrbio::mount> at)
    : options_(options), sink_(std::move(sink)), mount_(std::move(at)) {}

result<std::unique_ptr<engine>> usrbio_engine::start(const engine_options& options, completion_sink sink) {
  auto at = usrbio::mount::open(options.usrbio);
  if (!at)
    return tl::unexpected(std::move(at.error()));
  auto first = session::open(*at, (*at)->session(), options.depth);
  if (!first)
    return tl::unexpected(std::move(first.error()));
  std::unique_ptr<usrbio_engine> made(new usrbio_engine(options, std::move(sink), std::move(*at)));
  // Made before its thread, which then owns it: no call arrives before that runs.
  auto running = std::make_shared<loop>(*made, std::move(*first));
  made->loop_ = running.get();
  try {
    made->thread_ = std::thread(named(options.name, [owned = std::move(running)]() mutable {
      ::prctl(PR_SET_TIMERSLACK, 5000UL, 0UL, 0UL, 0UL);
      owned->run();
      owned.reset(); // here, since the destructor deregisters with the library
    }));
  } catch (const std::system_error& e) {
    made->ended_ = true;
    return tl::unexpected(no_thread("the thread of an io engine", e.code().value()));
  }
  made->engine_thread_ = made->thread_.get_id();
  made->watcher_ = made->mount_->watch([self = made.get()] { self->wake(); });
  return made;
}

usrbio_engine::~usrbio_engine() {
  stop();
  mount_->unwatch(watcher_);
}

void usrbio_engine::wake() {
  std::lock_guard guard(mutex_);
  woken_ = true;
  left_.notify_one();
}

template <class Append>
bool usrbio_engine::leave(Append append) {
  std::lock_guard guard(mutex_);
  if (ended_)
    return false;
  append(commands_);
  if (!std::exchange(woken_, true))
    left_.notify_one();
  return true;
}

bool usrbio_engine::call(const std::function<void(loop&)>& what) {
  // Within the sink this is the engine's thread, which must not wait for itself.
  if (std::this_thread::get_id() == engine_thread_) {
    what(*loop_);
    return true;
  }
  // Shared: the engine's thread may still be inside set_value when the wait has ended.
  const auto promise = std::make_shared<std::promise<void>>();
  auto finished = promise->get_future();
  const bool left = leave([&](commands& c) {
    c.calls.emplace_back([&what, promise](loop& l) {
      what(l);
      promise->set_value();
    });
  });
  if (left)
    finished.wait();
  return left;
}

result<std::uint32_t> usrbio_engine::add_file(int descriptor) {
  result<std::uint32_t> id = fail(errc::shutting_down, "the io engine has been stopped");
  call([&](loop& l) { id = l.add_file(descriptor); });
  return id;
}

void usrbio_engine::remove_file(std::uint32_t file) {
  call([&](loop& l) { l.remove_file(file); });
}

result<std::uint32_t> usrbio_engine::add_buffer(std::span<std::byte> bytes) {
  result<std::uint32_t> id = fail(errc::shutting_down, "the io engine has been stopped");
  call([&](loop& l) { id = l.add_buffer(bytes); });
  return id;
}

void usrbio_engine::remove_buffer(std::uint32_t buffer) {
  call([&](loop& l) { l.remove_buffer(buffer); });
}

void usrbio_engine::submit(std::span<const request> requests) {
  if (requests.empty())
    return;
  submitted_.fetch_add(requests.size(), std::memory_order_relaxed);
  const bool left = leave([&](commands& c) { c.requests.insert(c.requests.end(), requests.begin(), requests.end()); });
  if (left)
    return;
  std::vector<completion> refused;
  for (const auto& what : requests)
    refused.push_back({what.tag, errc::shutting_down, 0});
  completed_.fetch_add(refused.size(), std::memory_order_relaxed);
  sink_(refused);
}

void usrbio_engine::cancel(std::uint64_t tag) {
  leave([&](commands& c) { c.cancelled_tags.push_back(tag); });
}

void usrbio_engine::stop() {
  std::lock_guard guard(stop_mutex_);
  if (!thread_.joinable())
    return;
  leave([](commands& c) { c.stop = true; });
  thread_.join();
}

engine_counters usrbio_engine::counters() const {
  return {submitted_.load(std::memory_order_relaxed), completed_.load(std::memory_order_relaxed),
          continued_.load(std::memory_order_relaxed), unmatched_.load(std::memory_order_relaxed)};
}

std::string usrbio_engine::describe() const {
  return "USRBIO of 3FS on " + mount_->place() + ", depth " + std::to_string(options_.depth);
}

} // namespace troupe::io
