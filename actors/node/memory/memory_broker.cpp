#include "actors/node/memory/memory_broker.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>

namespace troupe {

namespace {

memory_broker_options with_extents(memory_broker_options options, const io::extent_source& extents) {
  options.extent_bytes = extents.info().extent_bytes;
  return options;
}

} // namespace

memory_broker::memory_broker(caf::actor_config& config, std::shared_ptr<io::extent_source> extents,
                             const memory_broker_options& options, duration patience)
    : memory_broker_actor::base(config), extents_(std::move(extents)), patience_(patience),
      state_(with_extents(options, *extents_)) {
  set_down_handler([this](caf::down_msg& down) {
    const auto gone = std::ranges::find_if(workers_, [&](const auto& x) { return x.second.address() == down.source; });
    if (gone != workers_.end())
      forget(gone->first);
    flush();
  });
}

memory_broker::behavior_type memory_broker::make_behavior() {
  return {
      [this](const memory_holder& x) -> caf::result<void> {
        auto& number = numbers_[{x.ns, x.rank}];
        if (number != 0) // its earlier worker has ended, but the notification has not arrived yet
          forget(std::exchange(number, 0));
        numbers_[{x.ns, x.rank}] = ++last_;
        workers_.emplace(last_, x.worker);
        state_.add(last_);
        monitor(x.worker);
        flush();
        return caf::unit;
      },
      [this](const memory_report& x) -> caf::result<void> {
        const auto known = numbers_.find({x.ns, x.rank});
        if (known == numbers_.end())
          return to_caf(error{errc::not_found, "this rank is not registered with the memory broker"});
        const auto at = now();
        const bool any = x.oldest > duration::zero();
        state_.notified(known->second,
                        {x.wants, x.extents, x.free_bytes, any ? std::optional(later(at, -x.oldest)) : std::nullopt},
                        at);
        flush();
        return caf::unit;
      },
  };
}

void memory_broker::forget(holder x) {
  demonitor(workers_.at(x).address());
  workers_.erase(x);
  std::erase_if(numbers_, [&](const auto& y) { return y.second == x; });
  state_.remove(x, now());
}

void memory_broker::flush() {
  // No call in these loops calls back at once: the effects of one message may be answered by the next.
  for (const auto& x : state_.take_orders())
    ask_back(x);
  for (const auto& x : state_.take_assignments())
    assign(x);
  for (const auto number : state_.take_returns())
    extents_->take_back(number);
}

void memory_broker::ask_back(const memory_broker_state::order& x) {
  request(workers_.at(x.from), caf::infinite, give_back_atom_v, x.must, patience_)
      .then(
          [this, from = x.from](std::uint32_t number) {
            log::get("memory")->debug("extent given back: {}", number);
            state_.given_back(from, number, now());
            flush();
          },
          [this, from = x.from](const caf::error&) {
            state_.refused(from, now());
            flush();
          });
}

void memory_broker::assign(const memory_broker_state::assignment& x) {
  const auto notified = [this, x](bool taken) {
    state_.accepted(x, taken, now());
    flush();
  };
  const auto worker = workers_.find(x.to);
  if (worker == workers_.end())
    return notified(false);
  request(worker->second, caf::infinite, lend_atom_v, x.extent)
      .then([notified](bool taken) { notified(taken); }, [notified](const caf::error&) { notified(false); });
}

void memory_broker::on_exit() {
  workers_.clear();
  numbers_.clear();
}

} // namespace troupe
