#include "actors/node/directory/answer_bounds.hpp"

#include "handshake/directory_state.hpp"

#include <string>
#include <utility>

namespace troupe {

namespace {

/// Numbers, lengths, and CAF's framing of a message.
constexpr std::uint64_t frame_bytes = 512;

error too_long(std::uint64_t bytes, const outgoing_budget& room) {
  return {errc::out_of_range,
          "the answer has " + std::to_string(bytes) + " bytes, but a message on a connection at most " +
              std::to_string(room.message_bytes_max()) + " (actors.max_message_bytes): request its parts, or use HTTP"};
}

error too_many() {
  return {errc::limit_exceeded, "answers in flight have reached the limit of handshake.memory_bytes; try "
                                "again in a moment"};
}

/// Null if there was room, which the answer has taken.
template <class Answer>
std::optional<error> take_room(caf::message& answer, outgoing_budget& room) {
  const auto bytes = message_bytes(answer.get_as<Answer>(0));
  if (bytes > room.message_bytes_max())
    return too_long(bytes, room);
  auto claim = room.take(bytes);
  if (!claim) {
    room.refuse();
    return too_many();
  }
  answer.get_mutable_as<Answer>(0).claim = std::move(claim);
  return std::nullopt;
}

} // namespace

std::uint64_t message_bytes(const handshake_fetch_reply& x) {
  return handshake::message_bytes(x);
}

std::uint64_t message_bytes(const handshake_list_reply& x) {
  auto out = frame_bytes;
  for (const auto& each : x.engines)
    out += each.engine.size() + each.compat.size() + sizeof(each);
  return out;
}

std::uint64_t message_bytes(const handshake_update& x) {
  auto out = frame_bytes;
  for (const auto& each : x.changes)
    out += each.engine.size() + message_bytes(each.now);
  return out;
}

void bound_answer(caf::message& answer, outgoing_budget& room) {
  if (answer.match_elements<handshake_fetch_reply>()) {
    // An empty answer is small, and there are no more of them than requests.
    if (answer.get_as<handshake_fetch_reply>(0).entries.empty())
      return;
    if (auto why = take_room<handshake_fetch_reply>(answer, room)) {
      handshake_fetch_reply refusal;
      refusal.code = static_cast<std::uint8_t>(why->code);
      refusal.text = std::move(why->text);
      answer = caf::make_message(std::move(refusal));
    }
  } else if (answer.match_elements<handshake_list_reply>()) {
    if (auto why = take_room<handshake_list_reply>(answer, room))
      answer = caf::make_message(to_caf(*why));
  }
}

} // namespace troupe
