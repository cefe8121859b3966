#include "lmcache/incoming.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::lmcache {

namespace {

using protocol::byte_view;
using protocol::operation;

/// Limit of the repeated frames: a number, and a number or a name.
constexpr std::size_t repeated_bytes_max = 128;

/// The longest wait of a client.
constexpr double patience_max_seconds = 300;

std::string text_of(byte_view x) {
  return {reinterpret_cast<const char*>(x.data()), x.size()};
}

/// How requests are read.
struct reading {
  std::uint32_t chunk_tokens = 0;
  bool keeps_tokens = false;
};

problem read_chunks(byte_view frame, const reading& how, incoming& to) {
  const auto chunk_tokens = how.chunk_tokens;
  // Kept between messages: they have up to some hundred thousand tokens.
  thread_local std::vector<std::uint32_t> tokens;
  protocol::sequence_key key;
  if (chunk_tokens == 0 || !protocol::read_key(frame, key, tokens))
    return problem::key;
  to.versions &= key.versions;
  auto& out = to.chunks;
  out.model = key.model;
  out.world_size = key.world_size;
  out.worker = key.worker;
  out.request = key.request;
  out.readers = key.readers;
  if (key.engine_tokens)
    out.engine_chunks = *key.engine_tokens / chunk_tokens;
  out.begin = key.begin / chunk_tokens;
  out.end = key.end / chunk_tokens;
  out.aligned = key.begin % chunk_tokens == 0 && key.end % chunk_tokens == 0;
  out.keys = chunk_keys(key, tokens, chunk_tokens);
  const bool stores = to.what == operation::store || to.what == operation::commit_store;
  if (how.keeps_tokens && stores && key.salt.empty() && out.begin < out.end)
    out.tokens.assign(tokens.begin() + std::ptrdiff_t{out.begin} * chunk_tokens,
                      tokens.begin() + std::ptrdiff_t{out.end} * chunk_tokens);
  return out.keys.size() == out.end && (!key.worker || *key.worker < key.world_size) ? problem::none : problem::key;
}

problem read_instance(byte_view frame, std::optional<std::int64_t>& out) {
  out = protocol::read_integer(frame);
  return out ? problem::none : problem::payload;
}

/// A key of one worker's whole chunks, and an instance.
problem read_transfer(std::span<const byte_view> x, const reading& how, incoming& out) {
  if (const auto why = read_chunks(x[0], how, out); why != problem::none)
    return why;
  return out.chunks.worker && out.chunks.aligned ? read_instance(x[1], out.instance) : problem::key;
}

problem read_prepare_store(std::span<const byte_view> x, const reading& how, incoming& out) {
  if (const auto why = read_transfer(x, how, out); why != problem::none || x.size() == 2)
    return why;
  if (!protocol::read_skipped_chunks(x[2], out.skipped))
    return problem::payload;
  const auto chunks = out.chunks.end - out.chunks.begin;
  for (auto& group : out.skipped) {
    std::ranges::sort(group);
    if (std::ranges::adjacent_find(group) != group.end() || (!group.empty() && group.back() >= chunks))
      return problem::payload;
  }
  return problem::none;
}

/// Chunks of earlier lookups of the same request, which hold nothing any more: a lookup ends the one before it.
problem read_freed(std::span<const byte_view> x, const reading& how, incoming& out) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> earlier;
  if (x.size() == 3 && !protocol::read_ranges(x[2], earlier))
    return problem::payload;
  return read_chunks(x[0], how, out);
}

problem read_request_name(byte_view frame, std::string& out) {
  const auto text = protocol::read_text(frame);
  if (!text || text->size() > protocol::text_max)
    return problem::payload;
  out = *text;
  return problem::none;
}

/// Limit of an event's bytes; more than any event has.
constexpr std::size_t event_bytes_max = 1024;

/// The cause of a rejection is logged, since this operation has no answer that rejects it.
problem read_memory(std::span<const byte_view> x, std::uint32_t chunk_tokens, incoming& out) {
  if (const auto why = read_instance(x[0], out.instance); why != problem::none)
    return why;
  protocol::kv_cache_registration registration;
  if (protocol::read_kv_cache(x.subspan(1), registration))
    out.opened = open_context_of(registration, chunk_tokens);
  else
    out.opened = fail(errc::invalid_argument, "memory handles that cannot be parsed");
  return problem::none;
}

/// A key, an instance, blocks and an event.
problem read_copy(std::span<const byte_view> x, const reading& how, incoming& out) {
  if (const auto why = read_transfer(x, how, out); why != problem::none)
    return why;
  std::vector<std::vector<std::uint32_t>> groups;
  protocol::msgpack_reader event(x[3]);
  const auto bytes = event.bytes();
  if (!protocol::read_blocks(x[2], groups) || groups.empty() || !event.done() || bytes.size() > event_bytes_max)
    return problem::payload;
  if (groups.size() > 1)
    return problem::groups;
  // A block has at least one token.
  if (groups.front().size() > std::size_t{out.chunks.end} * how.chunk_tokens)
    return problem::payload;
  out.blocks = std::move(groups.front());
  out.event = text_of(bytes);
  if (x.size() == 4)
    return problem::none;
  const auto skip = protocol::read_integer(x[4]);
  if (!skip || *skip < 0 || *skip > 0xffffffffLL)
    return problem::payload;
  out.skip_tokens = static_cast<std::uint32_t>(*skip);
  return problem::none;
}

problem read_wait(std::span<const byte_view> x, incoming& out) {
  const auto seconds = protocol::read_real(x[1]);
  if (!seconds)
    return problem::payload;
  out.patience = std::chrono::duration_cast<duration>(
      std::chrono::duration<double>(std::clamp(*seconds, 0.0, patience_max_seconds)));
  return read_request_name(x[0], out.request);
}

problem read_alignment(byte_view frame, incoming& out) {
  const auto tokens = protocol::read_integer(frame);
  if (!tokens || *tokens < 1 || *tokens > 0xffffffffLL)
    return problem::payload;
  out.alignment = static_cast<std::uint32_t>(*tokens);
  return problem::none;
}

/// The instance, the model, the cursor and the most changes.
problem read_subscription(std::span<const byte_view> x, incoming& out) {
  if (const auto why = read_instance(x[0], out.instance); why != problem::none)
    return why;
  const auto cursor = protocol::read_integer(x[2]);
  const auto most = protocol::read_integer(x[3]);
  if (!cursor || *cursor < 0 || !most || *most < 1 || *most > protocol::batch_events_max)
    return problem::payload;
  out.events.cursor = static_cast<std::uint64_t>(*cursor);
  out.events.most = static_cast<std::uint32_t>(*most);
  return read_request_name(x[1], out.events.model);
}

problem read_context(byte_view frame, std::uint32_t chunk_tokens, incoming& out) {
  protocol::context_registration registration;
  if (!protocol::read_registration(frame, registration)) {
    out.instance = protocol::read_instance_of_registration(frame);
    return problem::payload;
  }
  out.versions &= registration.versions;
  out.instance = registration.instance;
  out.registration = context_of(registration, chunk_tokens);
  return problem::none;
}

std::uint64_t kept_bytes(const incoming& x) {
  auto out = sizeof x + x.number.size() + x.operation_frame.size() + x.event.size() + x.request.size() +
             x.chunks.model.size() + x.chunks.request.size() + x.chunks.keys.size() * sizeof(key_digest) +
             (x.blocks.size() + x.chunks.tokens.size()) * sizeof(std::uint32_t) + x.events.model.size();
  for (const auto& chunks : x.skipped)
    out += sizeof(std::vector<std::uint32_t>) + chunks.size() * sizeof(std::uint32_t);
  if (x.opened && x.opened->memory)
    out +=
        x.opened->memory->runs.size() * sizeof(block_run) + x.opened->memory->memories.size() * sizeof(memory_handle);
  return out;
}

bool is_empty(byte_view frame) {
  protocol::msgpack_reader in(frame);
  return in.bytes().empty() && in.done();
}

/// Reads what the operation needs; the number of payloads is that of some version.
problem read_payloads(std::span<const byte_view> x, const reading& how, incoming& out) {
  switch (out.what) {
  case operation::lookup:
    // The number of workers is in the key.
    return read_chunks(x[0], how, out);
  case operation::free_lookup_locks:
    return read_freed(x, how, out);
  case operation::prepare_store:
    return read_prepare_store(x, how, out);
  case operation::commit_store:
    out.carries_tensors = !is_empty(x[2]);
    return read_transfer(x, how, out);
  case operation::prepare_retrieve:
  case operation::commit_retrieve:
    return read_transfer(x, how, out);
  case operation::query_prefetch_status:
  case operation::end_session:
    return read_request_name(x[0], out.request);
  case operation::wait_prefetch_status:
    return read_wait(x, out);
  case operation::register_context:
    return read_context(x[0], how.chunk_tokens, out);
  case operation::register_kv_cache:
    return read_memory(x, how.chunk_tokens, out);
  case operation::store:
  case operation::retrieve:
    return read_copy(x, how, out);
  case operation::unregister_context:
  case operation::unregister_kv_cache:
    return read_instance(x[0], out.instance);
  case operation::negotiate_chunk_size:
    return read_alignment(x[0], out);
  case operation::subscribe_kv_events:
    return read_subscription(x, out);
  case operation::ping: {
    // Older clients do not identify themselves.
    if (x.empty())
      return problem::none;
    const auto instance = protocol::read_integer_or_nil(x[0]);
    out.instance = instance.value_or(std::nullopt);
    return instance ? problem::none : problem::payload;
  }
  default:
    return problem::none;
  }
}

problem read_request(std::span<const byte_view> frames, const reading& how, incoming& out) {
  const auto what = protocol::read_operation(frames[1]);
  out.what = what.value_or(operation::unknown);
  if (!protocol::read_integer(frames[0]))
    return problem::envelope;
  if (out.what == operation::unknown)
    return problem::operation;
  const auto payloads = frames.subspan(2);
  out.versions = protocol::versions_of(out.what, payloads.size());
  if (out.versions.empty()) {
    // No answer to a registration rejects it: the pings of the instance do.
    if (out.what == operation::register_context && !payloads.empty())
      out.instance = protocol::read_instance_of_registration(payloads[0]);
    else if (protocol::changes_registration(out.what) && !payloads.empty())
      static_cast<void>(read_instance(payloads[0], out.instance));
    out.opened = fail(errc::invalid_argument, "a registration with a number of payloads that no version has");
    return problem::payload_count;
  }
  if (const auto why = read_payloads(payloads, how, out); why != problem::none)
    return why;
  // Each part fits some version, but the whole fits none.
  return out.versions.empty() ? problem::key : problem::none;
}

} // namespace

std::optional<incoming> read_message(std::span<const byte_view> frames, std::uint32_t chunk_tokens, bool keeps_tokens) {
  if (frames.size() < 2 || frames[0].size() > repeated_bytes_max || frames[1].size() > repeated_bytes_max)
    return std::nullopt;
  incoming out;
  out.registration = fail(errc::invalid_argument, "no registration");
  out.opened = fail(errc::invalid_argument, "no registration");
  out.number = text_of(frames[0]);
  out.operation_frame = text_of(frames[1]);
  if (frames.size() == 3 && frames[1].empty()) {
    const auto control = protocol::read_stream_control(frames[2]);
    if (!control)
      return std::nullopt;
    out.what = operation::subscribe_kv_events;
    out.events.control = *control;
    out.bytes = kept_bytes(out);
    return out;
  }
  out.why = read_request(frames, {chunk_tokens, keeps_tokens}, out);
  out.malformed = out.why != problem::none;
  if (out.malformed)
    out.versions = {};
  out.bytes = kept_bytes(out);
  return out;
}

} // namespace troupe::lmcache
