#pragma once

#include "actors/client/transfer/coordinating_actor.hpp"
#include "actors/client/transfer/lookup_state.hpp"

#include <optional>

namespace troupe {

/// Looks up prefixes over all registry shards for one client.
class lookup_coordinator : public coordinating_actor<lookup_coordinator, lookup_actor, transfer::lookup_state> {
public:
  lookup_coordinator(caf::actor_config& config, std::uint32_t lookups_max, duration request_timeout);

  const char* name() const override { return "lookup_coordinator"; }
  void on_exit() override;

  void perform(transfer::lookup_match& x);
  void perform(transfer::lookup_release& x);
  void perform(transfer::lookup_prefix_fetch& x);
  void perform(transfer::lookup_search& x);
  void perform(transfer::lookup_fetch& x);
  void perform(transfer::lookup_finished& x);

protected:
  lookup_actor::behavior_type make_behavior() override;

private:
  caf::result<void> release(const ticket& lease, const std::vector<key_digest>& kept_there);
  caf::result<registry_stats> sum_stats();
  caf::result<void> describe(const page_descriptions& pages);

  open_promises counting_;
  client_cluster_actor cluster_;
  /// What a node that wants descriptions of pages accepts; and their requests in progress.
  struct describing {
    namespace_id ns;
    std::uint32_t pages_most = 0;
  };
  std::optional<describing> described_;
  std::size_t describing_ = 0;
};

} // namespace troupe
