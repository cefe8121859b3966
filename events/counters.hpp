#pragma once

#include <atomic>
#include <cstdint>

namespace troupe::events {

/// Counters of a publisher of events: for metrics and status. May be read by any thread at any time.
struct counters {
  using number = std::atomic<std::uint64_t>;

  number stored{0};
  number removed{0};
  number moved{0};
  number batches{0};
  /// Batches that at least one subscriber did not get because it was too slow.
  number dropped_batches{0};
  /// Requests for missed batches; those of them that got a snapshot; those that were not answered to the end; those
  /// that were ignored, because there were too many or they were malformed.
  number replays{0};
  number snapshots{0};
  number failed_replays{0};
  number refused_replays{0};
  /// Descriptions of clients that name another hash than the one that was published, or too many adapters.
  number refused_descriptions{0};
  /// Connections that were closed because there were too many, or because they had sent too much.
  number refused_connections{0};
  /// How often changes were dropped because the publisher did not keep up.
  number overflows{0};
  /// Current numbers: pages that were published, those of them that a snapshot leaves out, bytes kept about them,
  /// connected subscribers, and the number of the last batch of the first stream.
  number pages{0};
  number pages_without_tokens{0};
  number bytes{0};
  number subscribers{0};
  number last_batch{0};
};

} // namespace troupe::events
