#pragma once

#include "actors/node/registry/lookup_history.hpp"
#include "base/namespace_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The rules of `troupe explain`: what a lookup found, and why not more. Plain functions of what the shards recorded.

namespace troupe::http::explain {

/// One lookup, of all shards together.
struct joined_lookup {
  ticket name{};
  request_name request{};
  namespace_id ns{};
  timestamp at{};
  std::uint32_t asked = 0;
  /// The keys of the prefix that was found; with `each`, all keys that were found.
  std::uint32_t found = 0;
  /// How many of the found keys had to be read from disk, if `tiers_known`, and how many were fetched from another node
  /// for this lookup.
  std::uint32_t on_disk = 0;
  std::uint32_t fetched = 0;
  bool tiers_known = true;
  bool each = false;
  errc refused = errc::ok;
  /// How often the client has looked up the same keys before, until other nodes had sent theirs.
  std::uint32_t repeats = 0;
  /// The keys with which the prefix may have ended: one, or one for each shard that missed a key where the order of
  /// these keys is unknown.
  std::vector<explained_part> ends{};
  /// The first keys of all parts, by which repetitions are recognized.
  std::vector<key_digest> firsts{};
};

/// Joins the parts of lookups, the newest lookup first, and at most `most` of them. Lookups that were repeated after a
/// fetch from other nodes are one.
std::vector<joined_lookup> join(std::vector<explained_part> parts, std::size_t most);

/// A field in which two identities differ. The values are empty for those that are secret.
struct identity_difference {
  std::string_view field;
  std::string here;
  std::string there;
};

/// Names a salt only as different.
std::vector<identity_difference> differences(const namespace_spec& here, const namespace_spec& there);

/// A namespace, other than that of the lookup, that has the missing key.
struct other_namespace {
  std::string name;
  bool complete = false;
  std::vector<identity_difference> differs;
};

/// Everything that is known about one missing key.
struct missing_key {
  explained_part known{};
  /// How many ranks make a key complete.
  std::uint32_t ranks = 0;
  /// Whether the key is complete now.
  bool complete_now = false;
  std::vector<other_namespace> others{};
  /// Since when all removals are known.
  timestamp events_since{};
  /// Whether the node started at that time.
  bool since_start = false;
};

/// A word for programs, and a sentence for people.
struct verdict {
  std::string_view reason;
  std::string text;
};

/// Why a lookup did not find this key.
verdict why_missing(const missing_key& x);
/// Why a lookup was refused.
verdict why_refused(errc code);

/// "0123456789abcdef-2a": names a lookup in answers and questions.
std::string id_of(const ticket& x);
std::optional<ticket> ticket_of(std::string_view id);

} // namespace troupe::http::explain
