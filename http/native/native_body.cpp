#include "http/native/native_body.hpp"

#include "base/hex.hpp"
#include "http/native/native_members.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>

namespace troupe::http::native {

namespace {

using simdjson::dom::object;

constexpr std::size_t digest_digits = 32;
constexpr std::string_view text_mark = "text:";
/// A rank and a slot fit; the highest rank stands for all.
constexpr std::uint64_t max_rank = all_ranks - 1;
constexpr std::uint64_t max_slots = 1ULL << 30U;

std::optional<std::uint64_t> hex_word(std::string_view digits) noexcept {
  std::uint64_t out = 0;
  for (const auto c : digits) {
    const auto value = hex_value(c);
    if (value < 0)
      return std::nullopt;
    out = out << 4U | static_cast<std::uint64_t>(value);
  }
  return out;
}

template <class Digest>
std::optional<Digest> read_digest(std::string_view text) noexcept {
  if (text.size() != digest_digits)
    return std::nullopt;
  const auto hi = hex_word(text.substr(0, digest_digits / 2));
  const auto lo = hex_word(text.substr(digest_digits / 2));
  if (!hi || !lo)
    return std::nullopt;
  return Digest{*hi, *lo};
}

accepted<void> into_keys(std::vector<key_digest>& out, const object& x, const options& options) {
  const auto items = array_member(x, "keys", options.max_items);
  if (!items)
    return hand_on(items);
  out.reserve(items->size());
  for (const auto item : *items) {
    std::string_view text;
    if (item.get_string().get(text) != simdjson::SUCCESS)
      return hand_on(as_string(item, place("keys", out.size())));
    const auto key = read_key(text, "keys", options);
    if (!key)
      return hand_on(read_key(text, place("keys", out.size()), options));
    out.push_back(*key);
  }
  return {};
}

/// One parent for each key; null or "" for none.
accepted<void> into_parents(keys_body& out, const object& x, const options& options) {
  simdjson::dom::element found;
  if (x.at_key("parents").get(found) != simdjson::SUCCESS || found.is_null())
    return {};
  const auto items = as_array(found, "parents", options.max_items);
  if (!items)
    return hand_on(items);
  if (items->size() != out.keys.size())
    return refuse("parents", "must have one item for each key, null for none");
  out.parents.reserve(items->size());
  for (const auto item : *items) {
    if (item.is_null()) {
      out.parents.emplace_back();
      continue;
    }
    const auto where = place("parents", out.parents.size());
    const auto text = as_string(item, where);
    if (!text)
      return hand_on(text);
    const auto key = read_key(*text, where, options);
    if (!key)
      return hand_on(key);
    out.parents.push_back(*key);
  }
  return {};
}

accepted<ticket> as_ticket(const object& x) {
  const auto owner = unsigned_member(x, "owner", 1, std::numeric_limits<std::uint64_t>::max());
  if (!owner)
    return hand_on(owner);
  const auto sequence = unsigned_member(x, "sequence", 0, std::numeric_limits<std::uint64_t>::max());
  if (!sequence)
    return hand_on(sequence);
  return ticket{*owner, *sequence};
}

accepted<ticket> ticket_member(const object& x, std::string_view name) {
  const auto found = object_member(x, name);
  if (!found)
    return hand_on(found);
  auto value = as_ticket(*found);
  if (!value)
    return tl::unexpected(rejection{value.error().code, std::string{name} + "." + value.error().detail});
  return value;
}

accepted<std::optional<ticket>> optional_ticket_member(const object& x, std::string_view name) {
  simdjson::dom::element found;
  if (x.at_key(name).get(found) != simdjson::SUCCESS || found.is_null())
    return std::optional<ticket>{};
  const auto value = ticket_member(x, name);
  if (!value)
    return hand_on(value);
  return std::optional<ticket>{*value};
}

accepted<duration> length_member(const object& x, std::string_view name, duration standard, duration max) {
  using std::chrono::milliseconds;
  const auto most = std::max<std::int64_t>(1, std::chrono::duration_cast<milliseconds>(max).count());
  const auto value = optional_unsigned_member(x, name, 1, static_cast<std::uint64_t>(most));
  if (!value)
    return hand_on(value);
  if (!*value)
    return std::min(standard, max);
  return duration{milliseconds{static_cast<std::int64_t>(**value)}};
}

accepted<duration> lease_length_member(const object& x, const request& r, const options& options) {
  const auto max =
      r.caller() == role::read ? std::min(options.readers_lease_max, options.lease_max) : options.lease_max;
  return length_member(x, "lease_for_ms", options.lease_default, max);
}

accepted<rank_number> rank_member(const object& x) {
  const auto rank = unsigned_member(x, "rank", 0, max_rank);
  if (!rank)
    return hand_on(rank);
  return static_cast<rank_number>(*rank);
}

accepted<rank_number> optional_rank_member(const object& x) {
  const auto rank = optional_unsigned_member(x, "rank", 0, max_rank);
  if (!rank)
    return hand_on(rank);
  return rank->has_value() ? static_cast<rank_number>(**rank) : all_ranks;
}

accepted<page_ref> as_page(const simdjson::dom::element& item, std::string_view where, bool needs_slot,
                           const options& options) {
  const auto members = as_object(item, where);
  if (!members)
    return hand_on(members);
  const auto within = [&](const auto& failed) {
    return tl::unexpected(rejection{failed.error().code, std::string{where} + "." + failed.error().detail});
  };
  const auto text = string_member(*members, "key");
  if (!text)
    return within(text);
  const auto key = read_key(*text, "key", options);
  if (!key)
    return within(key);
  page_ref out{*key, {}};
  constexpr std::uint64_t max = std::numeric_limits<std::uint32_t>::max();
  if (auto read = number_into(out.where.slot, *members, "slot", 0, max); !read)
    return within(read);
  if (auto read = number_into(out.where.generation, *members, "generation", 0, max); !read)
    return within(read);
  if (needs_slot && out.where.generation == 0)
    return refuse(where, "slot and generation are required, as returned by the reservation");
  return out;
}

accepted<pages_body> read_pages(const request& r, bool is_commit, const options& options) {
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  const auto rank = rank_member(*body);
  if (!rank)
    return hand_on(rank);
  const auto held = ticket_member(*body, "token");
  if (!held)
    return hand_on(held);
  pages_body out{*rank, *held, {}};
  simdjson::dom::element found;
  if (!is_commit && (body->at_key("pages").get(found) != simdjson::SUCCESS || found.is_null()))
    return out;
  const auto items = array_member(*body, "pages", options.max_items);
  if (!items)
    return hand_on(items);
  if (!is_commit && items->size() == 0)
    return refuse("pages", "is empty; leave it out to abort all pages of the ticket");
  out.pages.reserve(items->size());
  for (const auto item : *items) {
    const auto page = as_page(item, place("pages", out.pages.size()), is_commit, options);
    if (!page)
      return hand_on(page);
    out.pages.push_back(*page);
  }
  return out;
}

/// The kinds of requests with keys, by their other members.
enum class keys_request : std::uint8_t { plain, match, locate, reserve };

accepted<keys_body> read_keys_of(const request& r, keys_request kind, const options& options) {
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  keys_body out;
  if (kind != keys_request::match) {
    const auto rank = kind == keys_request::plain ? optional_rank_member(*body) : rank_member(*body);
    if (!rank)
      return hand_on(rank);
    out.rank = *rank;
  }
  if (auto read = into_keys(out.keys, *body, options); !read)
    return hand_on(read);
  if (kind == keys_request::plain)
    return out;
  const bool reserves = kind == keys_request::reserve;
  if (reserves)
    if (auto read = into_parents(out, *body, options); !read)
      return hand_on(read);
  const auto name = optional_ticket_member(*body, reserves ? "token" : "lease");
  if (!name)
    return hand_on(name);
  out.held.name = *name;
  const auto length = reserves
                          ? length_member(*body, "expires_in_ms", options.reservation_default, options.reservation_max)
                          : lease_length_member(*body, r, options);
  if (!length)
    return hand_on(length);
  out.held.length = *length;
  return out;
}

} // namespace

accepted<key_digest> read_key(std::string_view text, std::string_view where, const options& options) {
  if (const auto digest = read_digest<key_digest>(text)) {
    if (digest->is_null())
      return refuse(where, "32 zeros do not name a key");
    return *digest;
  }
  if (text.starts_with(text_mark))
    text.remove_prefix(text_mark.size());
  if (text.empty())
    return refuse(where, "expected a key: 32 hexadecimal digits, or text");
  const auto digest = options.hash_text ? options.hash_text(text) : hash_key(std::as_bytes(std::span{text}));
  if (digest.is_null())
    return refuse(where, "this text cannot be a key");
  return digest;
}

std::optional<namespace_id> read_namespace_id(std::string_view text) {
  return read_digest<namespace_id>(text);
}

accepted<rank_body> read_rank(const request& r) {
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  const auto rank = rank_member(*body);
  if (!rank)
    return hand_on(rank);
  const auto slots = unsigned_member(*body, "slots", 1, max_slots);
  if (!slots)
    return hand_on(slots);
  return rank_body{*rank, static_cast<std::uint32_t>(*slots)};
}

accepted<keys_body> read_keys(const request& r, const options& options) {
  return read_keys_of(r, keys_request::plain, options);
}

accepted<keys_body> read_match(const request& r, const options& options) {
  return read_keys_of(r, keys_request::match, options);
}

accepted<keys_body> read_locate(const request& r, const options& options) {
  return read_keys_of(r, keys_request::locate, options);
}

accepted<keys_body> read_reserve(const request& r, const options& options) {
  return read_keys_of(r, keys_request::reserve, options);
}

accepted<pages_body> read_commit(const request& r, const options& options) {
  return read_pages(r, true, options);
}

accepted<pages_body> read_abort(const request& r, const options& options) {
  return read_pages(r, false, options);
}

accepted<lease_body> read_lease(const request& r, const options& options) {
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  const auto lease = ticket_member(*body, "lease");
  if (!lease)
    return hand_on(lease);
  const auto length = lease_length_member(*body, r, options);
  if (!length)
    return hand_on(length);
  return lease_body{*lease, *length};
}

accepted<rank_number> read_optional_rank(const request& r) {
  if (r.body().empty())
    return all_ranks;
  const auto body = parse_json_object(r);
  if (!body)
    return hand_on(body);
  return optional_rank_member(*body);
}

accepted<bool> read_flag(const request& r, std::string_view name) {
  const auto value = r.query(name);
  if (!value || *value == "false" || *value == "0")
    return false;
  if (*value == "true" || *value == "1")
    return true;
  return tl::unexpected(rejection{status::bad_request, std::string{name} + ": expected true or false"});
}

} // namespace troupe::http::native
