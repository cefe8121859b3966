#include "io/memory/memory_name.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <sys/stat.h>

namespace io_memory_name_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

unique_descriptor made(const std::string& name) {
  return unique_descriptor(::shm_open(("/" + name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
}

bool exists(const std::string& name) {
  return fs::exists("/dev/shm/" + name);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("memory names: each start draws another name and records it for the next", "[io]") {
  const scratch_directory scratch;
  const auto first = draw_memory_name(scratch.path());
  REQUIRE(first);
  CHECK(text_of(scratch / "memory-name") == *first);
  struct stat status {};
  REQUIRE(::stat((scratch / "memory-name").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0600);
  const auto second = draw_memory_name(scratch.path());
  REQUIRE(second);
  CHECK(*first != *second);
}

TEST_CASE("memory names: memory of a killed node is removed, and memory in use is not", "[io]") {
  const scratch_directory scratch;
  const auto name = draw_memory_name(scratch.path()).value();
  const auto memory = made(name);
  REQUIRE(memory);
  SECTION("left over") {
    remove_left_memory(scratch.path());
    CHECK_FALSE(exists(name));
  }
  SECTION("in use") {
    {
      const auto held = held_memory_name::hold(name, memory.get());
      REQUIRE(held);
      CHECK(held->text() == name);
      CHECK(held->is_there());
      remove_left_memory(scratch.path());
      CHECK(exists(name));
      CHECK_FALSE(held_memory_name::hold(name, memory.get()));
    }
    CHECK_FALSE(exists(name));
  }
  SECTION("in use, removed, and the name taken by another file") {
    auto held = held_memory_name::hold(name, memory.get());
    REQUIRE(held);
    REQUIRE(::shm_unlink(("/" + name).c_str()) == 0);
    CHECK_FALSE(held->is_there());
    const auto other = made(name);
    REQUIRE(other);
    CHECK_FALSE(held->is_there());
    *held = held_memory_name();
    CHECK(exists(name));
    CHECK_FALSE(held_memory_name::hold(name, memory.get()));
    ::shm_unlink(("/" + name).c_str());
  }
}

TEST_CASE("memory names: an invalid name in the file names nothing", "[io]") {
  const scratch_directory scratch;
  const auto victim = made("troupe-memory-name-test");
  REQUIRE(victim);
  for (const auto* text : {"", "troupe-memory-name-test", "../etc/passwd", "troupe-lmcache-0123"}) {
    std::ofstream(scratch / "memory-name") << text;
    remove_left_memory(scratch.path());
    CHECK(draw_memory_name(scratch.path()));
  }
  CHECK(exists("troupe-memory-name-test"));
  ::shm_unlink("/troupe-memory-name-test");
  fs::remove(scratch / "memory-name");
  fs::create_directory(scratch / "memory-name");
  CHECK_FALSE(draw_memory_name(scratch.path()));
}

} // namespace io_memory_name_test
