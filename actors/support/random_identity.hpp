#pragma once

#include "actors/support/closing_middleman.hpp"

#include <caf/io/network/default_multiplexer.hpp>

namespace troupe {

/// CAF's middleman with a random identity for this actor system (`caf::node_id`). CAF builds the identity from the
/// addresses of network cards, the root disk and the process id. Two processes of one host have the same one when each
/// has a PID namespace of its own, and others can guess it. Here it is drawn at random for each actor system, so one
/// process may also have two of them.
class random_identity final : public closing_middleman {
public:
  /// For `caf::actor_system_config::load`.
  static caf::actor_system::module* make(caf::actor_system& system, caf::detail::type_list<>);

  explicit random_identity(caf::actor_system& system) : closing_middleman(system), backend_(&system) {}

  /// Called before any actor exists, because the addresses of actors contain the identity.
  void init(caf::actor_system_config& config) override;

  caf::io::network::multiplexer& backend() override { return backend_; }

private:
  caf::io::network::default_multiplexer backend_;
};

} // namespace troupe
