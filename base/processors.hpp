#pragma once

#include <optional>

namespace troupe {

/// The processors that this process may use, which the number of its threads follows: those of its affinity (taskset,
/// cpusets), and of these no more than the CPU quota of its control groups is worth. At least one.
/// `std::thread::hardware_concurrency` counts the host's: a container with two processors of 128 would start threads
/// for 128, which wait for one another's turns. Counted at the first call, as pools of threads are sized once; may be
/// called by any thread.
unsigned usable_processors();

/// The processors on which the scheduler may run the calling thread; those of the host where it does not say.
unsigned affinity_processors();

/// What an affinity and a quota allow; a part of a processor counts as one.
unsigned usable_processors(unsigned affinity, std::optional<double> quota) noexcept;

} // namespace troupe
