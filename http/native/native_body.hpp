#pragma once

#include "http/native/native.hpp"
#include "http/server/json_body.hpp"
#include "messages/registry_slot_messages.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

/// Parsing of the native API's bodies. Everything is validated here; an error names the place in the body.

namespace troupe::http::native {

/// Reads a key of a body or a path. 32 hexadecimal digits are the digest itself. All other text is hashed; the prefix
/// "text:", which is not hashed, makes a text of any 32 hexadecimal digits. 422 for an empty text and for 32 zeros,
/// which do not name a key.
accepted<key_digest> read_key(std::string_view text, std::string_view where, const options& options);

/// 32 hexadecimal digits; none for other text.
std::optional<namespace_id> read_namespace_id(std::string_view text);

/// The request for a lease or a reservation: its name, if the caller sets one, and its duration.
struct claim {
  std::optional<ticket> name;
  duration length{};
};

struct rank_body {
  rank_number rank = 0;
  std::uint32_t slots = 0;
};
accepted<rank_body> read_rank(const request& r);

/// `rank` is `all_ranks` if it is optional and missing.
struct keys_body {
  rank_number rank = all_ranks;
  std::vector<key_digest> keys;
  /// Empty, or parallel to `keys`; null for none.
  std::vector<key_digest> parents;
  claim held;
};
/// Keys, and an optional rank.
accepted<keys_body> read_keys(const request& r, const options& options);
/// Keys, and an optional lease.
accepted<keys_body> read_match(const request& r, const options& options);
/// The same, with a rank.
accepted<keys_body> read_locate(const request& r, const options& options);
/// Keys, optional parents, a rank, and an optional ticket.
accepted<keys_body> read_reserve(const request& r, const options& options);

struct pages_body {
  rank_number rank = 0;
  troupe::ticket ticket;
  std::vector<page_ref> pages;
};
accepted<pages_body> read_commit(const request& r, const options& options);
/// Missing pages mean all of the ticket's; a missing slot means the reserved one.
accepted<pages_body> read_abort(const request& r, const options& options);

/// A required lease.
struct lease_body {
  ticket lease;
  duration length{};
};
accepted<lease_body> read_lease(const request& r, const options& options);

/// A body that is empty or `{}`, or has a rank.
accepted<rank_number> read_optional_rank(const request& r);

/// A parameter of the query that is true or false; false if it is missing.
accepted<bool> read_flag(const request& r, std::string_view name);

} // namespace troupe::http::native
