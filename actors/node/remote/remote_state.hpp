#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/remote_memory.hpp"
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
  /// Of a frame, at both ends.
  std::uint64_t slot_bytes = 0;
  /// Pages that move at once; one batch in any case.
  std::uint64_t window_bytes = 0;
  /// Without an end of anything that is under way, or a byte of it that moves: then the client is lost.
  duration stall_time{};
  /// Frames of a client that are used at most.
  std::uint32_t frames_max = 1U << 20U;
};

/// What has moved: put into memory of the client, as it is loaded, and got from there, as it is saved.
struct remote_counts {
  std::uint64_t put_pages = 0;
  std::uint64_t got_pages = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t got_bytes = 0;
  /// Pages that were to move, and did not arrive or were not what they should be.
  std::uint64_t put_failures = 0;
  std::uint64_t got_failures = 0;
  /// The memory was lost while the client was attached.
  std::uint64_t lost = 0;
};

/// One call of the client, or of the transport. Never used twice.
using remote_job = std::uint64_t;

/// Get frames of the arena; `on_frames`.
struct remote_ask {
  remote_job job = 0;
  bool fetch = false;
  frame_request request;
};
/// Between frames of the arena and frames of the client; `on_moved`.
struct remote_order {
  struct page {
    std::uint64_t here = 0;
    std::uint64_t there = 0;

    friend bool operator==(const page&, const page&) = default;
  };
  remote_job job = 0;
  io::remote_direction direction = io::remote_direction::put;
  std::vector<page> pages;
};
/// Reach the client's memory, and see that it is the one that was offered; `on_probed`.
struct remote_probe {
  remote_offer offer;
};
/// Are these what the client says they are? `on_checked`.
struct remote_check {
  remote_job job = 0;
  check_order order;
};
/// Tell the io worker of what was saved; `on_filled`.
struct remote_fill {
  remote_job job = 0;
  fill_request request;
};
/// Frames of the arena are not needed any more.
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
/// Tell the node that this client is lost.
struct remote_lost {
  error why;
};
/// End all that is under way between the two memories; `on_closed`.
struct remote_close {};
/// Nothing of this client touches the arena any more, nor ever will.
struct remote_at_rest {};

using remote_effect =
    std::variant<remote_ask, remote_order, remote_probe, remote_check, remote_fill, remote_unpin, remote_answer_bind,
                 remote_answer_frames, remote_answer_fill, remote_lost, remote_close, remote_at_rest>;

/// The rules of moving pages of one rank between the arena of a node and the memory of one client elsewhere. The
/// client asks as it would ask the io worker, and is told frames of its own memory:
///
///     fetch:  arena frame pinned ──put──▶ client frame ──▶ answer ··· unpin ──▶ client frame free
///     place:  arena frame pinned ──▶ answer, with a client frame ··· fill ──get──▶ checked ──▶ filled, client frame
///     free
///
/// Invariants:
/// - A frame of the client is in one hand: free; of one request that is not answered; or of one pin, until the client
///   ends that. So what is put into it belongs to whoever is told of it, and nothing is put into it while the client
///   reads or writes it.
/// - A frame of the arena stays pinned from before the first byte moves until the transport has said that nothing
///   touches it any more, whatever that says of the outcome, and whether anybody waits for it or not.
/// - What one attachment has moved is never another's: an attachment has one binding, a binding one peer, and a client
///   exposes new memory for each. After the first failure nothing is moved any more, and the peer is closed: what a
///   late move may still reach is memory that the client gives to nobody.
/// - The pages of a save are got before they are checked, and checked here, in memory that the client cannot reach:
///   what is committed is what was checked.
/// - Every request is answered: by its pages, by a refusal, or when the peer is lost. Where something is under way, and
///   within the stall time nothing moves of it and nothing ends, the peer is lost.
/// - It is at rest when the peer is closed and no answer of the io worker is waited for. Only then may the pins of the
///   attachment end that are left.
///
/// Plain state: no thread, no clock, no bytes.
class remote_state {
public:
  explicit remote_state(const remote_options& options) : options_(options) {}

  // -- the client --

  /// Its memory, once. `exists` the second time, `invalid_argument` for memory that cannot be.
  result<void> bind(const remote_offer& offer, timestamp now);
  /// Errors: `unreachable` (nothing is bound, or it is lost), `limit_exceeded` (the client has too many frames in use).
  result<remote_job> place(const frame_request& x);
  result<remote_job> fetch(const frame_request& x);
  /// `not_found`: it has no such pin.
  result<remote_job> fill(const fill_request& x, timestamp now);
  result<void> unpin(pin_number pin);

  /// The attachment is over.
  void end();

  // -- the io worker, the checker --

  void on_frames(remote_job job, const result<frame_reply>& reply, timestamp now);
  void on_checked(remote_job job, const result<io_reply>& verdicts);
  void on_filled(remote_job job, const result<io_reply>& reply);

  // -- the transport --

  void on_probed(const result<void>& outcome);
  void on_moved(remote_job job, const result<void>& outcome, timestamp now);
  void on_lost(const error& why);
  void on_closed();

  /// Whether something may run out.
  bool needs_ticks() const noexcept { return phase_ == phase::probing || under_way_ > 0; }
  /// `progress`: of the peer, as `io::remote_peer` has it.
  void tick(timestamp now, std::uint64_t progress);

  std::vector<remote_effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// What has moved since it was asked last.
  remote_counts take_counts() noexcept { return std::exchange(counts_, {}); }

  std::uint64_t bytes_under_way() const noexcept { return bytes_under_way_; }
  std::size_t free_frames() const noexcept { return free_.size(); }
  /// The first inconsistency, or nothing. For tests.
  std::string check() const;

private:
  enum class phase : std::uint8_t { unbound, probing, bound, lost, at_rest };
  using frame = std::uint32_t;
  static constexpr frame none = ~frame{0};

  /// What a client was told of.
  struct pin {
    bool fetch = false;
    /// Of the io worker; 0 for those of a fetch, which ended before.
    pin_number arena = 0;
    /// Of the request, none where it has no frame; and where it lies in the arena.
    std::vector<frame> frames;
    std::vector<std::uint64_t> offsets;
    std::vector<page_ref> pages;
  };
  struct open_job {
    enum class step : std::uint8_t { asking, waiting, moving, checking, filling };
    step at = step::asking;
    bool fetch = false;
    pin what;
    frame_reply reply;
    /// Of a fill.
    fill_request fill;
    /// Positions that move.
    std::vector<std::uint32_t> moving;
  };

  result<remote_job> begin(const frame_request& x, bool fetch);
  std::uint64_t bytes_of(const open_job& x) const noexcept { return x.moving.size() * options_.slot_bytes; }
  void release(frame& x);
  void release_all(pin& x);
  void send_next(timestamp now);
  void answer_fetch(remote_job job, open_job& x);
  void send_fill(remote_job job, open_job& x);
  void lose(error why);
  /// A place or a fetch, because the client is lost.
  void refuse(remote_job job);
  void rest_if_done();
  error gone() const;
  template <class Effect>
  void emit(Effect x) {
    outbox_.emplace_back(std::move(x));
  }

  remote_options options_;
  remote_counts counts_;
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
  /// Jobs that have pages to move, in their order.
  std::deque<remote_job> queue_;
  std::size_t under_way_ = 0;
  std::uint64_t bytes_under_way_ = 0;
  timestamp last_progress_ = timestamp::min();
  std::uint64_t progress_ = 0;
  std::vector<remote_effect> outbox_;
};

} // namespace troupe
