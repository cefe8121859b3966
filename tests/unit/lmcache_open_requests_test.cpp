#include "lmcache/open_requests.hpp"
#include "tests/catch.hpp"

namespace lmcache_open_requests_test {

using namespace troupe;
using namespace troupe::lmcache;
using protocol::operation;

namespace {

open_requests::request asked(operation what) {
  auto out = std::make_shared<incoming>();
  out->what = what;
  return out;
}

constexpr timestamp start{std::chrono::hours(1)};

} // namespace

TEST_CASE("open requests: each is answered once and in time", "[lmcache]") {
  open_requests x;
  const auto one = asked(operation::prepare_store);
  const auto two = asked(operation::store);
  x.add(one, start);
  x.add(two, start);
  CHECK(x.is_open(one));
  CHECK(x.take_late(start + time_to_answer(*one) - duration(1)).empty());
  CHECK(x.take_late(start + time_to_answer(*one)) == std::vector{one});
  CHECK_FALSE(x.is_open(one));
  CHECK(x.is_over(one, start));
  CHECK_FALSE(x.close(one));
  CHECK(x.close(two));
  CHECK_FALSE(x.close(two));
  CHECK(x.size() == 0);
  CHECK(x.take_late(timestamp::max()).empty());
}

TEST_CASE("open requests: a request is not answered while the blocks of its worker are being written", "[lmcache]") {
  open_requests x;
  const auto one = asked(operation::retrieve);
  x.add(one, start);
  x.hold(one, true);
  const auto late = start + time_to_answer(*one) + std::chrono::hours(1);
  CHECK(x.take_late(late).empty());
  CHECK(x.take_all().empty());
  CHECK(x.is_open(one));
  // Nothing more is done for it.
  CHECK(x.is_over(one, late));
  x.hold(one, false);
  CHECK(x.take_late(late) == std::vector{one});
  x.hold(one, true);
  CHECK(x.size() == 0);
}

TEST_CASE("open requests: changes of registrations are answered elsewhere", "[lmcache]") {
  open_requests x;
  for (const auto what : {operation::register_context, operation::register_kv_cache, operation::unregister_context,
                          operation::unregister_kv_cache})
    x.add(asked(what), start);
  CHECK(x.take_late(timestamp::max() - duration(1)).empty());
  CHECK(x.take_all().empty());
  const auto one = asked(operation::commit_store);
  x.add(one, start);
  CHECK(x.take_all() == std::vector{one});
  CHECK(x.size() == 4);
}

} // namespace lmcache_open_requests_test
