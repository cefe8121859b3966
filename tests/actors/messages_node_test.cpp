#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

namespace messages_node_test {

TEST_CASE("messages: node types keep every field when sent to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::node_types*>(nullptr));
}

} // namespace messages_node_test
