#include "actors/support/system_config.hpp"
#include "tests/catch.hpp"

#include <caf/io/basp_broker.hpp>

namespace random_identity_test {

using namespace troupe;

TEST_CASE("random identity: every actor system has a random node id and its actors share it", "[listeners]") {
  system_config first_options{config::caf_config{}};
  system_config second_options{config::caf_config{}};
  caf::actor_system first(first_options);
  caf::actor_system second(second_options);
  const auto host_of = [](const caf::actor_system& x) {
    return dynamic_cast<const caf::node_id::default_data&>(*x.node()).host_id();
  };
  // As CAF makes them, they differ in one byte.
  std::size_t differing = 0;
  for (std::size_t i = 0; i < host_of(first).size(); ++i)
    differing += host_of(first)[i] != host_of(second)[i] ? 1U : 0U;
  CHECK(differing > 5);
  CHECK(first.node() != second.node());
  caf::scoped_actor one{first};
  CHECK(one->node() == first.node());
  CHECK(first.middleman().actor_handle().node() == first.node());
  const auto broker = first.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  CHECK(broker.node() == first.node());
  CHECK(dynamic_cast<caf::io::basp_broker&>(*caf::actor_cast<caf::abstract_actor*>(broker)).this_node() ==
        first.node());
}

} // namespace random_identity_test
