#include "fuzz/native_bodies.hpp"

#include "fuzz/accepted.hpp"
#include "fuzz/check.hpp"
#include "http/native/namespace_body.hpp"
#include "http/native/native_body.hpp"
#include "http/server/request.hpp"

#include <algorithm>
#include <memory>

namespace troupe::fuzz {

namespace {

constexpr std::uint32_t most_items = 50;

http::native::options sample_options() {
  http::native::options out;
  out.max_items = most_items;
  out.lease_max = std::chrono::minutes{10};
  out.readers_lease_max = std::chrono::seconds{20};
  return out;
}

void check(const http::native::claim& x, duration longest) {
  demand(!x.name || x.name->owner > 0, "a name without an owner");
  demand(x.length > duration::zero() && x.length <= longest, "a time beyond the longest");
}

void check(const http::native::keys_body& x) {
  demand(x.keys.size() <= most_items, "more keys than are allowed");
  demand(x.parents.empty() || x.parents.size() == x.keys.size(), "another number of parents than of keys");
  demand(std::ranges::none_of(x.keys, [](const key_digest& key) { return key.is_null(); }), "a key without a digest");
}

void check(const http::native::pages_body& x, bool is_commit) {
  demand(x.ticket.owner > 0, "a token without an owner");
  demand(x.rank < all_ranks, "a rank that stands for all");
  demand(x.pages.size() <= most_items, "more pages than are allowed");
  for (const auto& page : x.pages)
    demand(!page.key.is_null() && (!is_commit || page.where.generation > 0), "a page without a key or a generation");
}

} // namespace

int read_native_bodies(std::string_view text) {
  // Exactly of the required length, so that a sanitizer detects a read beyond the end.
  const auto buffer = std::make_unique<char[]>(text.size() + http::body_padding);
  text.copy(buffer.get(), text.size());
  static const auto options = sample_options();
  static const auto reader = std::make_shared<const http::caller>(http::caller{http::role::read, "r", "r", {}});
  http::request_parts parts;
  parts.body = {buffer.get(), text.size()};
  const http::request r{parts};
  parts.who = reader;
  const http::request of_reader{parts};
  int accepted = 0;

  if (const auto x = http::native::read_create(r); count(x, accepted)) {
    demand(!x->spec.name.empty() && x->spec.name.size() <= 64, "a namespace without a name, or with a long one");
    demand(!http::native::read_namespace_id(x->spec.name), "a name that is an id");
    demand((x->spec.world_size == 0) == x->options.automatic, "a world that contradicts itself");
    demand(!x->spec.id().is_null(), "a namespace without an identity");
    const auto& shape = x->spec.geometry;
    demand(shape.page_bytes() / std::max(1U, shape.block_tokens) < (std::uint64_t{1} << 50U),
           "a page beyond all bounds");
  }
  if (const auto x = http::native::read_rank(r); count(x, accepted))
    demand(x->rank < all_ranks && x->slots > 0, "a rank that stands for all, or without slots");
  if (const auto x = http::native::read_keys(r, options); count(x, accepted))
    check(*x);
  for (const auto* who : {&r, &of_reader}) {
    const auto longest = who == &r ? options.lease_max : options.readers_lease_max;
    if (const auto x = http::native::read_match(*who, options); count(x, accepted)) {
      check(*x);
      check(x->held, longest);
    }
    if (const auto x = http::native::read_locate(*who, options); count(x, accepted)) {
      check(*x);
      check(x->held, longest);
    }
    if (const auto x = http::native::read_lease(*who, options); count(x, accepted))
      demand(x->lease.owner > 0 && x->length > duration::zero() && x->length <= longest, "a lease beyond the longest");
  }
  if (const auto x = http::native::read_reserve(r, options); count(x, accepted)) {
    check(*x);
    check(x->held, options.reservation_max);
  }
  if (const auto x = http::native::read_commit(r, options); count(x, accepted))
    check(*x, true);
  if (const auto x = http::native::read_abort(r, options); count(x, accepted))
    check(*x, false);
  count(http::native::read_optional_rank(r), accepted);

  if (const auto x = http::native::read_key(text, "key", options); count(x, accepted))
    demand(!x->is_null(), "a key without a digest");
  if (const auto id = http::native::read_namespace_id(text))
    demand(text.size() == 32, "an id of another length");
  return accepted;
}

} // namespace troupe::fuzz
