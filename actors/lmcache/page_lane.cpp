#include "actors/lmcache/page_lane.hpp"

#include "actors/support/page_checks.hpp"

namespace troupe {

page_lane::behavior_type page_lane::make_behavior() {
  return {
      [this](const lane_order& order) {
        return check_each(arena_->memory(), order.items, [&](std::span<std::byte> page, const check_item& item) {
          return work_on(page, order, item);
        });
      },
  };
}

errc page_lane::work_on(std::span<std::byte> page, const lane_order& order, const check_item& item) {
  if (page.size() != io::slot_bytes(order.page_bytes))
    return errc::out_of_range;
  const io::page_identity identity{order.ns, item.page.key, order.rank, item.page.where, order.page_bytes};
  if (!order.seal) {
    // Workers read the payload themselves, and as it is: for them an encoded page is a miss, and no damage.
    const auto stored = io::expected_payload(page, identity);
    if (stored && stored->encoding != page_encoding::raw)
      return errc::unsupported;
    return io::verify_page(page, identity);
  }
  io::seal_page(page, identity);
  return errc::ok;
}

} // namespace troupe
