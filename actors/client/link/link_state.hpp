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
  /// Whether to look for the node again when it cannot be reached or is lost. A node of this process does not come
  /// back.
  bool comes_back = true;
  duration backoff_min{};
  duration backoff_max{};
  std::uint64_t seed = 0;
  /// The error until another one is known.
  std::string first_excuse = "not attached yet";
  /// The most bytes that the coordinators of a rank may have pinned at once: half for loads, half for saves.
  std::uint64_t window_bytes = 0;
  /// Whether the caller logs why the client could not be bound the first time.
  bool caller_logs = false;
  /// The client saves nothing: all of `window_bytes` but one page is for loads.
  bool only_loads = false;
};

/// What a node offers when it accepts an attachment.
struct node_offer {
  owner_id owner = 0;
  std::string node_name;
  namespace_id ns_id;
  std::string namespace_name;
  kv_geometry geometry;
  std::vector<rank_number> ranks;
  /// The most bytes that a client may have pinned at once, per rank.
  std::uint64_t pinned_bytes = 0;
};

/// The number of an attempt to attach. Never reused, so that late answers are recognized.
using link_try = std::uint64_t;
/// The number of a binding of the client's actors to the node. Never reused, for the same reason.
using link_epoch = std::uint64_t;
/// A caller that waits for the link.
using link_wait = std::uint64_t;

/// Find the node; answered by `on_found` or `on_not_found`.
struct link_seek {
  link_try number = 0;
};
/// Attach to the node that was found, and monitor it; answered by `on_attached` or `on_not_attached`, later
/// `on_node_lost`.
struct link_attach {
  link_try number = 0;
};
/// Stop monitoring the node, and forget it. If it knows this client by `owner`, notify it that the client leaves.
struct link_part {
  owner_id owner = 0;
};
/// Bind the lookup coordinator; answered by `on_bound`.
struct link_bind_lookup {
  link_epoch epoch = 0;
};
/// Bind the copy engine of the rank to the node's arena; answered by `on_mapped`.
struct link_map {
  link_epoch epoch = 0;
  rank_number rank = 0;
};
/// Bind the rank's load or save coordinator, with its share of the window; answered by `on_bound`.
struct link_bind_transfer {
  link_epoch epoch = 0;
  rank_number rank = 0;
  bool save = false;
  std::uint32_t ticket_stream = 0;
  std::uint32_t window_pages = 0;
};
/// Use the actors that the client has brought last.
struct link_take_parts {};
/// Notify all of the client's coordinators that there is no node: their requests in progress end.
struct link_unbind {};
/// Unbind the copy engine of the rank from this attachment; answered by `on_quiesced`.
struct link_quiesce {
  owner_id owner = 0;
  rank_number rank = 0;
};
/// Notify a node that this client does not access its memory any more under this attachment: `to_left`: the node that
/// was left under it; otherwise the node that is attached now. Answered by `on_quiesced_reported`.
struct link_report_quiesced {
  owner_id owner = 0;
  bool to_left = false;
};
/// Forget the node of this attachment.
struct link_forget_left {
  owner_id owner = 0;
};
/// After `end`: nothing is left to wait for.
struct link_ended {};
/// Answer a caller: success once attached or bound, or the error.
struct link_answer {
  link_wait wait = 0;
  result<void> outcome;
};
/// A line for the log.
struct link_news {
  enum class weight : std::uint8_t { debug, warning, error };
  weight how = weight::debug;
  std::string text;
};

using link_effect =
    std::variant<link_seek, link_attach, link_part, link_take_parts, link_bind_lookup, link_map, link_bind_transfer,
                 link_unbind, link_quiesce, link_report_quiesced, link_forget_left, link_ended, link_answer, link_news>;

/// The rules of a client's connection to one node:
///
///     seeking ──found──▶ attaching ──attached──▶ attached ──all bound──▶ at work
///        ▲                   │                      │                      │
///        └── pausing ◀── not reached, no attachment, lost ◀────────────────┘
///     any ──another identity, a node that refuses, no pages fit──▶ refused
///
/// Invariants:
/// - One attempt at a time: in `seeking` and `attaching` only the answer to the attempt with the last number counts; in
///   `pausing` none does. Other answers belong to earlier attempts.
/// - The client's actors are bound to at most one attachment, and an attachment binds at most once: what coordinators
///   have pinned ends with it. Each binding has an epoch; leaving the node begins another one. An answer of an earlier
///   epoch binds nothing.
/// - Between the loss of a node and the next attachment the client's actors are notified, so that none of them waits
///   for a disconnected node.
/// - Frames that an attachment has pinned stay pinned at the node until it is notified that the client does not access
///   them. The notification is sent at most once, when every copy engine that was or may have been bound has answered
///   that it is drained. It goes to the node that was left, or else to the next one that accepts this client, before
///   anything else. If a copy engine does not answer, it is not sent, and the node waits for the end of the client's
///   process.
/// - `refused` is permanent, as its reasons are: pages of another identity are not exchangeable.
///
/// Plain state, without actors, clock or sockets. Each call may leave effects in the outbox.
class link_state {
public:
  explicit link_state(const link_state_options& options);

  /// Begins to look for the node. Call it once.
  void start();

  // -- callers that wait --

  /// Is answered when attached, and at work if there is something to bind; with the last error at `until`.
  void wait_attached(link_wait who, timestamp until);

  /// Sets the client's actors: a lookup coordinator, and those of the ranks. Is answered when all of them are bound.
  /// Replaces earlier actors, under another attachment.
  void bind(link_wait who, std::vector<rank_number> ranks, timestamp until);

  // -- the node --

  void on_found(link_try number);
  /// `unsupported`: the peer is not a node of this version.
  void on_not_found(link_try number, const error& why, timestamp now);
  /// Whether the answer is to the last attempt. If not, the caller leaves the node under this attachment, which no
  /// actor has used; else `link_part` does that.
  bool on_attached(link_try number, const node_offer& offer);
  void on_not_attached(link_try number, const error& why, timestamp now);
  void on_node_lost(timestamp now);
  /// The node has ended this attachment, because its namespace was removed.
  void on_sent_away(timestamp now);

  // -- binding --

  // An error that shows that something does not fit is permanent; after any other error the node is left and looked for
  // again.

  /// From a lookup, load or save coordinator.
  void on_bound(link_epoch epoch, const result<void>& outcome, timestamp now);
  /// From a copy engine.
  void on_mapped(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now);
  /// Replaces `on_mapped` where the arena is on another host: whether the node has reached the memory that the copy
  /// engine exposes.
  void on_offered(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now);
  /// A copy engine has answered whether the attachment is drained.
  void on_quiesced(owner_id owner, const result<void>& outcome);

  /// The node has received the notification that this attachment is drained, or it is unknown whether it has.
  void on_quiesced_reported(owner_id owner, const result<void>& outcome, timestamp now);

  // -- time --

  /// Ends waits that have timed out, and the pause before the next attempt.
  void on_time(timestamp now);
  /// When `on_time` has something to do; `timestamp::max()` if there is no deadline.
  timestamp next_event() const noexcept;

  /// Leaves the node and answers all callers, as the client is ending. Calls continue until `link_ended`.
  void end();

  /// The owner id that the node gave; 0 when there is no attachment.
  owner_id owner() const noexcept { return owner_; }
  bool ending() const noexcept { return ending_; }
  bool refused() const noexcept { return phase_ == phase::refused; }

  std::vector<link_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t { idle, seeking, attaching, attached, pausing, refused };

  struct open_wait {
    link_wait who = 0;
    timestamp until;
  };

  /// An ended attachment of which requests may be in progress.
  struct quiescing_attachment {
    owner_id owner = 0;
    /// Whether the node was reachable when it ended, as far as is known.
    bool left = false;
    /// Copy engines that have not answered, and whether one of them has failed to.
    std::size_t waiting = 0;
    bool failed = false;
  };

  struct quiesced_attachment {
    owner_id owner = 0;
    /// The notification was sent, and has no answer yet.
    bool said = false;
  };

  bool at_work() const noexcept { return phase_ == phase::attached && (!has_parts_ || all_bound_); }
  void seek();
  void bind_all();
  /// The pages of a window, for both coordinators of a rank together.
  result<std::uint32_t> window_pages() const;
  void lost(const std::string& why, timestamp now);
  /// `still_there`: whether the node is reachable, as far as is known.
  void leave(bool still_there);
  void rest(owner_id owner, bool still_there);
  void note_quiesced(const quiescing_attachment& over);
  void report_quiesced();
  void end_if_quiesced();
  void on_not_bound(const error& why, timestamp now);
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
  struct logged_failures {
    /// The last shortage of the node.
    std::string shortage{};
    /// Whether a failure to bind was logged since the client was bound last.
    bool unbound = false;
  };
  logged_failures logged_;
  /// The owner id of the current attachment; 0 when there is none.
  owner_id owner_ = 0;
  std::string node_name_;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t pinned_bytes_ = 0;
  std::vector<rank_number> node_ranks_;
  /// The identity of the first attachment; nodes with another one are refused. Null before.
  namespace_id ns_;
  /// Whether the client has brought its actors, and for which ranks.
  bool has_parts_ = false;
  std::vector<rank_number> ranks_;
  link_epoch epoch_ = 0;
  /// Coordinators that are not bound yet under this epoch.
  std::size_t unbound_ = 0;
  bool all_bound_ = false;
  /// Ranks whose copy engines were bound to the current attachment.
  std::vector<rank_number> mapped_ranks_;
  std::vector<quiescing_attachment> quiescing_;
  /// Drained attachments of which no node has confirmed the notification: it may be lost with the connection, and a
  /// node that has not noticed the end of an attachment does not accept it.
  std::vector<quiesced_attachment> quiesced_;
  /// When the unconfirmed notifications are repeated.
  timestamp next_word_ = timestamp::max();
  bool ending_ = false;
  std::vector<open_wait> waiting_attached_;
  std::vector<open_wait> waiting_bound_;
  std::vector<link_effect> outbox_;
};

} // namespace troupe
