#pragma once

#include "http/native/native.hpp"
#include "http/server/json_body.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

/// What the bodies of the native API say. Everything is checked here; what is wrong is refused with the place where it
/// stands.

namespace troupe::http::native {

/// A key as it stands in a body or a path. 32 hexadecimal digits are the digest itself. All other text is hashed;
/// "text:" in front, which does not count, makes a text of any 32 hexadecimal digits. 422 for no text at all and for
/// 32 zeros, which stand for no key.
accepted<key_digest> read_key(std::string_view text, std::string_view where, const options& options);

/// 32 hexadecimal digits; nothing for other text.
std::optional<namespace_id> read_namespace_id(std::string_view text);

/// How a lease or a reservation is asked for: its name, if the caller has one, and for how long.
struct claim {
  std::optional<ticket> name;
  duration length{};
};

struct rank_body {
  rank_number rank = 0;
  std::uint32_t slots = 0;
};
accepted<rank_body> read_rank(const request& r);

/// `rank` is `all_ranks` where a body may leave it out and does.
struct keys_body {
  rank_number rank = all_ranks;
  std::vector<key_digest> keys;
  /// Empty, or parallel to `keys`; null where there is none.
  std::vector<key_digest> parents;
  claim held;
};
/// Keys, and a rank that may be missing.
accepted<keys_body> read_keys(const request& r, const options& options);
/// Keys, and a lease that may be missing.
accepted<keys_body> read_match(const request& r, const options& options);
/// The same, with a rank.
accepted<keys_body> read_locate(const request& r, const options& options);
/// Keys, parents that may be missing, a rank, and a ticket that may be missing.
accepted<keys_body> read_reserve(const request& r, const options& options);

struct pages_body {
  rank_number rank = 0;
  troupe::ticket ticket;
  std::vector<page_ref> pages;
};
accepted<pages_body> read_commit(const request& r, const options& options);
/// Pages may be missing, which means all of the ticket's; so may their slots, which means whatever was reserved.
accepted<pages_body> read_abort(const request& r, const options& options);

/// A lease that there must be.
struct lease_body {
  ticket lease;
  duration length{};
};
accepted<lease_body> read_lease(const request& r, const options& options);

/// A body that is empty or `{}`, or has a rank.
accepted<rank_number> read_optional_rank(const request& r);

/// A parameter of the query that is true or false; false if it is not there.
accepted<bool> read_flag(const request& r, std::string_view name);

} // namespace troupe::http::native
