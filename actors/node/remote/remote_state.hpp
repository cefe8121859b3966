#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/memory/remote_memory.hpp"
#include "messages/io_messages.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

struct remote_options {
  /// The size of a frame, at both ends; and of one of the arena for encoded pages, 0 if there are none.
  std::uint64_t slot_bytes = 0;
  std::uint64_t encoded_bytes = 0;
  /// The bytes that may move at once; one batch is always allowed.
  std::uint64_t window_bytes = 0;
  /// The client is lost when, for this time, no transfer in progress ends and no byte of one moves.
  duration stall_time{};
  /// The most frames of a client that are used.
  std::uint32_t frames_max = 1U << 20U;
};

/// The number of one call of the client, or of the transport. Never reused.
using remote_job = std::uint64_t;

/// Request frames of the arena; answered by `on_frames`.
struct remote_ask {
  remote_job job = 0;
  bool fetch = false;
  frame_request request;
};
/// Copy between frames of the arena and frames of the client; answered by `on_moved`.
struct remote_order {
  struct page {
    std::uint64_t here = 0;
    std::uint64_t there = 0;
    /// The bytes of the frame here; the client's has no fewer.
    std::uint64_t bytes = 0;

    friend bool operator==(const page&, const page&) = default;
  };
  remote_job job = 0;
  io::remote_direction direction = io::remote_direction::put;
  std::vector<page> pages;
};
/// Connect to the client's memory, and verify that it is the one that was offered; answered by `on_probed`.
struct remote_probe {
  remote_offer offer;
};
/// Verify that the pages are what the client says they are; answered by `on_checked`.
struct remote_check {
  remote_job job = 0;
  check_order order;
};
/// Report saved pages to the io worker; answered by `on_filled`.
struct remote_fill {
  remote_job job = 0;
  fill_request request;
};
/// Unpin frames of the arena.
struct remote_unpin {
  pin_number pin = 0;
};
struct remote_answer_bind {
  result<void> outcome;
};
struct remote_answer_frames {
  remote_job job = 0;
  result<frame_reply> reply;
};
struct remote_answer_fill {
  remote_job job = 0;
  result<io_reply> reply;
};
/// Report to the node that this client is lost.
struct remote_lost {
  error why;
};
/// End all transfers between the two memories; answered by `on_closed`.
struct remote_close {};
/// The client is quiesced: it does not access the arena any more, and never will again.
struct remote_quiesced {};

using remote_effect =
    std::variant<remote_ask, remote_order, remote_probe, remote_check, remote_fill, remote_unpin, remote_answer_bind,
                 remote_answer_frames, remote_answer_fill, remote_lost, remote_close, remote_quiesced>;

/// The rules of moving pages of one rank between the arena of a node and the memory of one remote client. The client
/// sends the same requests as to the io worker, and the answers name frames of its own memory:
///
///     fetch:  arena frame pinned ──put──▶ client frame ──▶ answer ··· unpin ──▶ client frame free
///     place:  arena frame pinned ──▶ answer with a client frame ··· fill ──get──▶ checked ──▶ filled, frame free
///
/// Invariants:
/// - A frame of the client has one user: it is free, or belongs to one unanswered request, or to one pin until the
///   client ends that. So what is put into it belongs to the client that receives the answer, and nothing is put into
///   it while the client reads or writes it.
/// - A frame of the arena stays pinned from before the first byte moves until the transport has reported that nothing
///   accesses it any more, whatever the outcome, and whether or not a request still waits for it.
/// - A move of one attachment never affects another one: an attachment has one binding, a binding one peer, and a
///   client exposes new memory for each. After the first failure nothing more is moved, and the peer is closed; a late
///   move can only reach memory that the client does not use for anything else.
/// - The pages of a save are checked after they were got, in memory that the client cannot reach: what is committed is
///   what was checked.
/// - Every request is answered: with its pages, with a rejection, or when the peer is lost. The peer is lost if
///   transfers are in progress and, within the stall time, none of them progresses or ends.
/// - The state is quiesced when the peer is closed and no answer of the io worker is outstanding. Only then may the
///   remaining pins of the attachment end.
///
/// Plain state: no thread, no clock, no bytes.
class remote_state {
public:
  explicit remote_state(const remote_options& options) : options_(options) {}

  // -- the client --

  /// Binds the client's memory, once. `exists` the second time, `invalid_argument` for an impossible description of
  /// memory.
  result<void> bind(const remote_offer& offer, timestamp now);
  /// Errors: `unreachable` (no memory is bound, or the client is lost), `limit_exceeded` (the client uses too many
  /// frames).
  result<remote_job> place(const frame_request& x);
  result<remote_job> fetch(const frame_request& x);
  /// `not_found`: the client has no such pin.
  result<remote_job> fill(const fill_request& x, timestamp now);
  result<void> unpin(pin_number pin);

  /// Ends the attachment.
  void end();

  // -- the io worker, the checker --

  void on_frames(remote_job job, const result<frame_reply>& reply, timestamp now);
  void on_checked(remote_job job, const result<io_reply>& verdicts);
  void on_filled(remote_job job, const result<io_reply>& reply);

  // -- the transport --

  void on_probed(const result<void>& outcome);
  void on_moved(remote_job job, const result<void>& outcome, timestamp now);
  /// The pages of a job have so many bytes less than slots: those of encoded pages.
  void on_shortened(remote_job job, std::uint64_t bytes);
  void on_lost(const error& why);
  void on_closed();

  /// Whether a timeout may expire.
  bool needs_ticks() const noexcept { return phase_ == phase::probing || under_way_ > 0; }
  /// `progress`: the counter of the peer, as in `io::remote_peer`.
  void tick(timestamp now, std::uint64_t progress);

  std::vector<remote_effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Returns the counters since the last call.
  remote_stats take_counts() noexcept { return std::exchange(counts_, {}); }

  std::uint64_t bytes_under_way() const noexcept { return bytes_under_way_; }
  std::size_t free_frames() const noexcept { return free_.size(); }
  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  enum class phase : std::uint8_t { unbound, probing, bound, lost, quiesced };
  using frame = std::uint32_t;
  static constexpr frame none = ~frame{0};

  /// A pin that was reported to the client.
  struct pin {
    bool fetch = false;
    /// The pin at the io worker; 0 for a fetch, whose pin there has ended already.
    pin_number arena = 0;
    /// The client's frames of the request (`none` where it has no frame), and the places of their pages in the arena.
    std::vector<frame> frames;
    std::vector<page_frame> places;
    std::vector<page_ref> pages;
  };
  struct open_job {
    enum class step : std::uint8_t { asking, waiting, moving, checking, filling };
    step at = step::asking;
    bool fetch = false;
    pin what;
    frame_reply reply;
    /// The request, for a fill.
    fill_request fill;
    /// The positions of pages that move.
    std::vector<std::uint32_t> moving;
    /// The bytes of their slots that are not sent.
    std::uint64_t saved_bytes = 0;
  };

  result<remote_job> begin(const frame_request& x, bool fetch);
  std::uint64_t bytes_of(const open_job& x) const noexcept { return x.moving.size() * options_.slot_bytes; }
  /// The bytes of a frame of the arena.
  std::uint64_t bytes_of(const page_frame& x) const noexcept {
    return x.is_encoded() ? options_.encoded_bytes : options_.slot_bytes;
  }
  void release(frame& x);
  void release_all(pin& x);
  void send_next(timestamp now);
  void answer_fetch(remote_job job, open_job& x);
  void send_fill(remote_job job, open_job& x);
  void lose(error why);
  /// Rejects a place or fetch because the client is lost.
  void refuse(remote_job job);
  void quiesce_if_done();
  error gone() const;
  template <class Effect>
  void emit(Effect x) {
    outbox_.emplace_back(std::move(x));
  }

  remote_options options_;
  remote_stats counts_;
  phase phase_ = phase::unbound;
  bool ended_ = false;
  bool has_peer_ = false;
  error why_lost_;
  std::vector<frame> free_;
  std::size_t frames_ = 0;
  std::map<pin_number, pin> pins_;
  pin_number last_pin_ = 0;
  std::unordered_map<remote_job, open_job> jobs_;
  remote_job last_job_ = 0;
  /// Jobs with pages to move, in order.
  std::deque<remote_job> queue_;
  std::size_t under_way_ = 0;
  std::uint64_t bytes_under_way_ = 0;
  timestamp last_progress_ = timestamp::min();
  std::uint64_t progress_ = 0;
  std::vector<remote_effect> outbox_;
};

} // namespace troupe
