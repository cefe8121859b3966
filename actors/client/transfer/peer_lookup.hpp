#pragma once

#include "actors/client/transfer/key_lookup.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::transfer {

/// The rules of one step of a lookup that concerns pages of other nodes, for a group of KV caches (`peer_step`): a
/// search for keys at these nodes; or a fetch of some of what a search found, with a lookup of these keys on this node
/// behind it. Whatever a fetch reports, only that lookup counts. Time and answers are arguments; messages to send are
/// in the outbox.
class peer_lookup {
public:
  struct effects {
    /// Search at other nodes. Answered by `on_search`.
    std::optional<search_peers_request> search;
    /// Fetch from other nodes. Answered by `on_fetch`.
    std::optional<fetch_pages_request> fetch;
    key_lookup::effects lookup;
  };

  peer_lookup(const key_lookup::terms& how, const lookup_task& work);

  /// Starts it; called once. `lease` as in `key_lookup`; a search does not use it.
  void start(const ticket& lease, timestamp now);
  void on_search(result<search_peers_reply> reply);
  void on_fetch(timestamp now);
  void on_match(std::size_t part, result<match_reply> reply, timestamp now);
  void on_tick(timestamp now);

  effects take_outbox();

  /// Set when the step has ended; later answers are ignored. An error where there was none in time.
  const std::optional<result<search_peers_reply>>& searched() const noexcept { return searched_; }
  const std::optional<result<key_lookup::finding>>& looked_up() const noexcept {
    return failed_ ? failed_ : keys_.outcome();
  }
  bool ended() const noexcept { return searched_.has_value() || looked_up().has_value(); }
  timestamp deadline() const noexcept { return keys_.deadline(); }
  const key_lookup& keys() const noexcept { return keys_; }

private:
  bool is_search() const noexcept { return step_.what == peer_step::kind::search; }

  namespace_id ns_;
  packed<key_digest> asked_;
  peer_step step_;
  key_lookup keys_;
  ticket lease_;
  bool fetching_ = false;
  std::optional<result<search_peers_reply>> searched_;
  /// The fetch was not answered in time.
  std::optional<result<key_lookup::finding>> failed_;
  effects outbox_;
};

} // namespace troupe::transfer
