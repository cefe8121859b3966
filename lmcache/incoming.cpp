#include "lmcache/incoming.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::lmcache {

namespace {

using wire::byte_view;
using wire::operation;

/// Of the frames that are repeated: a number, and a number or a name.
constexpr std::size_t repeated_bytes_max = 128;

/// What nobody waits longer than.
constexpr double patience_max_seconds = 300;

std::string text_of(byte_view x) {
  return {reinterpret_cast<const char*>(x.data()), x.size()};
}

bool read_chunks(byte_view frame, std::uint32_t chunk_tokens, chunk_range& out) {
  // Kept between messages: they have up to some hundred thousand tokens.
  thread_local std::vector<std::uint32_t> tokens;
  wire::sequence_key key;
  if (chunk_tokens == 0 || !wire::read_key(frame, key, tokens))
    return false;
  out.model = key.model;
  out.world_size = key.world_size;
  out.worker = key.worker;
  out.request = key.request;
  out.readers = key.readers;
  out.begin = key.begin / chunk_tokens;
  out.end = key.end / chunk_tokens;
  out.aligned = key.begin % chunk_tokens == 0 && key.end % chunk_tokens == 0;
  out.keys = chunk_keys(key, tokens, chunk_tokens);
  return out.keys.size() == out.end && (!key.worker || *key.worker < key.world_size);
}

bool read_instance(byte_view frame, std::optional<std::int64_t>& out) {
  out = wire::read_integer(frame);
  return out.has_value();
}

bool read_request_name(byte_view frame, std::string& out) {
  const auto text = wire::read_text(frame);
  if (!text || text->size() > wire::text_max)
    return false;
  out = *text;
  return true;
}

/// How long an event may be that somebody names; more than any has.
constexpr std::size_t event_bytes_max = 1024;

/// What is wrong with the memory is said to people, since this operation has no other way to say no.
bool read_memory(std::span<const byte_view> x, std::uint32_t chunk_tokens, incoming& out) {
  if (x.empty() || !read_instance(x[0], out.instance))
    return false;
  wire::kv_cache_registration registration;
  if (wire::read_kv_cache(x.subspan(1), registration))
    out.opened = open_context_of(registration, chunk_tokens);
  else
    out.opened = fail(errc::invalid_argument, "handles of memory that cannot be read");
  return true;
}

/// A key, an instance, blocks and an event.
bool read_copy(std::span<const byte_view> x, std::uint32_t chunk_tokens, incoming& out) {
  if (!read_chunks(x[0], chunk_tokens, out.chunks) || !out.chunks.worker || !out.chunks.aligned ||
      !read_instance(x[1], out.instance))
    return false;
  std::vector<std::vector<std::uint32_t>> groups;
  wire::msgpack_reader event(x[3]);
  const auto bytes = event.bytes();
  if (!wire::read_blocks(x[2], groups) || groups.size() != 1 || !event.done() || bytes.size() > event_bytes_max)
    return false;
  out.blocks = std::move(groups.front());
  out.event = text_of(bytes);
  return true;
}

/// Reads what the operation needs; false if it is not there.
bool read_payloads(std::span<const byte_view> x, std::uint32_t chunk_tokens, incoming& out) {
  switch (out.what) {
  case operation::lookup:
  case operation::free_lookup_locks:
    // How many workers there are stands in the key.
    return (x.size() == 1 || x.size() == 2) && read_chunks(x[0], chunk_tokens, out.chunks);
  case operation::prepare_store:
  case operation::prepare_retrieve:
  case operation::commit_retrieve:
    return x.size() == 2 && read_chunks(x[0], chunk_tokens, out.chunks) && out.chunks.worker && out.chunks.aligned &&
           read_instance(x[1], out.instance);
  case operation::commit_store:
    return x.size() == 3 && read_chunks(x[0], chunk_tokens, out.chunks) && out.chunks.worker && out.chunks.aligned &&
           read_instance(x[1], out.instance);
  case operation::query_prefetch_status:
  case operation::end_session:
    return x.size() == 1 && read_request_name(x[0], out.request);
  case operation::wait_prefetch_status: {
    if (x.size() != 2 || !read_request_name(x[0], out.request))
      return false;
    const auto seconds = wire::read_real(x[1]);
    if (!seconds)
      return false;
    out.patience = std::chrono::duration_cast<duration>(
        std::chrono::duration<double>(std::clamp(*seconds, 0.0, patience_max_seconds)));
    return true;
  }
  case operation::register_context: {
    wire::context_registration registration;
    if (x.size() != 1 || !wire::read_registration(x[0], registration))
      return false;
    out.instance = registration.instance;
    out.registration = context_of(registration, chunk_tokens);
    return true;
  }
  case operation::register_kv_cache:
    return read_memory(x, chunk_tokens, out);
  case operation::store:
    return x.size() == 4 && read_copy(x, chunk_tokens, out);
  case operation::retrieve: {
    if ((x.size() != 4 && x.size() != 5) || !read_copy(x, chunk_tokens, out))
      return false;
    const auto skip = x.size() == 5 ? wire::read_integer(x[4]) : std::optional<std::int64_t>(0);
    if (!skip || *skip < 0 || *skip > 0xffffffffLL)
      return false;
    out.skip_tokens = static_cast<std::uint32_t>(*skip);
    return true;
  }
  case operation::unregister_context:
  case operation::unregister_kv_cache:
    return x.size() == 1 && read_instance(x[0], out.instance);
  case operation::ping: {
    // Older clients do not say who they are.
    if (x.empty())
      return true;
    const auto instance = wire::read_integer_or_nil(x[0]);
    if (x.size() != 1 || !instance)
      return false;
    out.instance = *instance;
    return true;
  }
  default:
    return true;
  }
}

} // namespace

std::optional<incoming> read_message(std::span<const byte_view> frames, std::uint32_t chunk_tokens) {
  if (frames.size() < 2 || frames[0].size() > repeated_bytes_max || frames[1].size() > repeated_bytes_max)
    return std::nullopt;
  incoming out;
  out.registration = fail(errc::invalid_argument, "no registration");
  out.opened = fail(errc::invalid_argument, "no registration");
  out.number = text_of(frames[0]);
  out.operation_frame = text_of(frames[1]);
  const auto what = wire::read_operation(frames[1]);
  out.what = what.value_or(operation::unknown);
  out.malformed = !what || !wire::read_integer(frames[0]) || !read_payloads(frames.subspan(2), chunk_tokens, out);
  return out;
}

} // namespace troupe::lmcache
