#pragma once

#include "actors/support/ask.hpp"
#include "base/error.hpp"
#include "store/metadata_store.hpp"

#include <caf/all.hpp>

#include <future>
#include <memory>
#include <utility>

/// Calls that wait for their answer, for the start of a node: nothing else runs in its thread.

namespace troupe {

template <class Reply, class Handle, class... Ts>
std::future<result<Reply>> begin_ask(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  auto answered = std::make_shared<std::promise<result<Reply>>>();
  auto out = answered->get_future();
  ask<Reply>(
      system, to, [answered](result<Reply> reply) { answered->set_value(std::move(reply)); }, std::forward<Ts>(xs)...);
  return out;
}

template <class Reply, class Handle, class... Ts>
result<Reply> ask_and_wait(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  return begin_ask<Reply>(system, to, std::forward<Ts>(xs)...).get();
}

/// Returns once the batch is on the medium. Nothing for an empty one.
inline result<void> commit_and_wait(store::metadata_store& to, store::write_batch batch) {
  if (batch.empty())
    return {};
  batch.require_sync();
  const auto answered = std::make_shared<std::promise<result<void>>>();
  auto out = answered->get_future();
  if (auto taken = to.commit(std::move(batch), [answered](result<void> x) { answered->set_value(std::move(x)); });
      !taken)
    return taken;
  return out.get();
}

} // namespace troupe
