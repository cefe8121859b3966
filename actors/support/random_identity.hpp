#pragma once

#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>

namespace troupe {

/// CAF's middleman, but for the name by which this actor system is known to others (`caf::node_id`). CAF makes it of
/// addresses of network cards, the root disk and the number of the process, which two processes of one host share when
/// each has a process namespace of its own, and which others can guess. Here it is drawn at random, for each system:
/// so there may be two in one process as well.
class random_identity final : public caf::io::middleman {
public:
  /// For `caf::actor_system_config::load`.
  static caf::actor_system::module* make(caf::actor_system& system, caf::detail::type_list<>);

  explicit random_identity(caf::actor_system& system) : caf::io::middleman(system), backend_(&system) {}

  /// Called before there are actors, whose addresses have the name in them.
  void init(caf::actor_system_config& config) override;

  caf::io::network::multiplexer& backend() override { return backend_; }

private:
  caf::io::network::default_multiplexer backend_;
};

} // namespace troupe
