#pragma once

#include <type_traits>
#include <utility>

#include "messages/messages.hpp"

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

/// The answer to a request that failed, as the state classes take it.
template <class T>
result<T> failed(const caf::error& e) {
  return tl::unexpected<error>(from_caf(e));
}

} // namespace troupe
