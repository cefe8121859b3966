#include "io/slab/renamed_slab.hpp"
#include "io/slab/slab_reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <filesystem>
#include <fstream>
#include <string>

namespace io_renamed_slab_test {

using namespace troupe;
using namespace troupe::io;
using test::scratch_directory;

namespace {

slab_spec slab_of(const scratch_directory& scratch, const std::string& name) {
  return {.path = scratch / (name + ".rank-3.slab"),
          .ns = {1, 2},
          .namespace_name = name,
          .rank = 3,
          .slot_bytes = 8192,
          .slots = 8};
}

void make(const slab_spec& spec) {
  REQUIRE(slab_file::open(spec, false));
}

} // namespace

TEST_CASE("renamed slab: the slab of a renamed namespace is found by its identity", "[io]") {
  const scratch_directory scratch;
  const auto wanted = slab_of(scratch, "chat");
  CHECK_FALSE(find_renamed_slab(wanted));
  const auto old = slab_of(scratch, "demo");
  make(old);
  std::ofstream(scratch / "rubbish.rank-3.slab") << "no slab";
  CHECK(find_renamed_slab(wanted) == old.path);
}

TEST_CASE("renamed slab: a slab of another identity is not taken for that of a renamed namespace", "[io]") {
  const scratch_directory scratch;
  const auto wanted = slab_of(scratch, "chat");
  auto other = slab_of(scratch, "demo");
  SECTION("another identity") {
    other.ns = {1, 3};
  }
  SECTION("another rank") {
    other.rank = 2;
  }
  SECTION("other slots") {
    other.slots = 9;
  }
  SECTION("slots of another size") {
    other.slot_bytes = 4096;
  }
  SECTION("another rank in the name alone") {
    other.path = scratch / "demo.rank-13.slab";
  }
  make(other);
  CHECK_FALSE(find_renamed_slab(wanted));
}

TEST_CASE("renamed slab: no file is renamed where the match is ambiguous or the slab is in use", "[io]") {
  const scratch_directory scratch;
  const auto wanted = slab_of(scratch, "chat");
  const auto old = slab_of(scratch, "demo");
  SECTION("there are two") {
    make(old);
    make(slab_of(scratch, "older"));
    CHECK_FALSE(find_renamed_slab(wanted));
  }
  SECTION("the target file exists") {
    make(old);
    make(wanted);
    CHECK_FALSE(find_renamed_slab(wanted));
  }
  SECTION("a node has it open") {
    const auto node = slab_file::open(old, false);
    REQUIRE(node);
    CHECK_FALSE(find_renamed_slab(wanted));
  }
  SECTION("there is no such directory") {
    auto elsewhere = wanted;
    elsewhere.path = scratch / "not/there/chat.rank-3.slab";
    CHECK_FALSE(find_renamed_slab(elsewhere));
  }
}

} // namespace io_renamed_slab_test
