#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cluster {

/// Requests to etcd and its answers: the v3 API as JSON over HTTP, which etcd's gateway serves at the client port. Keys
/// and values are base64 there, 64-bit numbers are text, and fields that are zero or empty are left out.

/// An answer as it came.
struct etcd_reply {
  unsigned status = 0;
  std::string body;
};

/// The current state of a key, or its deletion.
struct etcd_entry {
  std::string key;
  std::string value;
  /// The revision of the store that changed it last.
  std::int64_t revision = 0;
  bool removed = false;

  friend bool operator==(const etcd_entry&, const etcd_entry&) = default;
};

/// All keys below a prefix, as of a revision.
struct etcd_range {
  std::int64_t revision = 0;
  std::vector<etcd_entry> entries;
};

struct etcd_lease {
  std::int64_t id = 0;
  /// The remaining time; 0: it has expired.
  std::int64_t seconds = 0;
};

/// One line of a watch.
struct etcd_news {
  std::int64_t revision = 0;
  std::vector<etcd_entry> entries;
  /// Why the watch has ended; empty while it continues.
  std::string end;
};

/// The limit of an answer and of a line of a watch: more cannot be a list of nodes.
inline constexpr std::size_t max_etcd_bytes = std::size_t{4} << 20U;

std::string login_body(std::string_view user, std::string_view password);
std::string grant_body(std::int64_t seconds);
std::string keep_alive_body(std::int64_t lease);
std::string put_body(std::string_view key, std::string_view value, std::int64_t lease);
/// A range of all keys with the prefix, which is not empty.
std::string range_body(std::string_view prefix);
std::string watch_body(std::string_view prefix, std::int64_t from_revision);

/// The token of a login, as it is sent in a header. Errors: unsupported where etcd has authentication disabled;
/// invalid_argument where user and password do not match; else as below. No error contains the credentials.
result<std::string> read_login(const etcd_reply& reply);

/// Errors: not_found where etcd does not know the lease; expired where it requires a login, or a new one; unreachable
/// for its other refusals, with etcd's text; corrupt for an answer that cannot be parsed.
result<etcd_lease> read_grant(const etcd_reply& reply);
result<etcd_lease> read_keep_alive(const etcd_reply& reply);
result<std::int64_t> read_put(const etcd_reply& reply);
result<etcd_range> read_range(const etcd_reply& reply);
result<etcd_news> read_watch(std::string_view line);

/// The value of a node's entry in the list.
struct listed_node {
  std::string node;
  std::uint64_t incarnation = 0;

  friend bool operator==(const listed_node&, const listed_node&) = default;
};

std::string write_listed(const listed_node& x);
/// Errors: corrupt.
result<listed_node> read_listed(std::string_view value);

/// Whether it is exactly HOST:PORT or [HOST]:PORT, as a node writes it.
bool is_listed_address(std::string_view x);

} // namespace troupe::cluster
