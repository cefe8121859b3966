#include "tests/catch.hpp"

#include <fstream>
#include <iterator>
#include <string>

namespace wings_test {

/// An engine's process links only the client's code. Checked in the linked programs, by the names of symbols and of
/// shared libraries in them.

namespace {

std::string contents(const char* program) {
  std::ifstream stream{program, std::ios::binary};
  return {std::istreambuf_iterator<char>{stream}, {}};
}

bool names(const std::string& program, const char* what) {
  return program.find(what) != std::string::npos;
}

} // namespace

TEST_CASE("wings: the library of the C interface contains no code of the node") {
  const auto library = contents(TROUPE_CAPI_LIBRARY);
  REQUIRE(names(library, "libcaf_core"));
  for (const auto* what : {"rocksdb", "prometheus", "5boost4asio", "registry_state", "allocator_state", "simdjson"}) {
    CAPTURE(what);
    CHECK_FALSE(names(library, what));
  }
}

TEST_CASE("wings: an engine's program contains no code of the node") {
  const auto engine = contents(TROUPE_EXAMPLE_ENGINE);
  const auto node = contents(TROUPE_PROGRAM);
  // Symbols that both have prove that names can be found.
  REQUIRE(names(engine, "libcaf_core"));
  REQUIRE(names(engine, "coordinator_core"));
  for (const auto* what : {"rocksdb", "prometheus", "5boost4asio", "registry_state", "allocator_state", "simdjson"}) {
    CAPTURE(what);
    CHECK(names(node, what));
    CHECK_FALSE(names(engine, what));
  }
}

} // namespace wings_test
