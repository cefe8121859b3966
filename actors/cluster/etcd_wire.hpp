#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cluster {

/// What is said to an etcd, and what it answers: its v3 API as JSON over HTTP, which its gateway serves at the port for
/// clients. Keys and values are base64 there, numbers of 64 bits are text, and what is zero or empty is left out.

/// An answer as it came.
struct etcd_reply {
  unsigned status = 0;
  std::string body;
};

/// A key as it is, or that it is gone.
struct etcd_entry {
  std::string key;
  std::string value;
  /// The revision of the store in which it became so.
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
  /// 0: it is over.
  std::int64_t seconds = 0;
};

/// One line of a watch.
struct etcd_news {
  std::int64_t revision = 0;
  std::vector<etcd_entry> entries;
  /// Why nothing follows; empty if something may.
  std::string end;
};

/// Of an answer, and of a line of a watch: more is no list of nodes.
inline constexpr std::size_t max_etcd_bytes = std::size_t{4} << 20U;

std::string login_body(std::string_view user, std::string_view password);
std::string grant_body(std::int64_t seconds);
std::string keep_alive_body(std::int64_t lease);
std::string put_body(std::string_view key, std::string_view value, std::int64_t lease);
/// Of all keys that begin so. The prefix is not empty.
std::string range_body(std::string_view prefix);
std::string watch_body(std::string_view prefix, std::int64_t from_revision);

/// The token that lets its bearer in, as it stands in a header. Errors: unsupported where etcd asks nobody who they
/// are; invalid_argument where user and password do not fit; else as below. Never with what was said to log in.
result<std::string> read_login(const etcd_reply& reply);

/// Errors: not_found where etcd knows no such lease; expired where it wants a login, or another one; unreachable for
/// its other refusals, with its own words; corrupt for what is no answer to that.
result<etcd_lease> read_grant(const etcd_reply& reply);
result<etcd_lease> read_keep_alive(const etcd_reply& reply);
result<std::int64_t> read_put(const etcd_reply& reply);
result<etcd_range> read_range(const etcd_reply& reply);
result<etcd_news> read_watch(std::string_view line);

/// What a node says of itself in the list.
struct listed_node {
  std::string node;
  std::uint64_t incarnation = 0;

  friend bool operator==(const listed_node&, const listed_node&) = default;
};

std::string write_listed(const listed_node& x);
/// Errors: corrupt.
result<listed_node> read_listed(std::string_view value);

/// HOST:PORT or [HOST]:PORT, as a node writes it, and nothing else.
bool is_listed_address(std::string_view x);

} // namespace troupe::cluster
