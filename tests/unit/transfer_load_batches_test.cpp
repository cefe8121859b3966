#include "tests/unit/transfer_loader.hpp"

namespace transfer_load_batches_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("load: a window has as many batches as wanted, unless they would be small", "[load_state]") {
  auto many = test_options(32);
  many.page_bytes = std::uint64_t{4} << 20U;
  many.batches_in_window = 8;
  loader s{test_binding(32), many};
  REQUIRE(s.state.start(test_task(32), t0));
  s.located(s.one<load_locate>());
  const auto fetches = s.take<load_fetch>();
  CHECK(fetches.size() == 8);
  for (const auto& x : fetches)
    CHECK(x.request.pages.size() == 4);
  many.batches_in_window = 32; // a page of 4 MiB alone is too little
  loader small{test_binding(32), many};
  REQUIRE(small.state.start(test_task(32), t0));
  small.located(small.one<load_locate>());
  CHECK(small.take<load_fetch>().size() == 16);
}

} // namespace transfer_load_batches_test
