#pragma once

#include "actors/client/transfer/coordinator.hpp"
#include "actors/client/transfer/save_state.hpp"

namespace troupe {

/// Saves blocks of one rank of one namespace. Runs beside the engine, in its process; registry and io worker may be
/// in another.
class save_coordinator : public coordinator<save_coordinator, transfer::save_state> {
public:
  using coordinator::coordinator;

  const char* name() const override { return "save_coordinator"; }

  using coordinator::perform;
  void perform(transfer::save_reserve& x);
  void perform(transfer::save_place& x);
  void perform(transfer::save_gather& x);
  void perform(transfer::save_fill& x);
  void perform(transfer::save_commit& x);
  void perform(transfer::save_abort& x);
};

} // namespace troupe
