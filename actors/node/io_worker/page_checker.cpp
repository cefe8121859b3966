#include "actors/node/io_worker/page_checker.hpp"

#include "actors/support/actor_support.hpp"

namespace troupe {

page_checker::behavior_type page_checker::make_behavior() {
  return {
      [this](const check_order& order) {
        io_reply out;
        for (const auto& item : order.items)
          out.results.items.push_back(static_cast<std::uint8_t>(check(item)));
        return out;
      },
  };
}

errc page_checker::check(const check_item& item) const {
  if (item.offset > options_.memory.size() || options_.memory.size() - item.offset < item.bytes ||
      item.bytes > io::slot_bytes(options_.page_bytes))
    return errc::out_of_range;
  return io::verify_page(options_.memory.subspan(item.offset, item.bytes),
                         {options_.ns, item.page.key, options_.rank, item.page.where, options_.page_bytes});
}

} // namespace troupe
