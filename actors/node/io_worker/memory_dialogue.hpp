#pragma once

#include "actors/node/io_worker/io_worker_state.hpp"
#include "io/memory/extent_source.hpp"
#include "io/slab/page_store.hpp"
#include "messages/io_messages.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The memory of one rank: extents of the arena, for what its state and its allocator need. Gets them, makes them known
/// to the store, returns them, and says what the rank has and wants. Plain rules: messages are results, which the io
/// worker sends after each call.
class memory_dialogue {
public:
  struct options {
    namespace_id ns;
    rank_number rank = 0;
    /// The preferred NUMA node of the memory.
    std::optional<io::numa_node> numa_node{};
    /// Whether somewhere memory is found when the arena has none left: only then are there reports.
    bool has_broker = false;
  };

  /// `store` is null where pages live in memory only. All three must be there at each call.
  memory_dialogue(const options& how, io_worker_state& state, io::extent_source* extents, io::page_store* store)
      : options_(how), state_(state), extents_(extents), store_(store) {}

  /// A request of the allocator for so many frames more. It is answered, in the order of such requests, by
  /// `take_grown`: when they are there, when no memory will come, or after a second.
  void grow(std::uint32_t frames, timestamp now);
  /// Whether such a request waits, so that `request_extents` must be called soon.
  bool has_growers() const noexcept { return !growers_.empty(); }
  /// The numbers of frames that are the answers.
  std::vector<std::uint32_t> take_grown() { return std::exchange(grown_, {}); }

  /// Gets what the state wants and what the allocator has requested, as far as the arena has it.
  void request_extents(timestamp now);
  /// Takes an extent that another rank has returned for this one; false where it cannot be used.
  bool accept(std::uint32_t number, timestamp now);

  /// The outcome of `io_worker_state::begin_emptying`, once: the number of the extent, which the store does not know
  /// any more.
  std::optional<result<std::uint32_t>> take_returned();

  /// The number of lasting frames, where the allocator does not know it.
  std::optional<std::uint32_t> take_changed_frames();

  /// Reports what this rank has and wants, if that has changed.
  void report(timestamp now);
  /// The same, only if the number of extents has changed: after each call of the state.
  void report_extents(timestamp now);
  std::vector<memory_report> take_reports() { return std::exchange(reports_, {}); }

  /// Why the store refused memory, for the log.
  std::vector<std::string> take_refusals() { return std::exchange(refusals_, {}); }

private:
  struct grower {
    std::uint64_t frames = 0;
    /// When it is answered with the number available.
    timestamp until;
  };

  /// Gets an extent of the arena. Errors: those of `extent_source::assign` and `page_store::add_buffer`.
  result<frame_table::extent> get_extent(timestamp now);
  result<frame_table::extent> make_known(const io::extent& x);
  /// Whether the request is to be answered.
  bool has_ended(const grower& x, timestamp now);

  options options_;
  io_worker_state& state_;
  io::extent_source* extents_;
  io::page_store* store_;
  std::deque<grower> growers_;
  std::vector<std::uint32_t> grown_;
  std::uint64_t reported_frames_ = 0;
  /// Until when to report that the arena had no extent, and when to say so again.
  timestamp wants_until_ = timestamp::min();
  timestamp next_wish_ = timestamp::min();
  memory_report reported_;
  timestamp reported_oldest_{};
  std::vector<memory_report> reports_;
  std::vector<std::string> refusals_;
};

} // namespace troupe
