#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::transfer {

/// One lookup: which leading keys of a run are complete here, with what other nodes have of the rest brought here
/// first. Rules of every lookup that may ask peers, whoever asks for it: time and answers are arguments, what is to be
/// sent is in the outbox.
///
/// Each shard reports and leases the leading complete keys of its own part; the prefix ends at the first key that any
/// shard misses, and what was leased beyond that is given back.
///
/// Where the node has peers and the prefix ends before the keys do, they are asked to bring the rest, while what was
/// found stays leased. If they have brought something, all is matched again, under a lease of its own: what counts is
/// what is here then. If that is more than was brought, since what follows was here already, and not all, they are
/// asked for what follows that, a bounded number of times, and within the time that the node gives one lookup for that:
/// each time they are told how long it has waited before. If they have brought nothing, or do not answer, or that
/// fails, what was found before is the answer; its lease is shorter by what asking took.
class bringing {
public:
  struct terms {
    namespace_id space;
    std::uint32_t shard_count = 0;
    /// How long a lease lasts.
    duration lease_for{};
    /// As in `match_request`.
    bool tell_on_disk = false;
    /// Other nodes can be asked for what is not here.
    bool has_peers = false;
    /// It ends then at the latest; and so long after peers were asked first.
    timestamp deadline = timestamp::max();
    duration peers_limit = duration::max();
  };

  /// Answered by `on_match`, with the part.
  struct match {
    std::size_t part = 0;
    std::uint32_t shard = 0;
    match_request request;
  };
  /// Nobody waits for the answer.
  struct release {
    std::uint32_t shard = 0;
    release_request request;
  };
  /// Keys that are not here, for other nodes to be asked. Answered by `on_bring`.
  struct bring {
    bring_request request;
  };
  using effect = std::variant<match, release, bring>;

  /// What is complete here, and held.
  struct finding {
    std::uint32_t matched = 0;
    /// Null where nothing is held.
    ticket lease;
    /// Where it holds something.
    std::vector<std::uint32_t> shards;
    timestamp expires;
    /// As in `lookup_result`.
    packed<std::uint8_t> on_disk{};
  };

  /// How often peers are asked for one lookup.
  static constexpr std::uint32_t brings_max = 4;

  bringing(const terms& how, std::vector<key_digest> keys);

  /// To be called once. A lease is a name that nothing was leased by before.
  void start(const ticket& lease, timestamp now);
  void on_match(std::size_t part, result<match_reply> reply, timestamp now);
  /// `lease` is for matching again.
  void on_bring(const result<bring_reply>& reply, const ticket& lease);
  void on_tick(timestamp now);

  /// Nobody waits for it any more: what is held goes back, and the outcome is an error, `cancelled`. Once it has ended,
  /// nothing happens.
  void give_up();
  /// Of what was found, so many leading keys are needed: the rest goes back. Nothing happens where nothing was found.
  void keep(std::uint32_t count);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// There once it has ended; whatever is answered after that counts no more. An error where the shards did not answer
  /// and nothing was found before.
  const std::optional<result<finding>>& outcome() const noexcept { return outcome_; }
  /// Peers are asked at present.
  bool is_asking() const noexcept { return at_ == phase::bringing; }
  timestamp deadline() const noexcept { return how_.deadline; }
  /// How long what is found is held.
  duration lease_for() const noexcept { return how_.lease_for; }

private:
  struct part {
    std::uint32_t shard = 0;
    std::vector<std::uint32_t> positions;
    std::uint32_t matched = 0;
    std::vector<std::uint8_t> on_disk;
    bool answered = false;
  };
  enum class phase : std::uint8_t {
    matching,
    /// Other nodes are asked.
    bringing,
    /// And have brought something.
    matching_again,
    ended,
  };

  /// All parts, under a new lease.
  void send_matches(const ticket& lease);
  void send_match(std::size_t index);
  void send_bring(timestamp now);
  /// All parts have been answered.
  void matched_all(timestamp now);
  /// Gives back what was leased beyond the prefix.
  finding settle(timestamp now);
  void give_back(const finding& x);
  /// Whatever the shards have leased by now, under the lease of the match under way.
  void release_everywhere();
  void end(result<finding> with);
  /// Of the leading `matched` keys, where all parts have said so.
  packed<std::uint8_t> joined_on_disk(std::uint32_t matched) const;

  terms how_;
  std::vector<key_digest> keys_;
  phase at_ = phase::matching;
  /// Of the match under way, or the last one.
  ticket lease_;
  std::vector<part> parts_;
  std::size_t waiting_ = 0;
  error failure_{errc::ok, {}};
  /// Behind the match before.
  finding before_;
  /// As far as peers have said that it is here; how often they were asked, and when they were first.
  std::uint32_t brought_ = 0;
  std::uint32_t asked_ = 0;
  timestamp asked_at_{};
  std::optional<result<finding>> outcome_;
  std::vector<effect> outbox_;
};

} // namespace troupe::transfer
