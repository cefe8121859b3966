#include "io/usrbio/usrbio_engine.hpp"

#include "base/log.hpp"
#include "io/usrbio/known_file.hpp"
#include "io/usrbio/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sys/prctl.h>
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

/// The loop on the rings of one daemon after the other.
///
/// Every row of the table waits here or runs. A running row is unsent or in progress. In progress it belongs to one
/// session, and ends by a result that names it in a ring of that session, or when that session has ended. Until then
/// the daemon may use its memory and its place in the file: a cancellation only changes the answer.
///
/// A session has ended when its daemon is lost and its quarantine has passed. Its rings are polled meanwhile, since a
/// daemon that was cut off from its mount may still answer.
class usrbio_engine::loop final : public engine_loop {
public:
  loop(usrbio_engine& engine, std::unique_ptr<session> first)
      : engine_loop(engine), engine_(engine), files_(engine.options_.max_files), buffers_(engine.options_.max_buffers),
        current_(std::move(first)) {}

  void run() {
    while (begin_round()) {
      follow_daemon();
      expire();
      start_waiting();
      sleep();
      awake();
      reap();
    }
  }

private:
  // -- callers --

  result<void> register_file(std::uint32_t file, int descriptor) override {
    auto made = usrbio::known_file::add(engine_.mount_, descriptor);
    if (!made)
      return tl::unexpected(std::move(made.error()));
    files_[file] = std::move(*made);
    return {};
  }

  void forget_file(std::uint32_t file) override { files_[file].reset(); }

  result<void> register_buffer(std::uint32_t buffer, std::span<std::byte> bytes) override {
    auto& made = buffers_[buffer];
    made.mapping = usrbio::shared_mapping_of(bytes);
    // Without a daemon the file is registered when the next one appears.
    auto notified = current_ ? tell(made, *current_) : result<void>{};
    if (!notified) {
      made = {};
      engine_.mount_->look();
    }
    return notified;
  }

  void forget_buffer(std::uint32_t buffer) override { buffers_[buffer] = {}; }

  // -- requests --

  bool is_under_way(index i) const noexcept { return i < flights_.size() && flights_[i].of != nullptr; }

  // The daemon is not trusted to find ranges outside its memory: it checks only the first of several. That is why only
  // accepted requests reach it.
  queue_name queue_of(const request& what) const override {
    return what.op == operation::read ? queue_name::concurrent : queue_name::serial;
  }

  // A transfer in progress cannot be cancelled.
  void cancel_transfer(index i) override {
    if (!is_under_way(i))
      finish(i, table_.at(i).abandoned, 0);
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
    if (r.what.op == operation::trim) { // the client library has no such call
      finish(i, errc::io_error, EOPNOTSUPP);
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
    if (current_ || there == 0 || rules_.is_stopping())
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
    if (retired_.empty() && !rules_.is_stopping())
      return;
    const auto now = clock::now();
    if (rules_.is_stopping() && stop_over_ == timestamp::max())
      stop_over_ = later(now, engine_.options_.usrbio.quarantine);
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
      return unmatched("3FS's daemon answered", handle, x.result);
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
    const auto which = static_cast<std::size_t>(r->what.op);
    if (advance(i, outcome))
      unsent_[which].push_back(handle);
  }

  void sleep() {
    if (!rules_.done().empty())
      return;
    auto until = table_.next_deadline().value_or(timestamp::max());
    const auto now = clock::now();
    const bool unsent = !unsent_[0].empty() || !unsent_[1].empty();
    if (unsent || !retired_.empty() || (current_ && current_->under_way > 0))
      until = std::min(until, later(now, pause_));
    if (!current_ && engine_.mount_->session() != 0)
      until = std::min(until, next_try_);
    if (rules_.is_stopping())
      until = std::min(until, std::max(stop_over_, later(now, shortest_pause)));
    std::unique_lock held(engine_.mutex_);
    if (until == timestamp::max())
      engine_.wakes_.wait(held, [this] { return engine_.woken_; });
    else
      engine_.wakes_.wait_until(held, until, [this] { return engine_.woken_; });
    engine_.woken_ = false;
  }

  usrbio_engine& engine_;
  std::vector<std::unique_ptr<usrbio::known_file>> files_;
  std::vector<known_buffer> buffers_;
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
  timestamp stop_over_ = timestamp::max();
};

usrbio_engine::usrbio_engine(const engine_options& options, completion_sink sink, std::shared_ptr<usrbio::mount> at)
    : queued_engine(options, std::move(sink)), mount_(std::move(at)) {}

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
  auto started = made->start_with([owned = std::move(running)]() mutable {
    ::prctl(PR_SET_TIMERSLACK, 5000UL, 0UL, 0UL, 0UL);
    owned->run();
    owned.reset(); // here, since the destructor deregisters with the library
  });
  if (!started)
    return tl::unexpected(std::move(started.error()));
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
  wakes_.notify_one();
}

std::string usrbio_engine::describe() const {
  return "USRBIO of 3FS on " + mount_->place() + ", depth " + std::to_string(options_.depth);
}

} // namespace troupe::io
