#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/incarnation.hpp"

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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

/// Bytes that do not change any more, and that all who have them share: an answer to many readers is one copy in this
/// process, however long it is on its way. Copies may be used from any thread.
class shared_payload {
public:
  shared_payload() = default;
  shared_payload(std::string bytes) // NOLINT(google-explicit-constructor): a text is a payload
      : bytes_(std::make_shared<const std::string>(std::move(bytes))) {}
  shared_payload(const char* bytes) : shared_payload(std::string(bytes)) {} // NOLINT(google-explicit-constructor)

  operator std::string_view() const noexcept { return view(); } // NOLINT(google-explicit-constructor)
  std::string_view view() const noexcept { return bytes_ ? std::string_view(*bytes_) : std::string_view(); }
  std::size_t size() const noexcept { return view().size(); }

  friend bool operator==(const shared_payload& a, const shared_payload& b) noexcept { return a.view() == b.view(); }
  friend bool operator==(const shared_payload& a, std::string_view b) noexcept { return a.view() == b; }
  friend bool operator==(const shared_payload& a, const std::string& b) noexcept { return a.view() == b; }
  friend bool operator==(const shared_payload& a, const char* b) noexcept { return a.view() == b; }

private:
  std::shared_ptr<const std::string> bytes_;
};

/// What is taken from a bound as long as a message is on its way; ends with its last copy, and stays in its process.
using handshake_claim = std::shared_ptr<const void>;

struct handshake_entry {
  handshake_rank rank;
  std::string etag;
  handshake_form form = handshake_form::bytes;
  shared_payload payload;
};

struct handshake_fetch_reply {
  /// An `errc`. ok; not_found, with what is known; expired: another incarnation lives than the one that was asked for;
  /// identity_mismatch: the hashes differ; limit_exceeded: too many wait, or too much is on its way; out_of_range: the
  /// payloads do not go into one message, so fetch rank by rank; shutting_down; invalid_argument.
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
  handshake_claim claim{};
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
  handshake_claim claim{};
};

/// An engine as it is now: not_found where it is gone; out_of_range where its payloads do not go into one message.
struct handshake_change {
  std::string engine;
  handshake_fetch_reply now;
};

/// Whether what a watcher is told says that the engine lives.
inline bool is_there(const handshake_fetch_reply& now) noexcept {
  return now.code != static_cast<std::uint8_t>(errc::not_found);
}

/// What a watcher is told. The next one comes when this one has been seen, and has the latest of each engine that has
/// changed: a slow watcher skips states, and never falls behind by more than one message.
struct handshake_update {
  std::uint64_t watch = 0;
  std::vector<handshake_change> changes;
  handshake_claim claim{};
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
  /// Answers through actors, for whose bytes there was no room on the way.
  std::uint64_t refused_answers = 0;
  /// Changes that the disk of the index did not keep up with, and fetches that would have told of them.
  std::uint64_t refused_disk = 0;

  std::uint64_t engines = 0;
  std::uint64_t ranks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waiting = 0;
  std::uint64_t watches = 0;
  std::uint64_t remembered = 0;
};

} // namespace troupe
