#pragma once

#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

/// Helpers that all actors of this project use.

namespace troupe {

/// Spawns a class-based actor. All actors are spawned by this function, so that the rule below is checked for each of
/// them. For a state without a constructor, C++20's initialisation of aggregates from parentheses would make CAF
/// silently pass its own pointer as the first member.
template <class Actor, caf::spawn_options Options = caf::no_spawn_options, class System, class... Args>
auto spawn_actor(System& system, Args&&... args) {
  static_assert(!std::is_aggregate_v<Actor>, "an actor declares its constructors");
  return system.template spawn<Actor, Options>(std::forward<Args>(args)...);
}

/// Whether the message reports the end of this very handle. An address usually identifies an actor. A remote actor,
/// however, has one proxy for each connection to its node, and the end of an old connection may be reported when there
/// is already a new one.
template <class Handle>
bool tells_of(const caf::down_msg& down, const Handle& x) {
  return x && caf::actor_cast<caf::actor_control_block*>(down.source) == caf::actor_cast<caf::actor_control_block*>(x);
}

/// A list of promises whose answers depend on other actors. An actor that ends drops the handlers of its open requests,
/// and its own callers would never get an answer; with this list it can fail all of them.
class open_promises {
public:
  using number = std::uint64_t;

  number add(caf::response_promise promise) {
    promises_.emplace(++last_, std::move(promise));
    return last_;
  }

  /// Delivers the answer, unless the promise was already answered.
  template <class... Ts>
  void deliver(number which, Ts&&... answer) {
    if (auto node = promises_.extract(which); !node.empty())
      node.mapped().deliver(std::forward<Ts>(answer)...);
  }

  void fail_all(const error& why) {
    for (auto& [which, promise] : std::exchange(promises_, {}))
      promise.deliver(to_caf(why));
  }

private:
  std::unordered_map<number, caf::response_promise> promises_;
  number last_ = 0;
};

/// The error for a message that names more slots than its receiver has. That number bounds the size of such a message.
inline error more_slots_than_exist(std::size_t named, std::size_t slots) {
  return {errc::limit_exceeded,
          "one message names " + std::to_string(named) + " slots of a rank that has " + std::to_string(slots)};
}

/// Whether the sender of the request that `self` is handling is an actor of this process. A handle can leave the
/// process as the sender of a request, and everyone who holds a handle can send it any message.
template <class Self>
bool asked_from_here(Self& self) {
  const auto& sender = self.current_sender();
  return sender && sender->node() == self.node();
}

inline error not_this_process() {
  return {errc::not_owner, "this actor accepts requests only from its own process"};
}

/// Converts the error of a failed request into the form that the state classes take.
template <class T>
result<T> failed(const caf::error& e) {
  return tl::unexpected<error>(from_caf(e));
}

} // namespace troupe
