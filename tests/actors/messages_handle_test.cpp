#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

namespace messages_handle_test {

TEST_CASE("messages: handle types keep every field when sent to another node", "[messages]") {
  troupe::test::check_types(static_cast<const troupe::test::handle_types*>(nullptr));
}

} // namespace messages_handle_test
