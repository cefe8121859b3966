#include "lmcache/protocol/event_batches.hpp"

#include "lmcache/protocol/msgpack_writer.hpp"

#include <algorithm>
#include <cstddef>

namespace troupe::lmcache::protocol {

namespace {

bool is_text(byte_view frame, std::string_view text) noexcept {
  return std::ranges::equal(frame, text, {}, {}, [](char x) { return static_cast<std::byte>(x); });
}

std::string bytes_of(std::uint64_t hash) {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(hash >> static_cast<unsigned>(shift)));
  return out;
}

void write(msgpack_writer& to, const cache_event& x) {
  to.map(7).text("seq").natural(x.number);
  to.text("kind").text(x.stored ? "stored" : "removed").text("medium").text("CPU").text("model_name").text(x.model);
  to.text("block_hashes").array(1).bytes(bytes_of(x.hash)).text("parent_block_hash");
  if (x.parent)
    to.bytes(bytes_of(*x.parent));
  else
    to.nil();
  to.text("token_ids").array(static_cast<std::uint32_t>(x.tokens.size()));
  for (const auto token : x.tokens)
    to.natural(token);
}

} // namespace

std::optional<stream_control> read_stream_control(byte_view frame) noexcept {
  if (is_text(frame, "ack"))
    return stream_control::confirm;
  return is_text(frame, "cancel") ? std::optional(stream_control::cancel) : std::nullopt;
}

std::string answer_events(const event_batch_head& head, std::span<const cache_event> events) {
  msgpack_writer out;
  out.map(5).text("enabled").boolean(head.enabled).text("incarnation").natural(head.incarnation);
  out.text("next_cursor").natural(head.next_cursor).text("lost").boolean(head.lost);
  out.text("events").array(static_cast<std::uint32_t>(events.size()));
  for (const auto& x : events)
    write(out, x);
  return out.take();
}

} // namespace troupe::lmcache::protocol
