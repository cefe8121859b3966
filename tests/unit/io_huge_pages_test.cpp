#include "io/memory/huge_pages.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <optional>

namespace io_huge_pages_test {

using namespace troupe;
using namespace troupe::io;
using namespace std::chrono_literals;

TEST_CASE("huge pages: huge pages that another program is about to free are waited for", "[io][arena]") {
  CHECK(two_mib_pages.pages_of(1) == 1);
  CHECK(two_mib_pages.pages_of(std::uint64_t{8} << 20U) == 4);
  CHECK(two_mib_pages.pages_of((std::uint64_t{8} << 20U) + 1) == 5);
  int asked = 0;
  CHECK(await_spare_huge_pages(8, 10s, [&] { return std::optional(huge_page_counts{8, ++asked < 4 ? 5U : 8U}); }));
  CHECK(asked == 4);
}

TEST_CASE("huge pages: the wait for huge pages that are not freed is bounded", "[io][arena]") {
  int asked = 0;
  const auto taken = [&] {
    ++asked;
    return std::optional(huge_page_counts{8, 7});
  };
  CHECK_FALSE(await_spare_huge_pages(8, 60ms, taken));
  CHECK(asked == 4);
  CHECK_FALSE(await_spare_huge_pages(8, 0ms, taken));
  CHECK(asked == 5);
}

TEST_CASE("huge pages: huge pages that the host does not have are not waited for", "[io][arena]") {
  int asked = 0;
  CHECK_FALSE(await_spare_huge_pages(9, 1h, [&] { return std::optional(huge_page_counts{8, ++asked + 0U}); }));
  CHECK(asked == 1);
  CHECK_FALSE(await_spare_huge_pages(1, 1h, [] { return std::optional<huge_page_counts>(); }));
}

} // namespace io_huge_pages_test
