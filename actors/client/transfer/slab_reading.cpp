#include "actors/client/transfer/slab_reading.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace troupe {

slab_reading::slab_reading(caf::actor_config& config, io::foreign_pages::options how, std::string node)
    : slab_reading_actor::base(config), pages_(std::move(how)), node_(std::move(node)) {}

slab_reading::behavior_type slab_reading::make_behavior() {
  return {
      [this](const read_order& order) { return read(order); },
  };
}

caf::result<read_reply> slab_reading::read(const read_order& order) {
  if (!asked_from_here(*this))
    return to_caf(not_this_process());
  std::vector<io::foreign_page> pages;
  pages.reserve(order.items.size());
  for (const auto& x : order.items)
    pages.push_back({x.key, x.where, x.block});
  // File reads take real time, whatever the actor system's clock is.
  const auto begun = std::chrono::steady_clock::now();
  const auto codes = pages_->read(order.file.path, order.file.incarnation, pages, later(begun, order.patience), begun);
  if (const auto why = pages_->take_trouble(); !why.empty())
    log::get("cluster")->warn("cannot read the slab file of node '{}', so its pages are fetched over the network: {}",
                              node_, why);
  report_failures(order, codes);
  read_reply out;
  out.results.items.reserve(codes.size());
  for (const auto code : codes)
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  return out;
}

void slab_reading::report_failures(const read_order& order, const std::vector<errc>& codes) {
  const auto fails = [](errc code) {
    return code != errc::ok && code != errc::identity_mismatch && code != errc::corrupt && code != errc::unsupported;
  };
  const auto first = std::ranges::find_if(codes, fails);
  if (first != codes.end() && !std::exchange(failing_, true))
    log::get("cluster")->warn("cannot read '{}', a slab file of node '{}' ({}); its pages are fetched over the network",
                              order.file.path, node_, to_string(*first));
  if (std::ranges::find(codes, errc::ok) != codes.end() && first == codes.end())
    failing_ = false;
}

} // namespace troupe
