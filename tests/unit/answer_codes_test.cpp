#include "messages/answer_codes.hpp"
#include "messages/io_messages.hpp"
#include "tests/catch.hpp"

namespace answer_codes_test {

using namespace troupe;

namespace {

constexpr std::uint8_t byte(errc code) {
  return static_cast<std::uint8_t>(code);
}

} // namespace

TEST_CASE("answer codes: a missing or unknown code in an answer counts as an internal error", "[messages]") {
  const packed<std::uint8_t> codes{{byte(errc::ok), byte(errc::busy), static_cast<std::uint8_t>(errc_count), 0xff}};
  CHECK(code_at(codes, 0) == errc::ok);
  CHECK(code_at(codes, 1) == errc::busy);
  for (const std::size_t i : {2U, 3U, 4U, 1000U})
    CHECK(code_at(codes, i) == errc::internal);
  CHECK(code_at(packed<std::uint8_t>{}, 0) == errc::internal);
}

TEST_CASE("answer codes: the error of a whole request counts for each of its items", "[messages]") {
  io_reply reply;
  reply.results = std::vector<std::uint8_t>{byte(errc::exists)};
  const result<io_reply> answered = reply;
  CHECK(code_at(answered, 0) == errc::exists);
  CHECK(code_at(answered, 1) == errc::internal);
  const result<io_reply> failed = fail(errc::unreachable, "the node has ended");
  CHECK(code_at(failed, 0) == errc::unreachable);
  CHECK(code_at(failed, 5) == errc::unreachable);
}

} // namespace answer_codes_test
