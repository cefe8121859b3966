#include "io/claims/claim_keeper.hpp"

#include "base/threads.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace troupe::io {

namespace {

/// A stopped process resumes with the rest of its wait, however late it is by then. Therefore no wait is long.
constexpr duration longest_nap = std::chrono::milliseconds(100);

bool is_settled(const claim_status& x) {
  return x.state != claim_state::watching && x.state != claim_state::waiting;
}

} // namespace

claim_keeper::claim_keeper(std::unique_ptr<claim_files> files, const claim_options& options,
                           std::shared_ptr<write_gate> gate)
    : files_(std::move(files)), is_owner_(options.kind == claim_kind::owner), gate_(std::move(gate)),
      rules_(options, boot_time()) {}

result<std::unique_ptr<claim_keeper>> claim_keeper::begin(std::unique_ptr<claim_files> files,
                                                          const claim_options& options,
                                                          std::shared_ptr<write_gate> gate) {
  std::unique_ptr<claim_keeper> out(new claim_keeper(std::move(files), options, std::move(gate)));
  try {
    out->thread_ = std::thread(named(thread_name("troupe-claim"), [self = out.get()] { self->run(); }));
  } catch (const std::system_error& e) {
    return tl::unexpected(no_thread("the thread that keeps a claim", e.code().value()));
  }
  return out;
}

claim_keeper::~claim_keeper() {
  end_thread();
}

void claim_keeper::abandon() {
  {
    const std::lock_guard guard(mutex_);
    gives_back_ = false;
  }
  end_thread();
}

void claim_keeper::end_thread() {
  {
    const std::lock_guard guard(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

void claim_keeper::run() {
  for (;;) {
    const auto what = rules_.next();
    {
      std::unique_lock guard(mutex_);
      const auto left = what.what == claim_step::kind::end ? longest_nap : duration(what.at - boot_time());
      if (left > duration::zero())
        changed_.wait_for(guard, std::min(left, longest_nap), [this] { return is_ending_; });
      if (is_ending_)
        break;
    }
    if (what.what == claim_step::kind::end || boot_time() < what.at)
      continue;
    carry_out(what);
    publish();
  }
  const auto last = gives_back_ ? rules_.release() : std::nullopt;
  // The gate closes before another node may write.
  gate_->shut();
  if (last)
    static_cast<void>(files_->write(last->number, last->record)); // otherwise others wait for the lease to run out
}

void claim_keeper::carry_out(const claim_step& what) {
  const auto begun = boot_time();
  switch (what.what) {
  case claim_step::kind::look: {
    const auto found = files_->look();
    return rules_.looked(begun, boot_time(), found);
  }
  case claim_step::kind::make: {
    const auto outcome = files_->make(what.number, what.record);
    return rules_.made(begun, boot_time(), outcome);
  }
  case claim_step::kind::write: {
    const auto outcome = files_->write(what.number, what.record);
    return rules_.written(begun, boot_time(), outcome);
  }
  case claim_step::kind::remove_below:
    static_cast<void>(files_->remove_below(what.number)); // a claim that remains is harmless
    return rules_.removed(begun, boot_time());
  case claim_step::kind::end:
    return;
  }
}

void claim_keeper::publish() {
  const auto state = rules_.state();
  was_held_ = was_held_ || state == claim_state::holding;
  if (is_owner_ && state == claim_state::holding)
    gate_->open_until(rules_.valid_until());
  if (state == claim_state::lost || state == claim_state::refused)
    gate_->shut();
  std::function<void(const claim_status&)> lost;
  claim_status now{state, rules_.number(), rules_.in_force(), rules_.other(),
                   rules_.trouble() ? rules_.trouble()->text : std::string()};
  {
    const std::lock_guard guard(mutex_);
    status_ = now;
    if (was_held_ && state == claim_state::lost)
      lost = std::exchange(lost_, {});
  }
  changed_.notify_all();
  if (lost)
    lost(now);
}

void claim_keeper::on_lost(std::function<void(const claim_status&)> what) {
  claim_status now;
  {
    const std::lock_guard guard(mutex_);
    now = status_;
    if (now.state != claim_state::lost) {
      lost_ = std::move(what);
      return;
    }
  }
  what(now);
}

claim_status claim_keeper::status() const {
  const std::lock_guard guard(mutex_);
  return status_;
}

claim_status claim_keeper::wait(const std::function<bool(const claim_status&)>& go_on) const {
  std::unique_lock guard(mutex_);
  while (!is_settled(status_)) {
    const auto known = status_;
    guard.unlock();
    const bool goes_on = go_on(known);
    guard.lock();
    if (!goes_on)
      break;
    changed_.wait_for(guard, longest_nap, [this] { return is_settled(status_); });
  }
  return status_;
}

std::string describe(const claim_status& x) {
  return (x.other ? "node '" + x.other->holder + "'" : std::string("an unnamed node")) + " (claim " +
         std::to_string(x.in_force) + ")";
}

} // namespace troupe::io
