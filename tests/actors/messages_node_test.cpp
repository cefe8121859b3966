#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

TEST_CASE("messages: node types keep every field on the way to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::node_types*>(nullptr));
}
