#pragma once

#include "base/error.hpp"
#include "messages/messages.hpp"
#include "store/metadata_store.hpp"

#include <caf/all.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace troupe {

/// Passes a batch to the store, as `metadata_store::commit` says, and sends the outcome to an actor as a code and a
/// text. The store's thread calls back, so the callback may only send. An anonymous message keeps no actor alive and
/// needs no answer.
template <class Actor>
result<void> commit_and_notify(store::metadata_store& store, store::write_batch&& batch, Actor whom) {
  return store.commit(std::move(batch), [whom = std::move(whom)](auto outcome) {
    if (outcome)
      caf::anon_send(whom, written_atom_v, static_cast<std::uint8_t>(errc::ok), std::string());
    else
      caf::anon_send(whom, written_atom_v, static_cast<std::uint8_t>(outcome.error().code), outcome.error().text);
  });
}

} // namespace troupe
