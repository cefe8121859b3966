#pragma once

#include "actors/client/node_client.hpp"
#include "workload/replay/trace.hpp"
#include "workload/runner/run.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::replay {

struct direct_outcome {
  replay_report report;
  phase_times phases;
  /// The first page that was not right, in words.
  std::string first_wrong;
  /// The node refused to save because of a damaged slab.
  bool slab_damaged = false;
  /// Why the run ended before the trace.
  std::optional<error> given_up;
};

struct stage;

/// Plays a trace on the coordinators of a client: several requests at once, each of which looks up, loads, fills and
/// saves on all ranks. Has the memory that pages come from and go to, so it has to outlive the client.
class direct_run {
public:
  /// With `compared`, blocks are filled with what the key must hold, and every byte that is loaded is compared;
  /// without, only what is moved is measured. The trace outlives the run.
  direct_run(const trace& what, const run_options& options, bool compared);
  ~direct_run();

  /// On a client that has attached, as `attached` says; once. Errors: what keeps it from beginning, and those of a GPU,
  /// after which nothing that was compared counts.
  result<direct_outcome> play(caf::actor_system& system, node_client& client, const attach_reply& attached,
                              run_observer& observer);

private:
  std::shared_ptr<stage> scene_;
};

} // namespace troupe::replay
