#include "io/arena_name.hpp"
#include "tests/catch.hpp"

#include <map>
#include <memory>
#include <unistd.h>
#include <vector>

namespace io_segment_buffers_test {

using namespace troupe;
using namespace troupe::io;

namespace {

/// A store that moves nothing, and knows a few buffers.
class noting_store final : public page_store {
public:
  static constexpr std::size_t buffers_max = 8;

  const page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override {
    if (known.size() == buffers_max)
      return fail(errc::limit_exceeded, "all buffers are in use");
    known.emplace(++last_, bytes);
    return last_;
  }
  void remove_buffer(std::uint32_t buffer) override { CHECK(known.erase(buffer) == 1); }
  void submit(std::span<const page_request>) override { FAIL("nothing is transferred here"); }
  void stop() override {}
  result<void> health() const override { return {}; }
  std::string describe() const override { return "notes"; }

  std::map<std::uint32_t, std::span<std::byte>> known;

private:
  page_store_traits traits_;
  std::uint32_t last_ = 0;
};

} // namespace

TEST_CASE("page buffers that are lent are found by their name, and both ends have the same bytes", "[io][arena]") {
  noting_store store;
  segment_source source(store);
  arena_finder finder;
  auto lent = source.lend(5000, -1);
  REQUIRE(lent);
  CHECK(lent->buffers->bytes().size() == 8192);
  auto found = finder.find(8192, lent->name);
  REQUIRE(found);
  CHECK((*found)->bytes().size() == 8192);
  CHECK((*found)->bytes().data() != lent->buffers->bytes().data());
  (*found)->bytes()[4711] = std::byte{42};
  CHECK(lent->buffers->bytes()[4711] == std::byte{42});
}

TEST_CASE("the store knows page buffers from when they are lent to when they are taken back", "[io][arena]") {
  noting_store store;
  segment_source source(store);
  auto lent = source.lend(8192, -1);
  const auto other = source.lend(4096, -1);
  REQUIRE(lent);
  REQUIRE(other);
  CHECK(store.known.at(lent->at_store).data() == lent->buffers->bytes().data());
  CHECK(store.known.at(lent->at_store).size() == 8192);
  source.take_back(std::move(*lent));
  CHECK(store.known.size() == 1);
  CHECK(store.known.contains(other->at_store));
}

TEST_CASE("page buffers that cannot be had are an error", "[io][arena]") {
  noting_store store;
  segment_source source(store);
  CHECK(source.lend(0, -1).error().code == errc::invalid_argument);
  std::vector<page_buffer_source::loan> all;
  auto one = source.lend(4096, -1);
  for (; one && all.size() < 100; one = source.lend(4096, -1))
    all.push_back(std::move(*one));
  REQUIRE_FALSE(one); // as many as the store takes
  CHECK(one.error().code == errc::limit_exceeded);
  CHECK(all.size() == noting_store::buffers_max);
  CHECK_FALSE(one.error().text.empty());
  source.take_back(std::move(all.front()));
  CHECK(source.lend(4096, -1));
}

TEST_CASE("page buffers are not found by another name, or as another size", "[io][arena]") {
  noting_store store;
  segment_source source(store);
  arena_finder finder;
  const auto lent = source.lend(8192, -1);
  const auto other = source.lend(8192, -1);
  REQUIRE(lent);
  REQUIRE(other);
  const auto refused = [&](std::uint64_t bytes, const shared_memory_name& name) {
    const auto found = finder.find(bytes, name);
    REQUIRE_FALSE(found);
    CHECK_FALSE(found.error().text.empty());
    return found.error().code;
  };
  CHECK(refused(4096, lent->name) == errc::identity_mismatch);
  auto mixed = decode_arena_name(lent->name).value();
  mixed.proof = decode_arena_name(other->name).value().proof;
  CHECK(refused(8192, encode(mixed)) == errc::identity_mismatch);
  CHECK(refused(8192, encode({-1, 3, {}})) == errc::unreachable);
  for (std::size_t size = 0; size < 8; ++size)
    CHECK(refused(8192, {lent->name.begin(), lent->name.begin() + static_cast<std::ptrdiff_t>(size)}) ==
          errc::invalid_argument);
}

TEST_CASE("the name of an arena reads back as it was", "[io][arena]") {
  for (const auto& name : {arena_name{}, arena_name{1, 2, {3}}, arena_name{-1, 0x12345678, {0, 255}},
                           arena_name{::getpid(), 7, std::vector<std::uint8_t>(32, 9)}})
    CHECK(decode_arena_name(encode(name)).value() == name);
  CHECK(encode({1, 0x0a0b0c0d, {9}}) == shared_memory_name{1, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 9});
}

} // namespace io_segment_buffers_test
