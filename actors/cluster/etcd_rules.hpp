#pragma once

#include "actors/client/link/reconnect_backoff.hpp"
#include "actors/cluster/etcd_wire.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// Ask etcd; answered by `on_answer`. One at a time.
struct etcd_request {
  std::uint64_t number = 0;
  std::string path;
  std::string body;
  /// Of the login that holds; empty: none.
  std::string token{};
};
/// Log in, with what the rules do not know; answered like a request.
struct etcd_login {
  std::uint64_t number = 0;
};
/// Begin a watch, in the place of the one before; each line of it goes to `on_watch`, and its end to `on_watch_end`.
struct etcd_watch {
  std::uint64_t number = 0;
  std::string body;
  std::string token{};
};
/// These addresses are in the list.
struct etcd_members {
  std::vector<std::string> addresses;
};
/// Something for the log.
struct etcd_told {
  bool bad = false;
  std::string text;
};

using etcd_effect = std::variant<etcd_request, etcd_login, etcd_watch, etcd_members, etcd_told>;

struct etcd_options {
  /// As people write them, for the log.
  std::string endpoints;
  /// Ends with a slash; the address of a node follows.
  std::string prefix;
  /// Of this node, as others reach it.
  std::string address;
  listed_node self;
  /// How long its entry stays when it has died.
  duration lease{};
  duration backoff_min{};
  duration backoff_max{};
  std::uint64_t seed = 0;
  /// Whom to log in as, for the log; empty: there is no login.
  std::string user{};
};

/// The list of nodes in etcd, and this one's place in it: plain rules.
///
/// Two things go on, and neither waits for the other, since an etcd that is full lets itself be read and not written:
/// - This node's entry is put under a lease, which is kept alive. Where either is gone, both are made anew.
/// - The list is read, and watched from that revision on. A watch that ends, as when its revision was compacted, has
/// the
///   list read again. It is read once per lease in any case: a watch whose connection has died in silence says nothing,
///   and one that missed something is begun anew.
///
/// Where there is a login, it comes before both, and again whenever etcd does not take its token any more: tokens end
/// after some time, with the member that has given them, and when the password changes. An etcd whose users are not
/// enabled is asked without one until they are, so that they can be enabled under nodes that run.
///
/// The key of an entry is the address, so that nodes of one name are two entries and no quarrel. Two nodes that say the
/// same address of themselves leave the entry to whoever came last: it is in the list, which is all that it is for.
///
/// When etcd does not answer, the list stays as it was known. What nodes do is not decided here: see `membership`.
class etcd_rules {
public:
  explicit etcd_rules(etcd_options options);

  void on_time(timestamp now);
  timestamp next_event() const noexcept;

  void on_answer(std::uint64_t number, const result<etcd_reply>& answer, timestamp now);
  void on_watch(std::uint64_t number, std::string_view line, timestamp now);
  void on_watch_end(std::uint64_t number, timestamp now);

  /// Why the list is not known, or this node is not in it; empty while all is well.
  std::string trouble() const;
  etcd_stats stats() const;
  /// What takes this node out of the list; nothing where it is not in it, or etcd is away.
  std::optional<etcd_request> farewell() const;

  std::vector<etcd_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class asking : std::uint8_t { nothing, login, grant, put, keep_alive, list };
  /// One of the two that go on, or what comes before them.
  struct track {
    reconnect_backoff backoff;
    timestamp next{};
    /// In a row.
    std::uint32_t failures = 0;
    std::string why{};
  };

  /// From good to bad.
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
  /// The entry is not there, or is another one's.
  void put_again(timestamp now);

  /// True if the list is another one now.
  bool take(const etcd_entry& x);
  /// What is in the place of this node's entry.
  void look_at_own(std::string_view value, timestamp now);
  void tell_names(const std::string& address, const listed_node& x);
  void tell_members();
  void say(bool bad, std::string text) { outbox_.emplace_back(etcd_told{bad, std::move(text)}); }
  condition state() const noexcept;
  /// When it is worse than it was, and when all is well again.
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
  /// Empty as well where etcd asks nobody who they are, which has been told.
  std::string token_;
  bool told_of_no_users_ = false;

  /// 0: none.
  std::int64_t lease_ = 0;
  /// When the lease is to be kept alive again, counted from when that was asked for: etcd may have heard it at once.
  timestamp renewal_{};
  bool put_ = false;
  std::int64_t put_revision_ = 0;

  /// By address.
  std::map<std::string, listed_node> nodes_;
  /// Keys of entries that are none, as long as they are there; those that were told of.
  std::set<std::string> senseless_;
  std::set<std::string> told_;
  bool was_listed_ = false;
  std::int64_t revision_ = 0;
  /// 0: none is under way.
  std::uint64_t watch_ = 0;
  std::uint64_t last_watch_ = 0;
  timestamp watch_began_{};

  std::uint64_t requests_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t leases_lost_ = 0;
  std::vector<etcd_effect> outbox_;
};

} // namespace troupe::cluster
