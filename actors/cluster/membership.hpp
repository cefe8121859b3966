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

/// Another node of the cluster: those of the config from 0 on, in their order, then others as they come. Never used for
/// another one.
using peer_number = std::size_t;

/// Says hello to a peer, and tells `on_answer` what became of it.
struct say_hello {
  peer_number peer = 0;
  std::uint64_t number = 0;
};

/// Something for the log.
struct peer_news {
  bool bad = false;
  std::string text;
};

/// A peer is there, or is there again, or has other namespaces than before.
struct peer_came {
  peer_number peer = 0;
};
/// Nothing is to be asked of it.
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

/// Which nodes of a cluster are there: plain rules.
///
/// Each is told who this one is, again and again while it answers, and with growing pauses while it does not. A node
/// that is in its own list knows itself by its incarnation, and leaves itself alone. One of another cluster, or one
/// that refuses this one, is asked again with the longest pause, since somebody may mend that.
///
/// A peer that was late with an answer is not asked for pages until it has answered a hello again: one that stands
/// still costs one lookup its time, and not each.
///
/// Beside those of the config there are those of a list, as etcd has it. The list is a hint: a node that it has no more
/// is left out when it does not answer either, and one that answers stays, whatever the list says. So a list that is
/// lost, or empty by mistake, costs nothing, and a node that has died is not looked for forever.
class membership {
public:
  membership(const membership_options& options, std::vector<std::string> addresses);

  /// All of them, in order.
  std::vector<peer_number> numbers() const;
  /// False of one that was left out: nothing is known of it.
  bool is_known(peer_number peer) const { return peers_.contains(peer); }
  const std::string& address(peer_number peer) const { return at(peer).address; }
  const cluster_card& card(peer_number peer) const { return at(peer).card; }
  /// What it has said last.
  const std::vector<cluster_space>& spaces(peer_number peer) const { return at(peer).spaces; }
  bool is_self(peer_number peer) const { return at(peer).self; }
  bool is_up(peer_number peer) const { return at(peer).up; }
  /// It is to be asked for pages.
  bool is_usable(peer_number peer) const { return at(peer).up && !at(peer).suspect; }
  /// From the last hello that it has answered to the answer, as it was seen here; zero while it is not up.
  duration lag(peer_number peer) const { return at(peer).lag; }
  /// Why it is not up; empty where nobody has asked yet.
  const std::string& trouble(peer_number peer) const { return at(peer).trouble; }

  /// These are in the list now. What is there already keeps its number.
  void on_listed(const std::vector<std::string>& addresses, timestamp now);

  void on_answer(peer_number peer, std::uint64_t number, const result<cluster_welcome>& answer, timestamp now);
  /// The connection to it has ended.
  void on_lost(peer_number peer, timestamp now);
  /// It has not answered a lookup in time.
  void on_late(peer_number peer);

  void on_time(timestamp now);
  timestamp next_event() const noexcept;

  std::vector<membership_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  struct entry {
    std::string address;
    reconnect_backoff backoff;
    cluster_card card{};
    std::vector<cluster_space> spaces{};
    std::string trouble{};
    timestamp next{};
    timestamp asked_at{};
    duration lag{};
    /// Of the hello under way, or the last one.
    std::uint64_t number = 0;
    /// In a row, as far as they were not told of.
    std::uint32_t failures = 0;
    bool waiting = false;
    bool up = false;
    bool self = false;
    bool suspect = false;
    /// Of the config: is never left out.
    bool fixed = false;
    bool listed = false;
  };

  const entry& at(peer_number peer) const;
  void say_left_out(const entry& x);
  void add(std::string address, bool fixed, timestamp now);

  void welcome(peer_number at, const cluster_welcome& answer, timestamp now);
  void away(peer_number at, const error& why, timestamp now);
  void say(bool bad, std::string text) { outbox_.emplace_back(peer_news{bad, std::move(text)}); }

  membership_options options_;
  std::map<peer_number, entry> peers_;
  peer_number next_number_ = 0;
  std::vector<membership_effect> outbox_;
};

} // namespace troupe::cluster
