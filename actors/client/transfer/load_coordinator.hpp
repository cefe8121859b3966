#pragma once

#include "actors/client/transfer/coordinator.hpp"
#include "actors/client/transfer/load_state.hpp"

namespace troupe {

/// Loads blocks of one rank of one namespace. Runs beside the engine, in its process; registry and io worker may be
/// in another.
class load_coordinator : public coordinator<load_coordinator, transfer::load_state> {
public:
  /// `reader`: reads slab files of nodes whose storage is shared; null: they are not read.
  load_coordinator(caf::actor_config& config, const transfer::coordinator_options& options, copy_engine_actor copier,
                   duration request_timeout, slab_reading_actor reader = {})
      : coordinator(config, options, std::move(copier), request_timeout, static_cast<bool>(reader)),
        reader_(std::move(reader)) {}

  const char* name() const override { return "load_coordinator"; }
  void on_exit() override {
    coordinator::on_exit();
    reader_ = nullptr;
  }

  using coordinator::perform;
  void perform(transfer::load_locate& x);
  void perform(transfer::load_fetch& x);
  void perform(transfer::load_scatter& x);
  void perform(transfer::load_unpin& x);
  void perform(transfer::load_invalidate& x);
  void perform(transfer::load_release& x);
  void perform(transfer::load_read& x);

private:
  slab_reading_actor reader_;
};

} // namespace troupe
