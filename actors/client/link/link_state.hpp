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
  /// What the coordinators of a rank may have pinned at once: half of it loads, half of it saves.
  std::uint64_t window_bytes = 0;
};

/// What a node says of itself when it lets a client attach.
struct node_offer {
  owner_id owner = 0;
  std::string node_name;
  namespace_id space_id;
  std::string space_name;
  kv_geometry geometry;
  std::vector<rank_number> ranks;
  /// What it lets a client have pinned at once, per rank.
  std::uint64_t pinned_bytes = 0;
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
/// Bind the copy engine of the rank to the node's arena; `on_mapped`.
struct link_map {
  link_epoch epoch = 0;
  rank_number rank = 0;
};
/// Bind the rank's load or save coordinator, with its share of the window; `on_bound`.
struct link_bind_transfer {
  link_epoch epoch = 0;
  rank_number rank = 0;
  bool save = false;
  std::uint32_t ticket_stream = 0;
  std::uint32_t window_pages = 0;
};
/// From now on the client's actors are those that it brought last.
struct link_take_parts {};
/// Tell all of the client's coordinators that there is no node: what they have under way ends.
struct link_unbind {};
/// Unbind the copy engine of the rank from this attachment; `on_rested`.
struct link_rest {
  owner_id owner = 0;
  rank_number rank = 0;
};
/// Tell the node that nothing of this attachment touches its memory any more: the one that was left in its name, or the
/// one that is attached now; `on_said_at_rest`.
struct link_say_at_rest {
  owner_id owner = 0;
  bool to_left = false;
};
/// The node of this attachment need not be remembered any more.
struct link_forget_left {
  owner_id owner = 0;
};
/// After `end`: there is nothing left to wait for.
struct link_ended {};
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

using link_effect =
    std::variant<link_seek, link_attach, link_part, link_take_parts, link_bind_lookup, link_map, link_bind_transfer,
                 link_unbind, link_rest, link_say_at_rest, link_forget_left, link_ended, link_answer, link_news>;

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
/// - The client's actors are bound to at most one attachment, and an attachment binds at most once: what coordinators
///   have pinned ends with it. Each binding has an epoch; leaving the node begins another. An answer of an earlier
///   epoch binds nothing.
/// - Between the loss of a node and the next attachment the client's actors are told, so that nothing of theirs waits
///   for a node that is gone.
/// - What an attachment has pinned stays so at the node until it is told that nothing of the client touches it any
/// more.
///   That is said once, if at all: when each copy engine that was bound, or may have been, has answered that it is at
///   rest; to the node that was left, if it was, else to the next one that lets the client attach, before anything
///   else. Where a copy engine does not answer, nothing is said, and the node waits for the end of the client's
///   process.
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
  /// what was brought before, under another attachment.
  void bind(link_wait who, std::vector<rank_number> ranks, timestamp until);

  // -- the node --

  void on_found(link_try number);
  /// `unsupported`: what was found is no node of this version.
  void on_not_found(link_try number, const error& why, timestamp now);
  /// Whether the answer is to the last try. If not, the caller leaves the node in the name of this attachment, which
  /// nothing ever touched; else that is `link_part`.
  bool on_attached(link_try number, const node_offer& offer);
  void on_not_attached(link_try number, const error& why, timestamp now);
  void on_node_gone(timestamp now);
  /// The node is there, and serves this attachment no more: its namespace was removed.
  void on_sent_away(timestamp now);

  // -- binding --

  // What fails because things do not fit is refused; after anything else the node is left and looked for again.

  /// Lookup, load or save coordinator.
  void on_bound(link_epoch epoch, const result<void>& outcome, timestamp now);
  /// Copy engine.
  void on_mapped(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now);
  /// In its place, where the arena is elsewhere: the node has reached the memory that the copy engine exposes, or not.
  void on_offered(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now);
  /// A copy engine has answered that nothing of this attachment is under way, or has not.
  void on_rested(owner_id owner, const result<void>& outcome);

  /// The node has heard that this attachment is at rest, or nobody knows whether it has.
  void on_said_at_rest(owner_id owner, const result<void>& outcome, timestamp now);

  // -- time --

  /// Ends waits whose time is over, and the pause before the next try.
  void on_time(timestamp now);
  /// When `on_time` has something to do; `timestamp::max()` if nothing will run out.
  timestamp next_event() const noexcept;

  /// Leaves the node and answers everybody: the client is ending. Calls go on until `link_ended`.
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

  /// An attachment that is over, and of which something may be under way.
  struct resting_attachment {
    owner_id owner = 0;
    /// The node was there when it ended, as far as is known.
    bool left = false;
    /// Copy engines that have not answered, and whether one of them cannot.
    std::size_t waiting = 0;
    bool failed = false;
  };

  struct rested_attachment {
    owner_id owner = 0;
    /// It was said, and not answered yet.
    bool said = false;
  };

  bool at_work() const noexcept { return phase_ == phase::attached && (!has_parts_ || all_bound_); }
  void seek();
  void bind_all();
  /// Pages for both coordinators of a rank.
  result<std::uint32_t> window_pages() const;
  void lost(const std::string& why, timestamp now);
  /// `still_there`: the node is, as far as is known.
  void leave(bool still_there);
  void rest(owner_id owner, bool still_there);
  void came_to_rest(const resting_attachment& over);
  void say_who_is_at_rest();
  void end_if_at_rest();
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
  /// What the node was said to be short of.
  std::string told_shortage_;
  /// Of the current attachment; 0 when there is none.
  owner_id owner_ = 0;
  std::string node_name_;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t pinned_bytes_ = 0;
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
  /// Ranks whose copy engines were told of the current attachment.
  std::vector<rank_number> mapped_ranks_;
  std::vector<resting_attachment> resting_;
  /// Attachments of which nothing is under way, until a node has answered that it has heard so: the word may be lost
  /// with the connection, and a node that has not noticed the end of an attachment does not take it.
  std::vector<rested_attachment> at_rest_;
  /// Those are said again then that were not heard.
  timestamp next_word_ = timestamp::max();
  bool ending_ = false;
  std::vector<open_wait> waiting_attached_;
  std::vector<open_wait> waiting_bound_;
  std::vector<link_effect> outbox_;
};

} // namespace troupe
