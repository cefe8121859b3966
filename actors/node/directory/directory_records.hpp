#pragma once

#include "handshake/directory_state.hpp"
#include "store/handshake_records.hpp"
#include "store/metadata_store.hpp"
#include "store/write_batch.hpp"

#include <chrono>
#include <vector>

namespace troupe {

/// Converts times of the directory's clock to times of day and back.
struct clock_pair {
  timestamp now{};
  std::chrono::sys_time<std::chrono::nanoseconds> today{};

  std::chrono::sys_time<std::chrono::nanoseconds> time_of_day(timestamp x) const noexcept { return today + (x - now); }
  timestamp moment(std::chrono::sys_time<std::chrono::nanoseconds> x) const noexcept { return later(now, x - today); }
};

/// Adds a change of the directory to a batch. Any thread.
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

} // namespace troupe
