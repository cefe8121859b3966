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

/// The requests to the handshake directory, and its answers: engines publish per rank what their peers need in order to
/// connect to them, and the peers fetch it. See docs/handshake.md.

namespace troupe {

/// A rank of an engine: of its data, pipeline and tensor parallelism.
struct handshake_rank {
  std::uint32_t dp = 0;
  std::uint32_t pp = 0;
  std::uint32_t tp = 0;

  friend constexpr auto operator<=>(const handshake_rank&, const handshake_rank&) = default;
};

/// The number of ranks of an engine in each dimension.
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

/// The form of a payload for display; the directory does not read it.
enum class handshake_form : std::uint8_t {
  bytes,
  /// JSON text, served byte for byte as it came.
  json,
};

struct handshake_publish_request {
  std::string engine;
  handshake_rank rank;
  /// The number of this start of the engine. Of two with the same id, the higher one is the later.
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  /// Peers with another hash must not read the payload.
  std::string compat;
  /// How long the engine's entries live without a heartbeat; 0: the directory's default.
  duration ttl{};
  handshake_form form = handshake_form::bytes;
  std::string payload;
};

/// A heartbeat for a whole engine.
struct handshake_heartbeat_request {
  std::string engine;
  /// 0: the live one.
  incarnation_number incarnation = 0;
  /// 0: unchanged.
  duration ttl{};
};

/// The engine deregisters.
struct handshake_withdraw_request {
  std::string engine;
  /// 0: the live one.
  incarnation_number incarnation = 0;
};

/// The answer to each of these.
struct handshake_reply {
  /// An `errc`. ok; exists: another payload is published for a live incarnation; expired: a later incarnation is
  /// known, or this one has been withdrawn; not_found: nothing of this engine is known, publish it again;
  /// limit_exceeded; invalid_argument.
  std::uint8_t code = 0;
  std::string text;
  /// The incarnation that the directory has.
  incarnation_number incarnation = 0;
  duration expires_in{};
  /// The number of published ranks.
  std::uint32_t ranks = 0;
  bool complete = false;
  /// Whether the rank was not published before.
  bool added = false;
};

enum class handshake_scope : std::uint8_t {
  /// One rank.
  rank,
  /// All ranks of one dp rank.
  row,
  all,
  /// Those of one dp rank that exchange data with a tensor parallel rank of another engine, in all pipeline stages.
  /// invalid_argument if neither size divides the other.
  peers,
};

struct handshake_fetch_request {
  std::string engine;
  handshake_scope scope = handshake_scope::all;
  /// With `row`, only its dp counts; with `all`, nothing of it; with `peers`, its dp, and the tp of the requester.
  handshake_rank rank;
  /// With `peers`: the number of tensor parallel ranks of the requester's engine.
  std::uint32_t own_tp_size = 1;
  /// The requester's hash; empty: any.
  std::string compat;
  /// 0: the live one.
  incarnation_number incarnation = 0;
  /// The state that the requester has already; empty: none.
  std::string etag;
  /// Whether to answer only when all ranks of the scope are published.
  bool complete = false;
  /// How long to wait for ranks that are not published yet, or for a state that differs from `etag`.
  duration wait{};
};

/// Immutable bytes shared by all holders: an answer to many readers is one copy in this process, however long it is in
/// transit. Copies may be used from any thread.
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

/// A share of a limit that a message in transit occupies. It ends with the last copy, and stays in its process.
using handshake_claim = std::shared_ptr<const void>;

struct handshake_entry {
  handshake_rank rank;
  std::string etag;
  handshake_form form = handshake_form::bytes;
  shared_payload payload;
};

struct handshake_fetch_reply {
  /// An `errc`. ok; not_found, with what is known; expired: another incarnation is live than the requested one;
  /// identity_mismatch: the hashes differ; limit_exceeded: too many requests wait, or too many bytes are in transit;
  /// out_of_range: the payloads do not fit into one message, so fetch rank by rank; shutting_down; invalid_argument.
  std::uint8_t code = 0;
  std::string text;
  /// ok, and the requester's state is still current: there are no entries.
  bool not_modified = false;
  /// The incarnation that the directory has, whatever the code; 0: none.
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  std::string compat;
  std::string etag;
  /// Whether all ranks of the scope are published.
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

/// The current state of an engine: not_found where it is not published any more; out_of_range where its payloads do not
/// fit into one message.
struct handshake_change {
  std::string engine;
  handshake_fetch_reply now;
};

/// Whether the state says that the engine is published.
inline bool is_there(const handshake_fetch_reply& now) noexcept {
  return now.code != static_cast<std::uint8_t>(errc::not_found);
}

/// A notification of a watcher. The next one is sent when this one is confirmed, and has the latest state of each
/// changed engine: a slow watcher skips states, and is never behind by more than one message.
struct handshake_update {
  std::uint64_t watch = 0;
  std::vector<handshake_change> changes;
  handshake_claim claim{};
};

/// A watcher confirms the last update.
struct handshake_seen_request {
  std::uint64_t watch = 0;
};

/// Counters since the start; the current values are at the end.
struct handshake_stats {
  std::uint64_t published = 0;
  /// Publications of what was published already.
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
  /// Fetches that waited, those that timed out, and those whose requester disconnected.
  std::uint64_t waits = 0;
  std::uint64_t waits_timed_out = 0;
  std::uint64_t waits_cancelled = 0;
  /// Publications and heartbeats of an ended incarnation, and other payloads for a live one.
  std::uint64_t refused_stale = 0;
  std::uint64_t refused_conflict = 0;
  std::uint64_t refused_malformed = 0;
  /// Requests refused because of a limit.
  std::uint64_t refused_engines = 0;
  std::uint64_t refused_bytes = 0;
  std::uint64_t refused_waiting = 0;
  std::uint64_t refused_watches = 0;
  /// Answers through actors for which the limit of bytes in transit had no room.
  std::uint64_t refused_answers = 0;
  /// Changes that the disk of the index could not keep up with, and fetches that would have returned them.
  std::uint64_t refused_disk = 0;

  std::uint64_t engines = 0;
  std::uint64_t ranks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waiting = 0;
  std::uint64_t watches = 0;
  std::uint64_t remembered = 0;
};

} // namespace troupe
