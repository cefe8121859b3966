#pragma once

#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

/// What all actors of this project share.

namespace troupe {

/// Spawns a class-based actor. Actors are spawned this way only, so that the rule below is checked for each: with
/// C++20's initialisation of aggregates from parentheses, CAF would pass its own pointer as the first member of a
/// state that has no constructor, without a word.
template <class Actor, caf::spawn_options Options = caf::no_spawn_options, class System, class... Args>
auto spawn_actor(System& system, Args&&... args) {
  static_assert(!std::is_aggregate_v<Actor>, "an actor declares its constructors");
  return system.template spawn<Actor, Options>(std::forward<Args>(args)...);
}

/// Whether the message tells of the death of this very handle. An address stands for an actor; but of a remote one
/// there is a proxy for each connection to its node, and the end of a connection that was may be heard of when there is
/// another one already.
template <class Handle>
bool tells_of(const caf::down_msg& down, const Handle& x) {
  return x && caf::actor_cast<caf::actor_control_block*>(down.source) == caf::actor_cast<caf::actor_control_block*>(x);
}

/// Promises whose answers wait for other actors. An actor that ends forgets the handlers of what it has asked for, and
/// would leave whoever asked it without an answer.
class open_promises {
public:
  using number = std::uint64_t;

  number add(caf::response_promise promise) {
    promises_.emplace(++last_, std::move(promise));
    return last_;
  }

  /// Answers, if nobody has.
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

/// For a message that names more slots than its receiver has, which bounds all that may be in one.
inline error more_slots_than_exist(std::size_t named, std::size_t slots) {
  return {errc::limit_exceeded,
          "one message names " + std::to_string(named) + " slots of a rank that has " + std::to_string(slots)};
}

/// Whether the request that `self` is at comes from an actor of this process. A handle leaves the process also as the
/// sender of a request, and whoever has one can send it any message.
template <class Self>
bool asked_from_here(Self& self) {
  const auto& sender = self.current_sender();
  return sender && sender->node() == self.node();
}

inline error not_this_process() {
  return {errc::not_owner, "this actor serves the process that it is part of, and no other"};
}

/// The answer to a request that failed, as the state classes take it.
template <class T>
result<T> failed(const caf::error& e) {
  return tl::unexpected<error>(from_caf(e));
}

} // namespace troupe
