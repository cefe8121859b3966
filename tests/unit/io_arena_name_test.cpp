#include "io/memory/arena_name.hpp"
#include "tests/catch.hpp"

#include <memory>
#include <unistd.h>
#include <vector>

namespace io_arena_name_test {

using namespace troupe;
using namespace troupe::io;

namespace {

std::shared_ptr<arena> some_arena() {
  return arena::create({8192, 4096, huge_page_choice::off}).value();
}

} // namespace

TEST_CASE("arena name: an arena is found by its name, and both mappings share their bytes", "[io][arena]") {
  const auto made = some_arena();
  REQUIRE(made->provide(1));
  arena_finder finder;
  auto found = finder.find(8192, encode(made->name()));
  REQUIRE(found);
  CHECK((*found)->bytes().size() == 8192);
  CHECK((*found)->bytes().data() != made->bytes().data());
  (*found)->bytes()[4711] = std::byte{42};
  CHECK(made->bytes()[4711] == std::byte{42});
}

TEST_CASE("arena name: an arena is not found by another name or with another size", "[io][arena]") {
  arena_finder finder;
  const auto made = some_arena();
  const auto other = some_arena();
  const auto refused = [&](std::uint64_t bytes, const shared_memory_name& name) {
    const auto found = finder.find(bytes, name);
    REQUIRE_FALSE(found);
    CHECK_FALSE(found.error().text.empty());
    return found.error().code;
  };
  const auto name = encode(made->name());
  CHECK(refused(4096, name) == errc::identity_mismatch);
  auto mixed = made->name();
  mixed.proof = other->name().proof;
  CHECK(refused(8192, encode(mixed)) == errc::identity_mismatch);
  CHECK(refused(8192, encode({-1, 3, 4, {}})) == errc::unreachable);
  for (std::ptrdiff_t size = 0; size < 12; ++size)
    CHECK(refused(8192, {name.begin(), name.begin() + size}) == errc::invalid_argument);
}

TEST_CASE("arena name: the name of an arena is encoded and decoded unchanged", "[io][arena]") {
  for (const auto& name : {arena_name{}, arena_name{1, 2, 4, {3}}, arena_name{-1, 0x12345678, -2, {0, 255}},
                           arena_name{::getpid(), 7, 8, std::vector<std::uint8_t>(32, 9)}})
    CHECK(decode_arena_name(encode(name)).value() == name);
  CHECK(encode({1, 0x0a0b0c0d, 2, {9}}) == shared_memory_name{1, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0, 9});
}

} // namespace io_arena_name_test
