#pragma once

#include "actors/client/link/link.hpp"
#include "cli/interruption.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "config/node_config.hpp"
#include "workload/replay/trace.hpp"

namespace troupe::cli {

/// `troupe replay --engine`: the requests of the trace on a model of an engine, whose connector's halves work with the
/// node at `where`. All KV that a forward pass reads is compared byte by byte. With faults, requests are aborted,
/// blocks run short so that requests are preempted, and pages of an own node are damaged on disk. What `progress` shows
/// is over when this returns.
int replay_through_engine(caf::actor_system& system, const link_options& where, const config::node_config& config,
                          const replay::trace& trace, const replay_options& options, interruption& signals,
                          progress_display& progress);

} // namespace troupe::cli
