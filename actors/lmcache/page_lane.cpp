#include "actors/lmcache/page_lane.hpp"

namespace troupe {

page_lane::behavior_type page_lane::make_behavior() {
  return {
      [this](const lane_order& order) {
        io_reply out;
        const auto memory = arena_->memory();
        for (const auto& item : order.items)
          out.results.items.push_back(static_cast<std::uint8_t>(work_on(memory, order, item)));
        return out;
      },
  };
}

errc page_lane::work_on(std::span<std::byte> memory, const lane_order& order, const check_item& item) {
  if (item.offset > memory.size() || memory.size() - item.offset < item.bytes ||
      item.bytes != io::slot_bytes(order.page_bytes))
    return errc::out_of_range;
  const io::page_identity identity{order.ns, item.page.key, order.rank, item.page.where, order.page_bytes};
  const auto page = memory.subspan(item.offset, item.bytes);
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
