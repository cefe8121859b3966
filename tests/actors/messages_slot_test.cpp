#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

TEST_CASE("messages: types for slot clients keep every field on the way to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::slot_types*>(nullptr));
}
