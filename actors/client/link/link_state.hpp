#pragma once

#include "actors/client/link/reconnect_backoff.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

struct link_state_options {
  /// The node is looked for again when it cannot be reached, or is lost. One of this process does not come back.
  bool comes_back = true;
  duration backoff_min{};
  duration backoff_max{};
  std::uint64_t seed = 0;
  /// Why there is no node, until something else is known.
  std::string first_excuse = "not attached yet";
};

/// What a node says of itself when it lets a client attach.
struct node_offer {
  owner_id owner = 0;
  std::string node_name;
  namespace_id space_id;
  std::string space_name;
  kv_geometry geometry;
  std::vector<rank_number> ranks;
};

/// One try to attach. Never used twice, so that a late answer is known as one.
using link_try = std::uint64_t;
/// One binding of the client's actors to the node, for the same reason.
using link_epoch = std::uint64_t;
/// Who waits for the link.
using link_wait = std::uint64_t;

/// Find the node; `on_found` or `on_not_found`.
struct link_seek {
  link_try number = 0;
};
/// Attach to what was found, and watch it; `on_attached` or `on_not_attached`, and `on_node_gone`.
struct link_attach {
  link_try number = 0;
};
/// Do not watch the node any more and forget it; if it knows this client, by `owner`, tell it that the client leaves.
struct link_part {
  owner_id owner = 0;
};
/// Bind the lookup coordinator; `on_bound`.
struct link_bind_lookup {
  link_epoch epoch = 0;
};
/// Open page buffers for a rank; `on_opened`.
struct link_open {
  link_epoch epoch = 0;
  rank_number rank = 0;
};
/// Let the copy engine of the rank map what was opened; `on_mapped`.
struct link_map {
  link_epoch epoch = 0;
  rank_number rank = 0;
};
/// Bind the rank's load or save coordinator to its share of the page buffers; `on_bound`.
struct link_bind_transfer {
  link_epoch epoch = 0;
  rank_number rank = 0;
  bool save = false;
  std::uint32_t ticket_stream = 0;
  std::uint64_t segment = 0;
  std::uint64_t buffer_offset = 0;
  std::uint32_t buffer_count = 0;
};
/// Page buffers of the current node are not needed any more.
struct link_close {
  rank_number rank = 0;
  std::uint64_t segment = 0;
};
/// Tell all of the client's actors that there is no node: what they have under way ends.
struct link_unbind {};
/// Answer who waits: with what the node said, or with the reason why there is none.
struct link_answer {
  link_wait wait = 0;
  result<void> outcome;
};
/// For the log.
struct link_news {
  enum class weight : std::uint8_t { debug, warning, error };
  weight how = weight::debug;
  std::string text;
};

using link_effect = std::variant<link_seek, link_attach, link_part, link_bind_lookup, link_open, link_map,
                                 link_bind_transfer, link_close, link_unbind, link_answer, link_news>;

/// A client's tie to one node, as rules:
///
///     seeking ──found──▶ attaching ──attached──▶ attached ──all bound──▶ at work
///        ▲                   │                      │                      │
///        └── pausing ◀── not reached, no attachment, lost ◀────────────────┘
///     any ──another identity, a node that refuses, no pages fit──▶ refused
///
/// Invariants:
/// - One try at a time: in `seeking` and `attaching` exactly one answer counts, that to the try with the last number;
///   in `pausing` none does. Whatever else is answered belongs to a try that was given up.
/// - The client's actors are bound to at most one attachment. Each binding has an epoch; leaving the node, and binding
///   anew, begin another. An answer of an earlier epoch binds nothing, and what it opened is closed.
/// - Between the loss of a node and the next attachment the client's actors are told, so that nothing of theirs waits
///   for a node that is gone.
/// - `refused` is for good, since its reasons do not pass by themselves: pages of another identity are not ours.
///
/// Plain state, without actors, clock or sockets. Each call may leave effects in the outbox.
class link_state {
public:
  explicit link_state(const link_state_options& options);

  /// Begins to look for the node. Once.
  void start();

  // -- who waits --

  /// Answered when attached, and at work if there is something to bind; with the last error at `until`.
  void wait_attached(link_wait who, timestamp until);

  /// The client's actors: a lookup coordinator, and those of the ranks. Answered when all of them are bound. Replaces
  /// what was brought before.
  void bind(link_wait who, std::vector<rank_number> ranks, timestamp until);

  // -- the node --

  void on_found(link_try number);
  /// `unsupported`: what was found is no node of this version.
  void on_not_found(link_try number, const error& why, timestamp now);
  /// Whether the answer is to the last try. If not, the caller leaves the node in the name of this attachment; else
  /// that is `link_part`.
  bool on_attached(link_try number, const node_offer& offer);
  void on_not_attached(link_try number, const error& why, timestamp now);
  void on_node_gone(timestamp now);

  // -- binding --

  /// Lookup, load or save coordinator.
  void on_bound(link_epoch epoch, const result<void>& outcome);
  /// Whether the page buffers are wanted. If not, the caller closes them. `segment`, `bytes`: none where it failed.
  bool on_opened(link_epoch epoch, rank_number rank, std::uint64_t segment, std::uint64_t bytes);
  void on_not_opened(link_epoch epoch, const error& why, timestamp now);
  void on_mapped(link_epoch epoch, rank_number rank, const result<void>& outcome);

  // -- time --

  /// Ends waits whose time is over, and the pause before the next try.
  void on_time(timestamp now);
  /// When `on_time` has something to do; `timestamp::max()` if nothing will run out.
  timestamp next_event() const noexcept;

  /// Leaves the node and answers everybody: the client is ending.
  void end();

  /// The owner id that the node gave; 0 when there is no attachment.
  owner_id owner() const noexcept { return owner_; }
  bool refused() const noexcept { return phase_ == phase::refused; }

  std::vector<link_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t { idle, seeking, attaching, attached, pausing, refused };

  struct open_wait {
    link_wait who = 0;
    timestamp until;
  };

  /// Page buffers under the current epoch.
  struct open_segment {
    rank_number rank = 0;
    std::uint64_t segment = 0;
    std::uint64_t bytes = 0;
  };

  bool at_work() const noexcept { return phase_ == phase::attached && (!has_parts_ || all_bound_); }
  void seek();
  void bind_all();
  void bind_transfers(const open_segment& x);
  void lost(const std::string& why, timestamp now);
  void leave();
  void retry(const error& why, timestamp now);
  void refuse(const error& why);
  void answer_all(std::vector<open_wait>& waits, const result<void>& outcome);
  void answer_late(std::vector<open_wait>& waits, timestamp now);
  void say(link_news::weight how, std::string text);

  template <class Effect>
  void emit(Effect what) {
    outbox_.emplace_back(std::move(what));
  }

  link_state_options options_;
  reconnect_backoff backoff_;
  phase phase_ = phase::idle;
  link_try last_try_ = 0;
  timestamp next_try_ = timestamp::max();
  error last_error_;
  /// Of the current attachment; 0 when there is none.
  owner_id owner_ = 0;
  std::string node_name_;
  std::uint64_t page_bytes_ = 0;
  std::vector<rank_number> node_ranks_;
  /// Of the first attachment: no node with another one is ours. Null before.
  namespace_id space_;
  /// What the client has brought.
  bool has_parts_ = false;
  std::vector<rank_number> ranks_;
  link_epoch epoch_ = 0;
  /// Coordinators that are not bound yet under this epoch.
  std::size_t unbound_ = 0;
  bool all_bound_ = false;
  std::vector<open_segment> segments_;
  std::vector<open_wait> waiting_attached_;
  std::vector<open_wait> waiting_bound_;
  std::vector<link_effect> outbox_;
};

} // namespace troupe
