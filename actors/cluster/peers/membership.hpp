#pragma once

#include "actors/client/link/reconnect_backoff.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// The number of another node of the cluster: those of the config from 0 on, in their order, then others as they are
/// found. A number is never reused.
using peer_number = std::size_t;

/// Sends a hello to a peer; answered by `on_answer`.
struct say_hello {
  peer_number peer = 0;
  std::uint64_t number = 0;
};

/// A line for the log.
struct peer_news {
  bool bad = false;
  std::string text;
};

/// A peer has connected, connected again, or has other namespaces than before.
struct peer_came {
  peer_number peer = 0;
};
/// A peer has disconnected and takes no requests.
struct peer_went {
  peer_number peer = 0;
};

using membership_effect = std::variant<say_hello, peer_news, peer_came, peer_went>;

struct membership_options {
  cluster_card self;
  duration hello_interval{};
  duration backoff_min{};
  duration backoff_max{};
  std::uint64_t seed = 0;
};

/// Tracks which nodes of a cluster are reachable: plain rules.
///
/// Sends hellos to every node, at a fixed interval while it answers and with growing pauses while it does not. A node
/// recognizes itself in its own list by its incarnation, and skips that entry. A node of another cluster, or one that
/// refuses this one, is tried again with the longest pause, because an operator may correct that.
///
/// A peer that answered too late is not asked for pages until it has answered a hello again. So a peer that hangs
/// delays one lookup, and not each.
///
/// A name of the config that has several addresses, such as that of a headless service, stands for as many nodes. It is
/// resolved again now and then, and what it has resolved to is a list as well.
///
/// The nodes are those of the config and those of a list, such as etcd's. The list is a hint: a node that has left the
/// list is left out only when it does not answer either, and a node that answers stays. So a list that is lost, or
/// empty by mistake, does no harm, and a dead node is not tried forever.
class membership {
public:
  membership(const membership_options& options, std::vector<std::string> addresses);

  /// All peers, in order.
  std::vector<peer_number> numbers() const;
  /// False for a peer that was left out: nothing is known of it.
  bool is_known(peer_number peer) const { return peers_.contains(peer); }
  const std::string& address(peer_number peer) const { return at(peer).address; }
  const cluster_card& card(peer_number peer) const { return at(peer).card; }
  /// The namespaces of its last answer.
  const std::vector<cluster_namespace>& namespaces(peer_number peer) const { return at(peer).namespaces; }
  bool is_self(peer_number peer) const { return at(peer).self; }
  bool is_up(peer_number peer) const { return at(peer).up; }
  /// Whether it may be asked for pages.
  bool is_usable(peer_number peer) const { return at(peer).up && !at(peer).suspect; }
  /// From when the last answered hello was sent to when the answer arrived here; zero while the peer is not up.
  duration lag(peer_number peer) const { return at(peer).lag; }
  /// Why it is not up; empty before the first attempt has ended.
  const std::string& trouble(peer_number peer) const { return at(peer).trouble; }

  /// Takes over the addresses that are in the list now. Peers that are known already keep their numbers.
  void on_listed(const std::vector<std::string>& addresses, timestamp now);

  /// Takes over the addresses that a name of the config has now. Where there are several, each is a peer as if it was
  /// in the list, and the name itself is none. Otherwise the name is the peer.
  void on_resolved(const std::string& name, const std::vector<std::string>& addresses, timestamp now);

  void on_answer(peer_number peer, std::uint64_t number, const result<cluster_welcome>& answer, timestamp now);
  /// Call this when the connection to the peer has ended.
  void on_lost(peer_number peer, timestamp now);
  /// Call this when the peer has not answered a lookup in time.
  void on_late(peer_number peer);

  void on_time(timestamp now);
  timestamp next_event() const noexcept;

  std::vector<membership_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  struct entry {
    std::string address;
    reconnect_backoff backoff;
    cluster_card card{};
    std::vector<cluster_namespace> namespaces{};
    std::string trouble{};
    timestamp next{};
    timestamp asked_at{};
    duration lag{};
    /// The number of the hello that waits for an answer, or of the last one.
    std::uint64_t number = 0;
    /// Failures in a row, counted up to those that are logged.
    std::uint32_t failures = 0;
    bool waiting = false;
    bool up = false;
    bool self = false;
    bool suspect = false;
    /// An address of the config, which is never left out.
    bool fixed = false;
    bool listed = false;
  };

  const entry& at(peer_number peer) const;
  void say_left_out(const entry& x);
  /// Makes the peers those of the config, of the list, and of the names that have several addresses.
  void follow_lists(timestamp now);
  void replace_name(const std::string& name);
  void add(std::string address, bool fixed, timestamp now);

  void welcome(peer_number at, const cluster_welcome& answer, timestamp now);
  void mark_unreachable(peer_number at, const error& why, timestamp now);
  void say(bool bad, std::string text) { outbox_.emplace_back(peer_news{bad, std::move(text)}); }

  membership_options options_;
  std::map<peer_number, entry> peers_;
  peer_number next_number_ = 0;
  std::vector<std::string> listed_;
  /// The addresses of each name that has several.
  std::map<std::string, std::vector<std::string>> resolved_;
  std::vector<membership_effect> outbox_;
};

} // namespace troupe::cluster
