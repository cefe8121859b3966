#pragma once

#include "io/page.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Pages of one rank, in frames that are pinned meanwhile: those that a client has filled get their header and
/// checksum, those that it is about to read are verified. Never leaves the process.
struct lane_order {
  bool seal = false;
  namespace_id space;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  std::vector<check_item> items;
};

/// Reads every byte of pages, in the place of clients that cannot, on a thread of its own: answers `lane_order` with
/// `io_reply`.
class page_lane : public caf::event_based_actor {
public:
  /// `memory`: the whole arena, which outlives the actor.
  page_lane(caf::actor_config& config, std::span<std::byte> memory) : caf::event_based_actor(config), memory_(memory) {}

  const char* name() const override { return "page_lane"; }

protected:
  caf::behavior make_behavior() override;

private:
  errc work_on(const lane_order& order, const check_item& item) const;

  std::span<std::byte> memory_;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::lane_order)
