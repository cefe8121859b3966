#pragma once

#include "io/memory/extent_source.hpp"
#include "io/page.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// Pages of one rank, in pinned frames: those that a client has filled get their header and checksum, those that it is
/// about to read are verified. Never leaves the process.
struct lane_order {
  bool seal = false;
  namespace_id ns;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  std::vector<check_item> items;
};

using page_lane_actor = caf::typed_actor<caf::replies_to<lane_order>::with<io_reply>>;

/// Reads every byte of pages on behalf of clients that cannot, in a thread of its own.
class page_lane : public page_lane_actor::base {
public:
  /// The arena stays at least as long as the actor, which may outlive its other users.
  page_lane(caf::actor_config& config, std::shared_ptr<io::extent_source> arena)
      : page_lane_actor::base(config), arena_(std::move(arena)) {}

  const char* name() const override { return "page_lane"; }
  void on_exit() override { arena_.reset(); }

protected:
  behavior_type make_behavior() override;

private:
  static errc work_on(std::span<std::byte> page, const lane_order& order, const check_item& item);

  std::shared_ptr<io::extent_source> arena_;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::lane_order)
