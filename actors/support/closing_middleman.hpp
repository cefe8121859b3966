#pragma once

#include <caf/io/middleman.hpp>

namespace troupe {

/// CAF's middleman, with an end after which its broker of connections accepts no more messages.
///
/// CAF's broker ends with its mailbox open. A message that is in it then, or comes later, stays there as long as the
/// broker, and keeps its sender. That of the next heartbeat is from the broker itself, so neither is ever released; and
/// a request is never answered.
class closing_middleman : public caf::io::middleman {
public:
  explicit closing_middleman(caf::actor_system& system) : caf::io::middleman(system) {}

  /// Requests that the broker has not handled are answered with an error, as are those that come later.
  void stop() override;
};

} // namespace troupe
