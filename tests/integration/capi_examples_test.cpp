#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <cstdlib>
#include <sstream>
#include <string>

namespace capi_examples_test {

/// The programs of examples/capi, as their readers start them, and what the library shows of itself.

using namespace troupe::test;

namespace {

outcome run_program(arguments what) {
  launch how;
  how.arguments = std::move(what);
  return run(how, std::chrono::minutes(3));
}

/// Memcheck, where it is installed and the program has no sanitizer of its own.
arguments under_memcheck(const char* program, const std::string& node) {
  return {"/usr/bin/env", "valgrind", "-q", "--error-exitcode=99", "--leak-check=full",
          // Memory that hangs on a leaked block is reported with it.
          "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
          "--suppressions=" TROUPE_SOURCE_DIR "/valgrind.supp", program, node};
}

bool has_memcheck() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#endif
  return std::system("command -v valgrind > /dev/null") == 0;
}

} // namespace

TEST_CASE("capi examples: the examples in C and C++ load every byte back", "[capi]") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["remote"] = {{"enabled", true}};
  serving_node node(write_config(scratch.path(), config));
  for (const auto* program : {TROUPE_EXAMPLE_C_ENGINE, TROUPE_EXAMPLE_C_PAGES, TROUPE_EXAMPLE_CPP_POOL}) {
    const auto x = run_program({program, node.address()});
    INFO(program << "\n" << x.out << x.err);
    CHECK(x.code == 0);
    CHECK(x.err.empty());
    CHECK(x.out.find("every byte is right") != std::string::npos);
    const auto over_tcp = run_program({program, node.endpoint()});
    INFO(over_tcp.err);
    CHECK(over_tcp.code == 0);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("capi examples: the examples in C have no memory errors and no leaks", "[capi]") {
  if (!has_memcheck()) {
    WARN("skipped: valgrind is not installed, or a sanitizer is in its place");
    return;
  }
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  for (const auto* program : {TROUPE_EXAMPLE_C_ENGINE, TROUPE_EXAMPLE_C_PAGES, TROUPE_EXAMPLE_CPP_POOL}) {
    const auto x = run_program(under_memcheck(program, node.address()));
    INFO(program << "\n" << x.out << x.err);
    CHECK(x.code == 0);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("capi examples: the library exports only the C interface", "[capi]") {
  const auto x = run_program({"/usr/bin/env", "nm", "-D", "--defined-only", TROUPE_CAPI_LIBRARY});
  REQUIRE(x.code == 0);
  std::istringstream lines(x.out);
  std::size_t functions = 0;
  for (std::string address, kind, name; lines >> address >> kind >> name;) {
    // Besides it, there is the name of the version that all belong to.
    if (kind == "A") {
      CHECK(name.starts_with("TROUPE_"));
      continue;
    }
    CHECK(kind == "T");
    CHECK(name.starts_with("troupe_"));
    ++functions;
  }
  CHECK(functions > 40);
}

TEST_CASE("capi examples: the library depends only on libraries that engine processes have", "[capi]") {
  const auto x = run_program({"/usr/bin/env", "ldd", TROUPE_CAPI_LIBRARY});
  REQUIRE(x.code == 0);
  CHECK(x.out.find("not found") == std::string::npos);
  for (const auto* what : {"rocksdb", "prometheus", "boost", "simdjson", "libcuda"}) {
    CAPTURE(what);
    CHECK(x.out.find(what) == std::string::npos);
  }
}

} // namespace capi_examples_test
