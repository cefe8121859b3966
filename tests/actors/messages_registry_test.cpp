#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

namespace messages_registry_test {

TEST_CASE("messages: registry types keep every field when sent to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::registry_types*>(nullptr));
}

} // namespace messages_registry_test
