#pragma once

#include "actors/client/transfer/coordinator.hpp"
#include "actors/client/transfer/load_state.hpp"

namespace troupe {

/// Loads blocks of one rank of one namespace. Runs beside the engine, in its process; registry and io worker may be
/// in another.
class load_coordinator : public coordinator<load_coordinator, transfer::load_state> {
public:
  using coordinator::coordinator;

  const char* name() const override { return "load_coordinator"; }

  using coordinator::perform;
  void perform(transfer::load_locate& x);
  void perform(transfer::load_fetch& x);
  void perform(transfer::load_scatter& x);
  void perform(transfer::load_unpin& x);
  void perform(transfer::load_invalidate& x);
  void perform(transfer::load_release& x);
};

} // namespace troupe
