#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"
#include "tests/simulation/tap.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace troupe::simulation {

/// Tracks how long writers may write the slots that they were given, by the requests of slot clients and the answers
/// to them. A writer has until the last promise for its page expires; a page that two writers were given cannot be
/// given back by one of them.
class slot_promises {
public:
  /// A request passes the tap of a shard.
  void asked(const passing& request, timestamp now);
  /// It is answered. The error, or an empty text.
  std::string answered(const passing& request, const caf::message& answer, timestamp now);

  /// The rank was registered anew.
  void forget(rank_number rank);
  /// The node has ended.
  void clear();

private:
  using page_name = std::pair<rank_number, key_digest>;
  using request_name = std::pair<caf::actor_id, std::uint64_t>;

  struct promise {
    slot_ref where;
    timestamp until;
    /// When a second writer got the slot.
    timestamp shared_at = timestamp::max();
  };

  struct open_request {
    timestamp since;
    caf::message content;
  };

  std::string allocated(const allocate_request& request, const reserve_reply& reply, timestamp since, timestamp now);
  std::string confirmed(const confirm_request& request, const result_codes& reply, timestamp since);
  std::string reclaimed(const reclaim_request& request, const result_codes& reply, timestamp since,
                        timestamp now) const;
  /// Whether a request without an answer may have got more time for the page.
  bool may_be_extended(const page_name& page) const;

  std::map<request_name, open_request> open_;
  std::map<page_name, promise> promises_;
};

} // namespace troupe::simulation
