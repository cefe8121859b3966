#pragma once

#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Checks the messages of a client's load coordinators to a node against the messages that they have received: a reader
/// holds a lease. Each function that returns a text returns the error, or an empty text.
class load_watch {
public:
  /// The connection to the node is lost: its leases have ended.
  void clear();

  void located(std::uint32_t shard, const locate_request& x, const locate_reply& reply);
  void fetches(const frame_request& wanted);
  /// `pin`: 0 if it was given none.
  void fetched(const frame_request& wanted, pin_number pin);
  void unpins(pin_number pin);
  std::string releases(std::uint32_t shard, const ticket& lease);
  /// A lease under which the location of a slot of the request was returned, and its shard.
  std::optional<std::pair<std::uint32_t, ticket>> holder_of(const frame_request& wanted) const;

private:
  /// Per lease and shard: how often each slot was returned under it.
  std::map<std::pair<ticket, std::uint32_t>, std::map<slot_ref, int>> notified_;
  void ends(const frame_request& wanted);

  std::map<slot_ref, int> reading_;
  std::map<pin_number, frame_request> pinned_;
};

} // namespace troupe::simulation
