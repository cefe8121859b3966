#pragma once

#include "actors/client/link/reconnect_backoff.hpp"
#include "actors/cluster/etcd/etcd_protocol.hpp"
#include "actors/cluster/etcd/listed_nodes.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// Send a request to etcd; answered by `on_answer`. One at a time.
struct etcd_request {
  std::uint64_t number = 0;
  std::string path;
  std::string body;
  /// The token of the current login; empty: none.
  std::string token{};
};
/// Log in with credentials that the rules do not have; answered like a request.
struct etcd_login {
  std::uint64_t number = 0;
};
/// Start a watch that replaces the one before; each line of it goes to `on_watch`, and its end to `on_watch_end`.
struct etcd_watch {
  std::uint64_t number = 0;
  std::string body;
  std::string token{};
};
/// The addresses that are in the list now.
struct etcd_members {
  std::vector<std::string> addresses;
};
/// A line for the log.
struct etcd_notified {
  bool bad = false;
  std::string text;
};

using etcd_effect = std::variant<etcd_request, etcd_login, etcd_watch, etcd_members, etcd_notified>;

struct etcd_options {
  /// For the log.
  std::string endpoints;
  /// The prefix of all keys. It ends with a slash; the address of a node follows it.
  std::string prefix;
  /// The address of this node for other nodes.
  std::string address;
  listed_node self;
  /// How long the entry stays after this node has died.
  duration lease{};
  duration backoff_min{};
  duration backoff_max{};
  std::uint64_t seed = 0;
  /// The user to log in as, for the log; empty: there is no login.
  std::string user{};
};

/// The list of nodes in etcd, and this node's entry in it: plain rules.
///
/// Two tracks run independently, because an etcd that is full can be read and not written:
/// - Registration puts this node's entry under a lease, and keeps the lease alive. If either is lost, both are made
///   again.
/// - Listing reads the list, and watches it from that revision on. When a watch ends, the list is read again, as after
///   a compaction. It is also read once per lease, because a watch whose connection has died silently delivers nothing.
///   A watch that missed a change is replaced.
///
/// Where there is a login, it precedes both, and is repeated whenever etcd refuses its token: tokens expire, are lost
/// with the member that issued them, and become invalid when the password changes. While authentication is disabled in
/// etcd, requests have no token, so that it can be enabled while nodes run.
///
/// The key of an entry is the address, so two nodes with the same name have two entries and do not conflict. If two
/// nodes advertise the same address, the entry belongs to the one that put it last. The list is still right, since it
/// only has addresses.
///
/// While etcd does not answer, the last known list stays valid. `membership` decides which nodes are used.
class etcd_rules {
public:
  explicit etcd_rules(etcd_options options);

  void on_time(timestamp now);
  timestamp next_event() const noexcept;

  void on_answer(std::uint64_t number, const result<etcd_reply>& answer, timestamp now);
  void on_watch(std::uint64_t number, std::string_view line, timestamp now);
  void on_watch_end(std::uint64_t number, timestamp now);

  /// Why the list is not known, or this node is not in it; empty without a problem.
  std::string trouble() const;
  etcd_stats stats() const;
  /// The request that removes this node from the list; empty where the node is not in it, or etcd is unreachable.
  std::optional<etcd_request> deregistration() const;

  std::vector<etcd_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class asking : std::uint8_t { nothing, login, grant, put, keep_alive, list };
  /// The state of registration, listing or login.
  struct track {
    reconnect_backoff backoff;
    timestamp next{};
    /// Failures in a row.
    std::uint32_t failures = 0;
    std::string why{};
  };

  /// From best to worst.
  enum class condition : std::uint8_t { well, not_registered, not_read, not_let_in };

  void ask(asking what, timestamp now);
  void register_next(timestamp now);
  void failed(track& x, const error& why, timestamp now);
  void answered(track& x);
  bool needs_login() const noexcept { return !options_.user.empty() && !logged_in_; }
  void on_login(const etcd_reply& reply, timestamp now);
  void on_grant(const etcd_reply& reply, timestamp now);
  void on_put(const etcd_reply& reply, timestamp now);
  void on_keep_alive(const etcd_reply& reply, timestamp now);
  void on_list(const etcd_reply& reply, timestamp now);
  void lease_lost(timestamp now);
  /// Call this when the entry is missing or invalid.
  void put_again(timestamp now);

  /// Checks the value of this node's entry.
  void look_at_own(std::string_view value, timestamp now);
  void report_members();
  /// Logs what the list has found.
  void report_warnings();
  void say(bool bad, std::string text) { outbox_.emplace_back(etcd_notified{bad, std::move(text)}); }
  condition state() const noexcept;
  /// Logs when the condition has become worse, and when it is well again.
  void say_state(condition was);
  duration keep_alive_pause() const { return options_.lease / 3; }

  etcd_options options_;
  track registering_;
  track listing_;
  track login_;
  reconnect_backoff watch_backoff_;
  asking asking_ = asking::nothing;
  std::uint64_t request_ = 0;
  timestamp asked_{};

  bool logged_in_ = false;
  /// Also empty where authentication is disabled in etcd, which has been logged then.
  std::string token_;
  bool notified_of_no_users_ = false;

  /// 0: none.
  std::int64_t lease_ = 0;
  /// When to keep the lease alive again, counted from the last request: etcd may have received that at once.
  timestamp renewal_{};
  bool put_ = false;
  std::int64_t put_revision_ = 0;

  listed_nodes nodes_;
  bool was_listed_ = false;
  std::int64_t revision_ = 0;
  /// 0: no watch is open.
  std::uint64_t watch_ = 0;
  std::uint64_t last_watch_ = 0;
  timestamp watch_began_{};

  std::uint64_t requests_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t leases_lost_ = 0;
  std::vector<etcd_effect> outbox_;
};

} // namespace troupe::cluster
