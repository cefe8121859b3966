#include "actors/node/io_worker/page_checker.hpp"

#include "actors/support/page_checks.hpp"

namespace troupe {

page_checker::behavior_type page_checker::make_behavior() {
  return {
      [this](const check_order& order) {
        return check_each(options_.memory, order.items,
                          [this](std::span<const std::byte> page, const check_item& x) { return check(page, x.page); });
      },
  };
}

errc page_checker::check(std::span<const std::byte> bytes, const page_ref& page) const {
  if (bytes.size() > io::slot_bytes(options_.page_bytes))
    return errc::out_of_range;
  return io::verify_page(bytes, {options_.ns, page.key, options_.rank, page.where, options_.page_bytes});
}

} // namespace troupe
