#pragma once

#include "actors/support/listeners/outgoing_budget.hpp"
#include "messages/messages.hpp"

namespace troupe {

/// The approximate size of such a message on a connection; never less than the true size.
std::uint64_t message_bytes(const handshake_fetch_reply& x);
std::uint64_t message_bytes(const handshake_list_reply& x);
std::uint64_t message_bytes(const handshake_update& x);

/// Takes room for the directory's answer to another process. If there is no room, or the answer does not fit into one
/// message, an error replaces it.
void bound_answer(caf::message& answer, outgoing_budget& room);

} // namespace troupe
