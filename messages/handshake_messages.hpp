#pragma once

#include "base/clock.hpp"
#include "base/incarnation.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

/// What the directory of handshakes is asked, and what it answers: engines publish per rank what their peers need in
/// order to talk to them, and these fetch it. docs/handshake.md explains the whole.

namespace troupe {

/// A rank of an engine: of its data, pipeline and tensor parallelism.
struct handshake_rank {
  std::uint32_t dp = 0;
  std::uint32_t pp = 0;
  std::uint32_t tp = 0;

  friend constexpr auto operator<=>(const handshake_rank&, const handshake_rank&) = default;
};

/// How many ranks an engine has in each direction.
struct handshake_sizes {
  std::uint32_t dp = 1;
  std::uint32_t pp = 1;
  std::uint32_t tp = 1;

  constexpr std::uint64_t row() const noexcept { return std::uint64_t{pp} * tp; }
  /// Does not overflow where each is below 2^20.
  constexpr std::uint64_t count() const noexcept { return dp * row(); }
  constexpr bool contains(const handshake_rank& x) const noexcept { return x.dp < dp && x.pp < pp && x.tp < tp; }

  friend constexpr bool operator==(const handshake_sizes&, const handshake_sizes&) = default;
};

/// What a payload is to whoever shows it; the directory never looks into it.
enum class handshake_form : std::uint8_t {
  bytes,
  /// JSON text, served byte for byte as it came.
  json,
};

struct handshake_publish_request {
  std::string engine;
  handshake_rank rank;
  /// Which start of the engine this is. Of two with the same id, the higher one is the later.
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  /// Peers with another hash are not to read the payload.
  std::string compat;
  /// How long all of the engine lives without a sign of it; 0: as long as the directory likes.
  duration ttl{};
  handshake_form form = handshake_form::bytes;
  std::string payload;
};

/// A sign of life of a whole engine.
struct handshake_heartbeat_request {
  std::string engine;
  /// 0: whichever lives.
  incarnation_number incarnation = 0;
  /// 0: as before.
  duration ttl{};
};

/// The engine goes away.
struct handshake_withdraw_request {
  std::string engine;
  /// 0: whichever lives.
  incarnation_number incarnation = 0;
};

/// The answer to each of these.
struct handshake_reply {
  /// An `errc`. ok; exists: another payload is published for a live incarnation; expired: a later incarnation is
  /// known, or this one has been withdrawn; not_found: nothing of this engine is known, publish it again;
  /// limit_exceeded; invalid_argument.
  std::uint8_t code = 0;
  std::string text;
  /// The one that is known.
  incarnation_number incarnation = 0;
  duration expires_in{};
  /// How many ranks are published.
  std::uint32_t ranks = 0;
  bool complete = false;
  /// The rank was not there before.
  bool added = false;
};

enum class handshake_scope : std::uint8_t {
  /// One rank.
  rank,
  /// All ranks of one dp rank.
  row,
  all,
  /// Those of one dp rank that a tensor parallel rank of another engine meets, in all pipeline stages. With sizes of
  /// which neither divides the other: invalid_argument.
  peers,
};

struct handshake_fetch_request {
  std::string engine;
  handshake_scope scope = handshake_scope::all;
  /// With `row`, only its dp counts; with `all`, nothing of it; with `peers`, its dp, and the tp of who asks.
  handshake_rank rank;
  /// With `peers`: how many tensor parallel ranks the engine of who asks has.
  std::uint32_t own_tp_size = 1;
  /// The hash of who asks; empty: it does not mind.
  std::string compat;
  /// 0: whichever lives.
  incarnation_number incarnation = 0;
  /// What who asks has already; empty: nothing.
  std::string etag;
  /// Nothing before all ranks of the scope are there.
  bool complete = false;
  /// How long to wait for what is not there yet, or does not differ from `etag`.
  duration wait{};
};

struct handshake_entry {
  handshake_rank rank;
  std::string etag;
  handshake_form form = handshake_form::bytes;
  std::string payload;
};

struct handshake_fetch_reply {
  /// An `errc`. ok; not_found, with what is known; expired: another incarnation lives than the one that was asked for;
  /// identity_mismatch: the hashes differ; limit_exceeded: too many wait; shutting_down; invalid_argument.
  std::uint8_t code = 0;
  std::string text;
  /// ok, and what who asks has is still so: there are no entries.
  bool not_modified = false;
  /// The one that is known, whatever the code; 0: none is.
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  std::string compat;
  std::string etag;
  /// All ranks of the scope are there.
  bool complete = false;
  duration expires_in{};
  /// In the order of their ranks.
  std::vector<handshake_entry> entries;
};

/// One engine, or all of them for an empty name.
struct handshake_list_request {
  std::string engine;
};

struct handshake_engine_info {
  std::string engine;
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  std::string compat;
  std::uint32_t ranks = 0;
  std::uint64_t payload_bytes = 0;
  bool complete = false;
  duration expires_in{};
};

/// In the order of their names.
struct handshake_list_reply {
  std::vector<handshake_engine_info> engines;
};

/// An engine as it is now: not_found where it is gone.
struct handshake_change {
  std::string engine;
  handshake_fetch_reply now;
};

/// What a watcher is told. The next one comes when this one has been seen, and has the latest of each engine that has
/// changed: a slow watcher skips states, and never falls behind by more than one message.
struct handshake_update {
  std::uint64_t watch = 0;
  std::vector<handshake_change> changes;
};

/// A watcher has taken in the update that it was sent last.
struct handshake_seen_request {
  std::uint64_t watch = 0;
};

/// Since the start; what is now at the end.
struct handshake_stats {
  std::uint64_t published = 0;
  /// The same again.
  std::uint64_t repeated = 0;
  std::uint64_t replaced = 0;
  std::uint64_t heartbeats = 0;
  std::uint64_t withdrawn = 0;
  std::uint64_t expired = 0;
  std::uint64_t found = 0;
  std::uint64_t not_modified = 0;
  std::uint64_t not_found = 0;
  std::uint64_t gone = 0;
  std::uint64_t incompatible = 0;
  /// Fetches that waited, those whose time was up, and those of who has gone.
  std::uint64_t waits = 0;
  std::uint64_t waits_timed_out = 0;
  std::uint64_t waits_given_up = 0;
  /// Publications and heartbeats of an incarnation that is over, and other payloads for one that is not.
  std::uint64_t refused_stale = 0;
  std::uint64_t refused_conflict = 0;
  std::uint64_t refused_malformed = 0;
  /// Limits.
  std::uint64_t refused_engines = 0;
  std::uint64_t refused_bytes = 0;
  std::uint64_t refused_waiting = 0;
  std::uint64_t refused_watches = 0;

  std::uint64_t engines = 0;
  std::uint64_t ranks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waiting = 0;
  std::uint64_t watches = 0;
  std::uint64_t remembered = 0;
};

} // namespace troupe
