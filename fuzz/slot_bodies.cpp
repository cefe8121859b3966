#include "fuzz/slot_bodies.hpp"

#include "fuzz/accepted.hpp"
#include "fuzz/check.hpp"
#include "http/hf3fs/hf3fs_body.hpp"
#include "http/server/request.hpp"
#include "http/sglang/sglang_body.hpp"

#include <memory>
#include <set>
#include <vector>

namespace troupe::fuzz {

namespace {

constexpr std::size_t most_keys = 50;

void check(const http::slots::wanted_pages& x, bool has_text) {
  demand(x.places.size() <= most_keys, "more keys than are allowed");
  demand(std::set(x.keys.begin(), x.keys.end()).size() == x.keys.size(), "a duplicate key");
  std::size_t next = 0;
  for (const auto place : x.places) {
    demand(place <= next && place < x.keys.size(), "keys out of the order in which they first occur");
    next += place == next ? 1 : 0;
  }
  demand(next == x.keys.size(), "a key without a request");
  demand(x.text_ends.size() == (has_text ? x.keys.size() : 0), "another number of texts than of keys");
  std::size_t begin = 0;
  for (const auto end : x.text_ends) {
    demand(end >= begin + 2 && x.text[begin] == '"' && x.text[end - 1] == '"', "a text without its quotes");
    begin = end;
  }
  demand(begin == x.text.size(), "text behind the last key");
}

void check(const http::slots::written_pages& x) {
  demand(x.written.size() <= most_keys && x.released.size() <= most_keys, "more pages than are allowed");
  for (const auto& page : x.written)
    demand(!page.key.is_null() && page.where.generation == 0, "a page without a key, or with a generation");
}

void check(const std::vector<key_digest>& keys) {
  demand(keys.size() <= most_keys, "more keys than are allowed");
  for (const auto& key : keys)
    demand(!key.is_null(), "a key without a digest");
}

} // namespace

int read_slot_bodies(std::string_view text) {
  // Exactly of the required length, so that a sanitizer detects a read beyond the end.
  const auto buffer = std::make_unique<char[]>(text.size() + http::body_padding);
  text.copy(buffer.get(), text.size());
  const std::string_view body{buffer.get(), text.size()};
  static const http::slots::client_keys keys{{}};
  const http::slots::body_rules rules{most_keys, keys};
  int accepted = 0;

  if (const auto x = http::hf3fs::read_initialize(body); count(x, accepted))
    demand(x->is_scheduler || x->pages > 0, "a rank without pages");
  if (const auto x = http::hf3fs::read_allocate(body, rules); count(x, accepted))
    check(x->wanted, true);
  if (const auto x = http::hf3fs::read_confirm(body, rules); count(x, accepted))
    check(x->pages);
  if (const auto x = http::hf3fs::read_exists(body, rules); count(x, accepted))
    check(*x);
  if (const auto x = http::hf3fs::read_locate(body, rules); count(x, accepted))
    check(x->keys);

  if (const auto x = http::sglang::read_initialize(body); count(x, accepted))
    demand(x->pages > 0 && http::slots::checked_name(x->ns).has_value(), "a rank without pages or a namespace");
  if (const auto x = http::sglang::read_reserve(body, rules); count(x, accepted))
    check(x->wanted, false);
  if (const auto x = http::sglang::read_confirm(body, rules); count(x, accepted))
    check(x->pages);
  if (const auto x = http::sglang::read_keys(body, rules); count(x, accepted))
    check(x->keys);
  if (const auto x = http::sglang::read_clear(body); count(x, accepted))
    demand(http::slots::checked_name(x->ns).has_value(), "a namespace without a name");

  if (const auto x = http::slots::rank_from_text(text); count(x, accepted))
    demand(std::to_string(*x) == text, "a rank in another notation");
  if (const auto x = http::slots::checked_name(text); count(x, accepted))
    demand(*x == text && text.size() <= 64, "another name than was given");
  return accepted;
}

} // namespace troupe::fuzz
