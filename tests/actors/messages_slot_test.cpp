#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

namespace messages_slot_test {

TEST_CASE("messages: types for slot clients keep every field when sent to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::slot_types*>(nullptr));
}

} // namespace messages_slot_test
