#include "actors/node/namespaces/namespace_terms.hpp"
#include "tests/catch.hpp"

#include <string>

namespace namespace_terms_test {

using namespace troupe;

TEST_CASE("namespace terms: what is wrong with a namespace of a client is said without a place in a config",
          "[namespaces]") {
  config::node_config options;
  options.actors.make_namespaces = true;
  io::arena_facts arena;
  arena.extent_bytes = 64U << 20U;
  namespace_spec spec;
  spec.name = "chat";
  spec.model = std::string(257, 'm');
  spec.world_size = 1;
  const auto refused = judge_namespace(options, arena, spec);
  REQUIRE_FALSE(refused.has_value());
  INFO(refused.error().text);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().text.starts_with("a namespace that a client creates: model: "));
  CHECK(refused.error().text.find("namespaces[") == std::string::npos);
  CHECK(refused.error().text.find("line ") == std::string::npos);
}

} // namespace namespace_terms_test
