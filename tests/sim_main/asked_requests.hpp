#pragma once

#include "tests/sim_main/sim_main.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::sim_main {

/// The names of the events that `asked_requests` counts begin with these.
inline constexpr std::string_view asked_event = "asked: ";
inline constexpr std::string_view abandoned_event = "abandoned: ";

/// The requests of a world that have no answer yet. Counts each by its name, and again where its caller has ended, has
/// cancelled it or waits no longer before it is answered. `--coverage` fails for a name without the second.
template <class Key>
class asked_requests {
public:
  /// `count`: counts an event of this name in the world.
  explicit asked_requests(std::function<void(const std::string&)> count) : count_(std::move(count)) {}

  void asked(const Key& which, std::string_view name) {
    count_(std::string(asked_event).append(name));
    open_.insert_or_assign(which, std::string(name));
  }
  /// The answer has reached the caller. Does nothing for a request that is not open.
  void answered(const Key& which) { open_.erase(which); }
  /// The caller waits no longer. Does nothing for a request that is not open.
  void abandoned(const Key& which) {
    abandon_if([&](const Key& x) { return !(x < which) && !(which < x); });
  }
  /// The callers of all open requests of which this is true wait no longer.
  template <class Predicate>
  void abandon_if(Predicate of) {
    for (auto i = open_.begin(); i != open_.end();)
      if (of(i->first)) {
        count_(std::string(abandoned_event).append(i->second));
        i = open_.erase(i);
      } else {
        ++i;
      }
  }
  void abandon_all() {
    abandon_if([](const Key&) { return true; });
  }
  /// What was to answer them has ended.
  void forget_all() { open_.clear(); }

private:
  std::function<void(const std::string&)> count_;
  std::map<Key, std::string> open_;
};

} // namespace troupe::sim_main
