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

/// Converts times of the directory's clock to times of day and back.
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

/// The handshakes in a store, in the order that `directory_state::restore` needs.
struct restored_handshakes {
  std::vector<store::handshake_engine_record> engines;
  std::vector<store::handshake_rank_record> ranks;
  /// False if others may have published elsewhere meanwhile, so that these entries do not count any more.
  bool believed = true;
};

/// A journal of the directory's changes, which delays answers until their content is durable. One batch is being
/// written at a time, and changes that arrive meanwhile go into the next. Plain C++.
class directory_journal {
public:
  using continuation = std::function<void(const error* failed)>;

  void append(const std::vector<handshake::directory_change>& changes, const clock_pair& clocks);
  /// Calls `then` when all changes so far are durable; at once if they are.
  void when_durable(continuation then);
  /// Returns the next batch, if none is being written and there is one. Follow it with `written` or `refused`.
  std::optional<store::write_batch> begin_write();
  /// Size of the changes that wait for the next batch.
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
  /// Number of the pending batch; earlier ones are written, or being written.
  std::uint64_t next_ = 1;
  bool under_way_ = false;
  std::deque<waiting_one> waiting_;
};

} // namespace troupe
