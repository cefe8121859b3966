#include "fuzz/lmcache_messages.hpp"

#include "fuzz/check.hpp"
#include "lmcache/incoming.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe::fuzz {

namespace {

constexpr std::uint32_t fuzz_chunk_tokens = 4;

void check_chunks(const lmcache::chunk_range& x) {
  demand(x.begin <= x.end && x.keys.size() == x.end, "chunks without keys");
  demand(x.world_size > 0 && (!x.worker || *x.worker < x.world_size), "a worker outside the world size");
}

void check_right(const lmcache::incoming& x) {
  using lmcache::protocol::operation;
  switch (x.what) {
  case operation::store:
  case operation::retrieve:
  case operation::prepare_store:
  case operation::commit_store:
  case operation::prepare_retrieve:
  case operation::commit_retrieve:
    demand(x.chunks.worker.has_value() && x.instance.has_value() && x.chunks.aligned, "chunks without an instance");
    [[fallthrough]];
  case operation::lookup:
  case operation::free_lookup_locks:
    return check_chunks(x.chunks);
  case operation::register_context:
    demand(x.instance.has_value(), "a registration without an instance");
    if (x.registration)
      demand(x.registration->first().ns.geometry.page_bytes() > 0, "a page without bytes");
    else
      demand(!x.registration.error().text.empty(), "a refusal without a reason");
    return;
  case operation::register_kv_cache:
    demand(x.instance.has_value(), "memory without an instance");
    if (!x.opened)
      return demand(!x.opened.error().text.empty(), "a refusal without a reason");
    demand(validate(*x.opened->memory).has_value(), "memory with blocks outside");
    return demand(x.opened->ns.geometry.page_bytes() == x.opened->memory->page_bytes(), "a page of other bytes");
  default:
    return;
  }
}

} // namespace

bool read_lmcache_message(std::string_view text) {
  // Each frame exactly of the required length, so that a sanitizer detects a read beyond the end.
  std::vector<std::unique_ptr<std::byte[]>> kept;
  std::vector<lmcache::protocol::byte_view> frames;
  while (text.size() >= 2 && frames.size() < 16) {
    const auto wanted = static_cast<unsigned char>(text[0]) + 256U * static_cast<unsigned char>(text[1]);
    text.remove_prefix(2);
    const auto size = std::min<std::size_t>(wanted, text.size());
    kept.push_back(std::make_unique<std::byte[]>(size));
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, size))), kept.back().get());
    frames.emplace_back(kept.back().get(), size);
    text.remove_prefix(size);
  }
  const auto message = lmcache::read_message(frames, fuzz_chunk_tokens);
  if (!message)
    return false;
  if (const auto no = lmcache::protocol::refusal(message->what)) {
    lmcache::protocol::msgpack_reader in(std::as_bytes(std::span(*no)));
    in.skip();
    demand(in.done(), "a refusal that is not one value");
  }
  demand(message->malformed == (message->why != lmcache::problem::none), "a refusal without a reason");
  demand(message->malformed == message->versions.empty(), "a message without a version");
  if (message->malformed) {
    demand(!lmcache::difference_of(message->why, frames).empty(), "an empty difference");
    return false;
  }
  check_right(*message);
  return true;
}

} // namespace troupe::fuzz
