#pragma once

#include "actors/client/transfer/lookup_state.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/request_deadlines.hpp"
#include "messages/messages.hpp"

#include <unordered_map>

namespace troupe {

/// Looks up prefixes over all registry shards for one client.
class lookup_coordinator : public lookup_actor::base {
public:
  lookup_coordinator(caf::actor_config& config, std::uint32_t lookups_max, duration request_timeout);

  const char* name() const override { return "lookup_coordinator"; }
  void on_exit() override;

  void perform(transfer::lookup_match& x);
  void perform(transfer::lookup_release& x);
  void perform(transfer::lookup_finished& x);

protected:
  behavior_type make_behavior() override;

private:
  timestamp now() const { return clock().now(); }
  caf::result<registry_stats> sum_stats();
  void flush();

  transfer::lookup_state state_;
  request_deadlines deadlines_;
  std::vector<client_shard_actor> shards_;
  std::unordered_map<transfer::lookup_id, caf::response_promise> promises_;
  open_promises counting_;
  bool ticking_ = false;
};

} // namespace troupe
