#pragma once

#include "actors/support/doors/outgoing_budget.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// What such a message takes on a connection, about, and not less.
std::uint64_t message_bytes(const handshake_fetch_reply& x);
std::uint64_t message_bytes(const handshake_list_reply& x);
std::uint64_t message_bytes(const handshake_update& x);

/// The directory's answer to somebody in another process: takes room for it, or puts in its place that it has none, or
/// that it does not go into one message.
void bound_answer(caf::message& answer, outgoing_budget& room);

} // namespace troupe
