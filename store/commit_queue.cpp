#include "store/commit_queue.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace troupe::store {

commit_queue::commit_queue(const commit_queue_options& options, group_writer& writer)
    : options_(options), writer_(writer) {}

result<std::unique_ptr<commit_queue>> commit_queue::start(const commit_queue_options& options, group_writer& writer) {
  std::unique_ptr<commit_queue> made(new commit_queue(options, writer));
  try {
    made->thread_ = std::thread(named(thread_name("troupe-store"), [self = made.get()] { self->run(); }));
  } catch (const std::system_error& e) {
    return tl::unexpected(no_thread("the thread of the metadata store", e.code().value()));
  }
  return made;
}

commit_queue::~commit_queue() {
  (void)close();
}

std::optional<error> commit_queue::reason_to_refuse(std::size_t bytes) const {
  if (stats_.failure)
    return stats_.failure;
  if (closing_)
    return error{errc::shutting_down, "the metadata store is closed"};
  if (stats_.queued_batches >= options_.max_batches ||
      (stats_.queued_batches > 0 && stats_.queued_bytes + bytes > options_.max_bytes))
    return error{errc::limit_exceeded, std::to_string(stats_.queued_batches) + " batches with " +
                                           std::to_string(stats_.queued_bytes) +
                                           " bytes wait for the metadata store; commit again when one is answered"};
  return std::nullopt;
}

result<void> commit_queue::commit(write_batch&& batch, commit_callback done) {
  {
    const std::lock_guard guard(mutex_);
    if (auto reason = reason_to_refuse(batch.bytes())) {
      ++stats_.refused;
      return tl::unexpected(std::move(*reason));
    }
    ++stats_.batches;
    ++stats_.queued_batches;
    stats_.queued_bytes += batch.bytes();
    waiting_.push_back({std::exchange(batch, {}), std::move(done)});
  }
  work_.notify_one();
  return {};
}

result<void> commit_queue::close() {
  const std::lock_guard only_one(close_mutex_);
  {
    const std::lock_guard guard(mutex_);
    closing_ = true;
  }
  work_.notify_one();
  if (thread_.joinable())
    thread_.join();
  const std::lock_guard guard(mutex_);
  if (stats_.failure)
    return tl::unexpected(*stats_.failure);
  return {};
}

store_stats commit_queue::stats() const {
  const std::lock_guard guard(mutex_);
  return stats_;
}

void commit_queue::run() {
  lock held(mutex_);
  for (;;) {
    wait_for_work(held);
    if (waiting_.empty() && closing_ && (!sync_at_ || stats_.failure))
      return;
    take_group();
    settle(held, stats_.failure ? result<void>(tl::unexpected(*stats_.failure)) : carry_out_when_there_is_room(held));
  }
}

result<void> commit_queue::carry_out_when_there_is_room(lock& held) {
  held.unlock();
  auto outcome = carry_out();
  held.lock();
  for (auto pause = options_.first_pause; !outcome && outcome.error().code == errc::no_space;
       pause = std::min(2 * pause, options_.longest_pause)) {
    if (!stats_.no_room)
      log::get("store")->error("write to the metadata store failed: {}; writes wait until there is room",
                               outcome.error().text);
    stats_.no_room = outcome.error();
    if (work_.wait_for(held, pause, [&] { return closing_; }))
      return outcome;
    held.unlock();
    outcome = writer_.recover();
    if (outcome)
      outcome = carry_out();
    held.lock();
  }
  if (outcome && std::exchange(stats_.no_room, std::nullopt))
    log::get("store")->info("metadata store resumed: there is room on its disk again");
  return outcome;
}

void commit_queue::wait_for_work(lock& held) {
  const auto ready = [&] { return !waiting_.empty() || closing_; };
  if (sync_at_ && !stats_.failure)
    work_.wait_until(held, *sync_at_, ready);
  else
    work_.wait(held, ready);
}

void commit_queue::take_group() {
  std::size_t bytes = 0;
  while (!waiting_.empty() && bytes < options_.max_group_bytes) {
    auto& next = waiting_.front();
    bytes += next.batch.bytes();
    group_.push_back(std::move(next.batch));
    answers_.push_back(std::move(next.done));
    waiting_.pop_front();
  }
}

bool commit_queue::sync_is_due() const {
  if (!sync_at_)
    return false;
  // The group is empty: the wait ended by its time limit, or by the end of the queue.
  return group_.empty() || options_.level == durability::strict || clock::now() >= *sync_at_ ||
         std::ranges::any_of(group_, &write_batch::must_sync);
}

result<void> commit_queue::carry_out() {
  if (std::ranges::any_of(group_, [](const auto& batch) { return !batch.empty(); })) {
    if (auto written = writer_.write(group_); !written)
      return written;
    if (!sync_at_)
      sync_at_ = clock::now() + options_.sync_interval;
  }
  return sync_is_due() ? sync() : result<void>{};
}

result<void> commit_queue::sync() {
  const auto begin = clock::now();
  auto synced = writer_.sync();
  const duration took = clock::now() - begin;
  if (!synced)
    return synced;
  sync_at_.reset();
  const std::lock_guard guard(mutex_);
  ++stats_.syncs;
  stats_.last_sync = took;
  stats_.longest_sync = std::max(stats_.longest_sync, took);
  stats_.all_syncs += took;
  return {};
}

void commit_queue::settle(lock& held, const result<void>& outcome) {
  if (!outcome && !stats_.failure) {
    const auto& why = outcome.error();
    stats_.failure = error{why.code, why.text + "; the metadata store accepts no more writes until it is opened anew"};
    log::get("store")->error("{}", stats_.failure->text);
  }
  // Capacity is released before the answer, so that a callback may commit the next batch.
  stats_.queued_batches -= group_.size();
  for (const auto& batch : group_) {
    stats_.queued_bytes -= batch.bytes();
    if (outcome) {
      stats_.records += batch.records();
      stats_.bytes += batch.bytes();
    }
  }
  if (outcome && !group_.empty())
    ++stats_.groups;
  const auto answer = stats_.failure ? result<void>(tl::unexpected(*stats_.failure)) : result<void>{};
  held.unlock();
  for (const auto& done : answers_)
    done(answer);
  group_.clear();
  answers_.clear();
  held.lock();
}

} // namespace troupe::store
