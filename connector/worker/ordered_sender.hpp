#pragma once

#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::connector {

/// Sends what rules want sent, where several threads drive the rules under one lock: outside of the lock, because the
/// answer may come in the thread that sends and wants the lock, and still in the order in which the rules decided. An
/// order to give up a task must not overtake the order to begin it: it would find nothing to give up.
///
/// So one thread sends at a time, whatever the others leave meanwhile included.
template <class Effect>
class ordered_sender {
public:
  /// `guard` holds the lock under which the effects were decided. It is let go for each `send(effect)` and held again
  /// on return. Returns at once where a thread is sending, this one itself included: the effects go with its own then.
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
