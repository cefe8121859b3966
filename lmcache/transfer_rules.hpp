#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "lmcache/incoming.hpp"
#include "lmcache/open_requests.hpp"
#include "lmcache/server_rules.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::lmcache {

/// A part of a store or retrieve, which a coordinator executes as one task. Never reused; 0 is none.
using part_number = std::uint64_t;
/// An order of a coordinator to move the pages of a part.
using order_number = std::uint64_t;
/// A store or retrieve, from its first request until its last part has ended.
using job_number = std::uint64_t;

/// Decides about the stores and retrieves of workers: which parts go to the coordinators and when, when pages are
/// sealed and verified, and how requests are answered.
///
/// Where the node copies, a request waits for its turn, and its parts are executed in parallel. Where the worker
/// copies, the worker executes a coordinator's order to move pages: it receives the locations of the frames, and the
/// order is answered when the worker has committed. So frames stay pinned until then, without a time limit.
///
/// A worker may have several groups of layers, each with an attachment, coordinators and a limit of pages of its own. A
/// job has pages of all of them, and succeeds or fails as a whole.
///
/// - A worker receives a frame only if its request is open and its registration has not ended; and frames to read only
///   if all of them have been verified.
/// - Committed pages are published only if the commit is the first one, came while the registration was in force, and
///   carried no tensors.
/// - No order is answered while a lane works in its frames, and none whose frames a worker knows before the worker says
///   that it is done: by a commit, or by requesting the same chunks again. For an ended registration, the caller
///   answers them when no process accesses the frames any more (`forget`).
/// - Every accepted request is answered, unless `open_requests` has answered it before.
///
/// Plain state without a thread or a clock. The caller calls a function for each event, and then executes the outbox,
/// in order.
class transfer_rules {
public:
  using request_ptr = std::shared_ptr<const incoming>;

  /// How long a worker that is about to store waits for frames, and so its engine. The rest of a request that has
  /// waited so long is not stored.
  static constexpr duration place_patience = std::chrono::seconds(2);

  struct options {
    /// Where the node copies: limits of requests of one direction of a worker in progress, of parts of each, and of
    /// requests in all.
    std::size_t copies_at_once = 4;
    std::size_t parts_at_once = 4;
    std::size_t copies_max = 4096;
    /// Where a worker copies: limit of stores, or retrieves, that it has not committed.
    std::size_t jobs_max = 256;
  };

  /// The limits of a worker's attachment, which is of one group.
  struct terms {
    /// Keys of one task.
    std::uint32_t keys_max = 0;
    /// Limit of pages in one request for frames, and of pages that a worker that copies may have at once.
    std::uint32_t pages_max = 0;
    std::uint32_t window_pages = 0;
    duration reservation{};
  };

  /// Consecutive chunks of a group, the first of them counted from the first of the request.
  struct chunk_run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    std::uint32_t group = 0;

    friend bool operator==(const chunk_run&, const chunk_run&) = default;
  };
  /// A page in a pinned frame.
  struct placed_page {
    std::uint32_t chunk = 0;
    page_ref page;
    std::uint64_t offset = 0;
    std::uint32_t group = 0;

    friend bool operator==(const placed_page&, const placed_page&) = default;
  };

  /// Give the part to the coordinator of its group and direction, as a task with this deadline; then `part_done`.
  struct start {
    part_number part = 0;
    change_number of = 0;
    request_ptr request;
    bool stores = false;
    chunk_run chunks;
    duration deadline{};
  };
  /// Cancel tasks.
  struct cancel {
    change_number of = 0;
    rank_number rank = 0;
    bool stores = false;
    std::uint32_t group = 0;
    std::vector<part_number> parts;
  };
  /// Have lanes seal pages, or verify them; then `checked`.
  struct check {
    job_number job = 0;
    change_number of = 0;
    rank_number rank = 0;
    bool seal = false;
    std::vector<placed_page> pages;
  };
  /// Answer an order, with a code for each of its pages.
  struct end_order {
    order_number order = 0;
    std::vector<errc> codes;
  };
  struct refuse {
    request_ptr request;
  };
  /// The worker may access the frames of these pages.
  struct prepared {
    request_ptr request;
    change_number of = 0;
    std::vector<placed_page> pages;
  };
  /// A store or retrieve is done.
  struct done {
    request_ptr request;
    std::size_t pages = 0;
    /// Where a worker copies: what it has stored.
    std::vector<chunk_run> stored{};
  };
  using effect = std::variant<start, cancel, check, end_order, refuse, prepared, done>;

  /// Request, worker, first chunk and the one after the last; and whether it is a store.
  using job_name = std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint32_t, bool>;
  static job_name name_of(const incoming& x);

  transfer_rules(server_rules& registrations, open_requests& requests) : transfer_rules(registrations, requests, {}) {}
  transfer_rules(server_rules& registrations, open_requests& requests, const options& how)
      : registrations_(registrations), requests_(requests), options_(how) {}

  // -- requests of workers; `of` is their registration, which is in force --

  /// The node copies these chunks of the request.
  void copy(const request_ptr& x, change_number of, const terms& how, std::deque<chunk_run> chunks, timestamp now);
  /// A worker is about to copy: replaces a job of the same name, which its worker has abandoned. `how` has the limits
  /// of each group, and `chunks` those whose pages it stores, as far as there is room, or loads, all or none.
  void prepare(const request_ptr& x, change_number of, std::vector<terms> how, std::deque<chunk_run> chunks,
               timestamp now);
  void commit(const request_ptr& x, change_number of, timestamp now);

  // -- execution --

  /// A coordinator wants the worker to move pages of the part: `end_order` follows.
  void order(part_number part, order_number number, std::vector<placed_page> pages, timestamp now);
  /// The task has ended: a code for each of its chunks; or one for all.
  void part_done(part_number part, const std::vector<errc>& codes, timestamp now);
  void part_failed(part_number part, errc why, timestamp now);
  void checked(job_number job, const std::vector<errc>& codes, timestamp now);

  // -- ends --

  /// The request was answered because its deadline has passed.
  void late(const request_ptr& x, timestamp now);
  /// The registration has ended: nothing of it begins any more.
  void ended(change_number of, timestamp now);
  /// Its attachment has ended. Returns the names of the jobs whose frames its worker may still access.
  std::set<job_name> forget(change_number of);
  /// Whether the worker has received frames, and has not committed.
  bool may_touch(change_number of) const;
  /// Whether the worker has begun to copy by itself, and has not committed: it is being prepared, or has its frames.
  bool has_begun(change_number of) const;

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Numbers of unfinished work, for tests.
  std::size_t jobs() const noexcept { return jobs_.size(); }

private:
  enum class phase : std::uint8_t {
    /// The node copies: waits for its turn.
    waiting,
    copying,
    /// A worker copies: parts are being reserved, or located and fetched.
    preparing,
    verifying,
    /// The worker copies.
    in_hands,
    sealing,
    /// Until the tasks have ended.
    ending,
  };
  struct part {
    job_number job = 0;
    chunk_run chunks;
    std::optional<order_number> order;
    std::vector<placed_page> pages;
    bool ended = false;
  };
  struct job {
    request_ptr request;
    /// For a store that a worker commits.
    request_ptr commit;
    change_number of = 0;
    /// By group.
    std::vector<terms> how;
    timestamp begun{};
    bool stores = false;
    bool by_node = false;
    phase state = phase::waiting;
    /// Not started yet.
    std::deque<chunk_run> left;
    std::vector<part_number> parts;
    /// All results so far are successes.
    bool good = true;
    /// All ended pages that its worker has received are stored.
    bool published = true;
    /// It counts in `server_rules` as a copy.
    bool counted = false;
    /// Its request has been answered already.
    bool abandoned = false;
    std::size_t pages = 0;
    std::vector<chunk_run> stored{};
  };
  struct line {
    std::deque<job_number> waiting;
    std::size_t under_way = 0;
  };
  using line_name = std::pair<change_number, bool>;
  using full_name = std::pair<change_number, job_name>;

  rank_number rank_of(const job& x) const { return *x.request->chunks.worker; }
  bool goes_on(const job& x, timestamp now) const {
    return registrations_.is_current(x.of) && !requests_.is_over(x.request, now);
  }
  job_number add(const request_ptr& x, change_number of, std::vector<terms> how, bool stores, bool by_node);
  void begin_part(job_number number, job& x, std::uint32_t most, duration deadline);
  void begin_copies(change_number of, timestamp now);
  void begin_parts(job_number number, job& x, timestamp now);
  void end_copy(job_number number, timestamp now);
  /// Pages of a group that the worker has, or may get.
  std::uint32_t pages_out(change_number of, std::uint32_t group) const;
  /// How many more it may get.
  std::uint32_t room(const job& x, std::uint32_t group) const;
  bool has_room(const job& x) const;
  void go_on_preparing(job_number number, timestamp now);
  void all_there(job_number number, job& x, timestamp now);
  void part_over(part& y, const std::vector<errc>& codes, timestamp now);
  /// Answers its orders with this code.
  void end_orders(const job& x, errc code);
  void end_orders(const job& x, const std::vector<errc>& codes);
  void cancel_parts(const job& x);
  std::vector<placed_page> pages_of(const job& x) const;
  /// Abandons a job before its worker knows of frames, or when the worker has abandoned it.
  void abandon(job_number number, timestamp now);
  void finish_ending(job_number number, timestamp now);
  void erase(job_number number);
  void uncount(job& x, timestamp now);

  server_rules& registrations_;
  open_requests& requests_;
  options options_;
  std::map<job_number, job> jobs_;
  std::map<part_number, part> parts_;
  std::map<line_name, line> lines_;
  /// Jobs that were not committed.
  std::map<full_name, job_number> names_;
  std::vector<effect> outbox_;
  std::uint64_t last_ = 0;
  bool beginning_ = false;
};

} // namespace troupe::lmcache
