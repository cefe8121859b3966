#include "actors/node/io_worker/pending_fills.hpp"
#include "tests/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pending_fills_test {

using namespace troupe;
using codes = std::vector<errc>;
using unwritten = std::vector<pending_fills::unwritten>;

io_reply all_ok(std::size_t pages) {
  io_reply out;
  out.results.items.resize(pages, static_cast<std::uint8_t>(errc::ok));
  return out;
}

codes codes_of(const pending_fills::answer& x) {
  codes out;
  for (const auto code : x.reply.results)
    out.push_back(static_cast<errc>(code));
  return out;
}

TEST_CASE("pending fills: a fill that waits for no page is answered at once", "[pending_fills]") {
  pending_fills fills;
  fills.add(7, all_ok(2), {});
  const auto answers = fills.take_answers();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].request == 7);
  CHECK(codes_of(answers[0]) == codes{errc::ok, errc::ok});
  CHECK(fills.take_answers().empty());
}

TEST_CASE("pending fills: a fill is answered when its last page is written, with the code of each", "[pending_fills]") {
  pending_fills fills;
  fills.add(1, all_ok(3), unwritten{{10, 0}, {20, 2}});
  fills.add(2, all_ok(1), unwritten{{30, 0}});
  fills.written(40, errc::ok);
  fills.written(20, errc::io_error);
  // The same frame holds another page now.
  fills.written(20, errc::stale);
  CHECK(fills.take_answers().empty());
  fills.written(30, errc::ok);
  fills.written(10, errc::ok);
  const auto answers = fills.take_answers();
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].request == 2);
  CHECK(codes_of(answers[0]) == codes{errc::ok});
  CHECK(answers[1].request == 1);
  CHECK(codes_of(answers[1]) == codes{errc::ok, errc::ok, errc::io_error});
}

TEST_CASE("pending fills: a page that has moved is waited for in its new frame", "[pending_fills]") {
  pending_fills fills;
  fills.add(1, all_ok(1), unwritten{{10, 0}});
  fills.moved(10, 11);
  fills.moved(12, 10);
  fills.written(10, errc::stale);
  CHECK(fills.take_answers().empty());
  fills.written(11, errc::ok);
  const auto answers = fills.take_answers();
  REQUIRE(answers.size() == 1);
  CHECK(codes_of(answers[0]) == codes{errc::ok});
}

} // namespace pending_fills_test
