#include "actors/support/page_checks.hpp"
#include "tests/catch.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace page_checks_test {

using namespace troupe;

TEST_CASE("page checks: each item gets its outcome, and none outside of the memory is looked at", "[page_checks]") {
  std::array<std::byte, 100> memory{};
  constexpr auto end = std::numeric_limits<std::uint64_t>::max();
  const std::vector<check_item> items{{{}, 0, 100}, {{}, 100, 0}, {{}, 60, 40},       {{}, 60, 41},
                                      {{}, 101, 0}, {{}, 0, 101}, {{}, 50, end - 20}, {{}, end, 1}};
  std::vector<std::size_t> seen;
  const auto reply = check_each(std::span<const std::byte>(memory), items,
                                [&](std::span<const std::byte> page, const check_item& item) {
                                  CHECK(page.data() == memory.data() + item.offset);
                                  seen.push_back(page.size());
                                  return page.size() == 40 ? errc::slab_damaged : errc::ok;
                                });
  CHECK(seen == std::vector<std::size_t>{100, 0, 40});
  constexpr auto outside = static_cast<std::uint8_t>(errc::out_of_range);
  CHECK(reply.results.items == std::vector<std::uint8_t>{0, 0, static_cast<std::uint8_t>(errc::slab_damaged), outside,
                                                         outside, outside, outside, outside});
}

} // namespace page_checks_test
