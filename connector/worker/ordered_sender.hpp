#pragma once

#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::connector {

/// Sends the effects of rules that several threads drive under one lock. It sends outside of the lock, because the
/// answer may arrive in the sending thread and need the lock, and still in the order of the decisions: a cancellation
/// must not overtake the order that begins its task, because it would find no task.
///
/// So one thread sends at a time, including the effects that others add meanwhile.
template <class Effect>
class ordered_sender {
public:
  /// `guard` holds the lock under which the effects were decided. It is released for each `send(effect)` and held again
  /// on return. Returns at once where a thread is sending, including this one: that call then sends the effects.
  template <class Send>
  void send(std::unique_lock<std::mutex>& guard, std::vector<Effect> effects, Send send) {
    waiting_.insert(waiting_.end(), std::make_move_iterator(effects.begin()), std::make_move_iterator(effects.end()));
    if (sending_)
      return;
    sending_ = true;
    while (!waiting_.empty()) {
      auto next = std::exchange(waiting_, {});
      guard.unlock();
      for (auto& x : next)
        send(x);
      guard.lock();
    }
    sending_ = false;
  }

private:
  std::vector<Effect> waiting_;
  bool sending_ = false;
};

} // namespace troupe::connector
