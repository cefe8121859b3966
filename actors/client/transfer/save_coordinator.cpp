#include "actors/client/transfer/save_coordinator.hpp"

namespace troupe {

using transfer::save_state;

void save_coordinator::perform(transfer::save_reserve& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_reserve, x.call, std::move(x.request));
}

void save_coordinator::perform(transfer::save_place& x) {
  ask(worker(), patience::until_answered, &save_state::on_place, x.call, place_atom_v, std::move(x.request));
}

void save_coordinator::perform(transfer::save_gather& x) {
  ask(copier(), patience::until_answered, &save_state::on_gather, x.call, gather_atom_v, std::move(x.order));
}

void save_coordinator::perform(transfer::save_fill& x) {
  ask(worker(), patience::until_answered, &save_state::on_fill, x.call, fill_atom_v, std::move(x.request));
}

void save_coordinator::perform(transfer::save_commit& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_commit, x.call, commit_atom_v, std::move(x.request));
}

void save_coordinator::perform(transfer::save_abort& x) {
  ask(shard(x.shard), patience::limited, &save_state::on_abort, x.call, abort_atom_v, std::move(x.request));
}

} // namespace troupe
