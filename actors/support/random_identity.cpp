#include "actors/support/random_identity.hpp"

#include <cstdint>
#include <random>

namespace troupe {

namespace {

/// A random identity of 160 bits, as long as CAF's own.
caf::node_id drawn() {
  // Throws where the system has no entropy, instead of drawing a value that can be guessed.
  std::random_device entropy;
  caf::node_id::default_data::host_id_type host{};
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (i % sizeof bits == 0)
      bits = entropy();
    host[i] = static_cast<std::uint8_t>(bits >> 8U * (i % sizeof bits));
  }
  return caf::make_node_id(entropy(), host);
}

} // namespace

caf::actor_system::module* random_identity::make(caf::actor_system& system, caf::detail::type_list<>) {
  return new random_identity(system);
}

void random_identity::init(caf::actor_system_config& config) {
  closing_middleman::init(config);
  // CAF lets only its own middleman set the identity. The system object itself is not const.
  const_cast<caf::node_id&>(system().node()) = drawn();
}

} // namespace troupe
