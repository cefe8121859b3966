#include "actors/client/transfer/save_coordinator.hpp"

namespace troupe {

using transfer::save_state;

void save_coordinator::perform(transfer::save_reserve& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_reserve, x.call, std::move(x.request));
}

void save_coordinator::perform(transfer::save_gather& x) {
  ask(copier(), patience::until_answered, &save_state::on_gather, x.call, gather_atom_v, std::move(x.order));
}

void save_coordinator::perform(transfer::save_write& x) {
  ask(worker(), patience::until_answered, &save_state::on_write, x.call, write_atom_v, std::move(x.batch));
}

void save_coordinator::perform(transfer::save_commit& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_commit, x.call, commit_atom_v, std::move(x.request));
}

void save_coordinator::perform(transfer::save_abort& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_abort, x.call, abort_atom_v, std::move(x.request));
}

} // namespace troupe
