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
  /// A description of the first wrong page.
  std::string first_wrong;
  /// The node refused to save because of a damaged slab.
  bool slab_damaged = false;
  /// The reason why the run ended before the trace.
  std::optional<error> abandoned;
};

struct replay_context;

/// Plays a trace on the coordinators of a client: several concurrent requests, each of which looks up, loads, fills and
/// saves on all ranks. Owns the memory that pages are copied from and to, so it must outlive the client.
class direct_run {
public:
  /// With `compared`, blocks are filled with the expected content of the key, and every loaded byte is compared;
  /// without, only transfers are measured. The trace outlives the run.
  direct_run(const trace& what, const run_options& options, bool compared);
  ~direct_run();

  /// Runs once, on an attached client whose attachment is `attached`. Errors: the reason why it cannot begin, and those
  /// of a GPU, after which comparisons do not count.
  result<direct_outcome> play(caf::actor_system& system, node_client& client, const attach_reply& attached,
                              run_observer& observer);

private:
  std::shared_ptr<replay_context> scene_;
};

} // namespace troupe::replay
