#pragma once

#include "actors/node/registry/registry_outbox.hpp"
#include "store/write_batch.hpp"

#include <chrono>

namespace troupe {

/// Adds a change of a shard to a batch. `today` is stored with new namespaces. Any thread.
void write(store::write_batch& to, const registry_change& x, std::chrono::sys_seconds today);

} // namespace troupe
