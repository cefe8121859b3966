#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::transfer {

/// The rules of one lookup that finds every complete key of a batch, and not only the leading ones: for a group of KV
/// caches of which a hit needs some pages, as a window's last ones. Asks no peers. Time and answers are arguments;
/// messages to send are in the outbox.
class key_lookup {
public:
  struct terms {
    namespace_id ns;
    std::uint32_t shard_count = 0;
    /// The length of a lease.
    duration lease_for{};
    /// As in `match_request`.
    bool report_on_disk = false;
    /// The lookup ends at this time at the latest.
    timestamp deadline = timestamp::max();
    /// As in `match_request`.
    std::string request{};
  };

  /// Match the keys of one part. Answered by `on_match`, with the part.
  struct match {
    std::size_t part = 0;
    std::uint32_t shard = 0;
    match_request request;
  };
  /// Release what a shard has leased. No answer is needed.
  struct release {
    std::uint32_t shard = 0;
    release_request request;
  };
  struct effects {
    std::vector<match> matches;
    std::vector<release> releases;
  };

  struct finding {
    /// One mark for each key: 1 if it is complete and leased.
    std::vector<std::uint8_t> found;
    /// One mark for each key, 1 if it was found and its page is on disk only; empty where this is unknown.
    std::vector<std::uint8_t> on_disk;
    std::uint32_t matched = 0;
    /// The shards at which keys are leased.
    std::vector<std::uint32_t> shards;
    timestamp expires;
  };

  key_lookup(const terms& how, std::span<const key_digest> keys);

  /// Starts the lookup; called once. `lease` must be a ticket that was never used for a lease before.
  void start(const ticket& lease, timestamp now);
  void on_match(std::size_t part, result<match_reply> reply, timestamp now);
  void on_tick(timestamp now);

  effects take_outbox() { return std::exchange(outbox_, {}); }

  /// Set when the lookup has ended; later answers are ignored. An error where a shard did not answer.
  const std::optional<result<finding>>& outcome() const noexcept { return outcome_; }
  timestamp deadline() const noexcept { return how_.deadline; }
  duration lease_for() const noexcept { return how_.lease_for; }
  const ticket& lease() const noexcept { return lease_; }

private:
  struct part {
    std::uint32_t shard = 0;
    std::vector<std::uint32_t> positions;
    std::vector<key_digest> keys;
    bool answered = false;
    /// What a valid answer contains.
    match_reply reply{};
  };

  void send(std::size_t index);
  void finish(timestamp now);
  void fail_with(error why);
  /// Adds a shard's answer. False where it has no mark for each key.
  static bool add(const part& p, finding& out, bool& tiers_known);

  terms how_;
  std::size_t keys_;
  ticket lease_;
  std::vector<part> parts_;
  std::size_t waiting_ = 0;
  std::optional<error> failure_;
  std::optional<result<finding>> outcome_;
  effects outbox_;
};

} // namespace troupe::transfer
