#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

namespace messages_transfer_test {

TEST_CASE("messages: transfer types keep every field when sent to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::transfer_types*>(nullptr));
}

} // namespace messages_transfer_test
