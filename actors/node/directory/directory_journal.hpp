#pragma once

#include "handshake/directory_state.hpp"
#include "store/metadata_store.hpp"
#include "store/write_batch.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace troupe {

/// What of a moment of the directory's clock is a time of day, and back.
struct clock_pair {
  timestamp now{};
  std::chrono::sys_time<std::chrono::nanoseconds> today{};

  std::chrono::sys_time<std::chrono::nanoseconds> time_of_day(timestamp x) const noexcept { return today + (x - now); }
  timestamp moment(std::chrono::sys_time<std::chrono::nanoseconds> x) const noexcept { return later(now, x - today); }
};

/// Adds a change to a batch.
void write(store::write_batch& to, const handshake::directory_change& x, const clock_pair& clocks);

handshake::engine_noted read(const store::handshake_engine_record& x, const clock_pair& clocks);
handshake::rank_noted read(const store::handshake_rank_record& x);

/// What a store had of handshakes, in the order in which `directory_state::restore` wants it.
struct restored_handshakes {
  std::vector<store::handshake_engine_record> engines;
  std::vector<store::handshake_rank_record> ranks;
  /// False: others may have published elsewhere meanwhile, so none of it counts any more.
  bool believed = true;
};

/// Which answers wait until what they say is durable. One batch is at the store at a time, and what changes meanwhile
/// goes into the next. Plain C++.
class directory_journal {
public:
  using continuation = std::function<void(const error* failed)>;

  void append(const std::vector<handshake::directory_change>& changes, const clock_pair& clocks);
  /// At once if nothing is on its way.
  void when_durable(continuation then);
  /// The next batch, if none is under way and there is one; to be followed by `written`, or by `refused`.
  std::optional<store::write_batch> begin_write();
  /// What waits for the next batch.
  std::size_t pending_bytes() const noexcept { return pending_.bytes(); }
  void written();
  void refused(store::write_batch batch);
  void fail(const error& why);

private:
  struct waiting_one {
    std::uint64_t batch = 0;
    continuation then;
  };

  store::write_batch pending_;
  /// Number of the batch that is pending; those before it are written, or being written.
  std::uint64_t next_ = 1;
  bool under_way_ = false;
  std::deque<waiting_one> waiting_;
};

} // namespace troupe
