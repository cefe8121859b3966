#include "actors/client/transfer/load_coordinator.hpp"

namespace troupe {

using transfer::load_state;

void load_coordinator::perform(transfer::load_locate& x) {
  ask(shard(x.shard), patience::limited, &load_state::on_locate, x.call, std::move(x.request));
}

void load_coordinator::perform(transfer::load_fetch& x) {
  ask(worker(), patience::until_answered, &load_state::on_fetch, x.call, fetch_atom_v, std::move(x.request));
}

void load_coordinator::perform(transfer::load_scatter& x) {
  ask(copier(), patience::until_answered, &load_state::on_scatter, x.call, scatter_atom_v, std::move(x.order));
}

void load_coordinator::perform(transfer::load_unpin& x) {
  ask(worker(), patience::limited, &load_state::on_unpin, x.call, unpin_atom_v, x.pin);
}

void load_coordinator::perform(transfer::load_invalidate& x) {
  ask(shard(x.shard), patience::limited, &load_state::on_invalidate, x.call, std::move(x.request));
}

void load_coordinator::perform(transfer::load_read& x) {
  ask(reader_, patience::until_answered, &load_state::on_read, x.call,
      read_order{slab(), std::move(x.items), x.patience});
}

void load_coordinator::perform(transfer::load_release& x) {
  ask(shard(x.shard), patience::limited, &load_state::on_release, x.call, std::move(x.request));
}

} // namespace troupe
