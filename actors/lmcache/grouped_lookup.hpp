#pragma once

#include "actors/client/transfer/key_lookup.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "lmcache/group_chunks.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::lmcache {

/// The rules of one lookup for workers with several groups of layers, each in a namespace of its own: one lookup, one
/// answer. Time and answers are arguments; messages to send are in the outbox.
///
/// All groups are looked up at once, and all complete chunks leased, behind missing ones too. The hit is the longest
/// prefix for which every group has what it needs; leases on everything else are given back, and only what the hit
/// needs counts as used.
///
/// If that is not all and there are other nodes, these are searched, in every group, for what a longer hit may need.
/// When all have answered, the longest hit of chunks here and there is known: exactly its chunks are fetched, and
/// looked up here. Only this lookup counts: a chunk that was damaged, evicted or late shortens the hit, and never
/// leaves one without a chunk of some group. A fetch that brought less is followed by one more search.
class grouped_lookup {
public:
  struct group_namespace {
    namespace_id ns;
    group_needs needs;
    std::uint32_t shard_count = 0;
  };
  struct terms {
    std::vector<group_namespace> groups;
    /// The first chunk of the lookup: the engine has those before.
    std::uint32_t begin = 0;
    /// The length of a lease.
    duration lease_for{};
    /// Whether there are other nodes; and the time limit from the first search of them on.
    bool has_peers = false;
    duration peers_limit = duration::max();
    /// As in `match_request`.
    std::string request{};
  };
  /// A ticket of the group's attachment that was never used for a lease before.
  using lease_source = std::function<ticket(std::uint32_t group)>;

  /// Match the keys of one part. Answered by `on_match`, with `lookup` and `part`.
  struct match {
    std::size_t lookup = 0;
    std::size_t part = 0;
    std::uint32_t group = 0;
    std::uint32_t shard = 0;
    match_request request;
  };
  /// Release leases. No answer is needed.
  struct release {
    std::uint32_t group = 0;
    std::uint32_t shard = 0;
    release_request request;
  };
  /// Search at other nodes. Answered by `on_search`.
  struct search {
    std::uint32_t group = 0;
    search_peers_request request;
  };
  /// Fetch what a search has found. Answered by `on_fetch` if there are keys; otherwise the answer is ignored.
  struct fetch {
    std::uint32_t group = 0;
    fetch_pages_request request;
  };
  using effect = std::variant<match, release, search, fetch>;

  /// What is leased of a group.
  struct held {
    std::uint32_t group = 0;
    ticket lease;
    std::vector<std::uint32_t> shards;
  };
  struct finding {
    /// The hit, in chunks of the prefix; `begin` where nothing was found.
    std::uint32_t hit = 0;
    std::vector<held> leases;
    timestamp expires = timestamp::max();
  };

  /// The most searches at other nodes.
  static constexpr std::uint32_t searches_max = 2;

  /// `keys`: of all chunks of the prefix, the same for all groups.
  grouped_lookup(terms how, std::vector<key_digest> keys, lease_source leases);

  /// Starts the lookup; called once.
  void start(timestamp now);
  void on_match(std::size_t lookup, std::size_t part, result<match_reply> reply, timestamp now);
  void on_search(std::uint32_t group, const result<search_peers_reply>& reply);
  void on_fetch(std::uint32_t group, timestamp now);
  void on_tick(timestamp now);
  /// Cancels the lookup: leases are released. Has no effect after it has ended.
  void cancel();
  /// Gives back all of what was found.
  void give_back();

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Set when the lookup has ended; later answers are ignored.
  const std::optional<finding>& outcome() const noexcept { return outcome_; }
  timestamp deadline() const noexcept { return deadline_; }
  duration lease_for() const noexcept { return how_.lease_for; }

private:
  enum class phase : std::uint8_t { matching, searching, fetching, ended };

  /// Chunks of one group that are looked up together, under one lease.
  struct part_lookup {
    std::uint32_t group = 0;
    /// Ascending, counted from `begin`.
    std::vector<std::uint32_t> chunks;
    transfer::key_lookup keys;
    bool ended = false;
  };
  struct searched_group {
    std::vector<std::uint32_t> chunks;
    bool answered = false;
    /// What other nodes hold for the fetch; 0: nothing.
    std::uint64_t number = 0;
    /// What is fetched.
    std::vector<std::uint32_t> wanted;
    bool fetching = false;
  };

  std::vector<group_needs> needs() const;
  std::vector<key_digest> keys_of(std::span<const std::uint32_t> chunks) const;
  void look_up(std::uint32_t group, std::vector<std::uint32_t> chunks, timestamp now);
  /// Passes on what a part wants to send, and takes its marks when it has ended.
  void go_on(std::size_t number);
  void matched_all(timestamp now);
  void begin_search(std::uint32_t hit, timestamp now);
  void searched_all();
  void fetched_all(timestamp now);
  /// Releases what searches hold at other nodes.
  void end_searches();
  void end(std::uint32_t hit);
  void keep(const part_lookup& x, std::uint32_t hit, finding& out);
  void release_all_of(const part_lookup& x);

  terms how_;
  std::vector<key_digest> keys_;
  lease_source leases_;
  phase at_ = phase::matching;
  std::vector<part_lookup> parts_;
  /// Parts that have not ended.
  std::size_t waiting_ = 0;
  bool failed_ = false;
  chunk_marks found_;
  std::vector<searched_group> searches_;
  std::uint32_t searched_ = 0;
  timestamp searched_at_{};
  timestamp deadline_ = timestamp::max();
  /// The hit for which chunks were fetched.
  std::uint32_t goal_ = 0;
  std::optional<finding> outcome_;
  std::vector<effect> outbox_;
};

} // namespace troupe::lmcache
