#pragma once

#include "actors/client/transfer/coordinating_actor.hpp"
#include "actors/client/transfer/coordinator_core.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe {

/// What the save and the load coordinator have in common as actors: tasks, page buffers of a node, a copy engine.
template <class Derived, class State>
class coordinator : public coordinating_actor<Derived, transfer_actor, State> {
  using super = coordinating_actor<Derived, transfer_actor, State>;

public:
  coordinator(caf::actor_config& config, const transfer::coordinator_options& options, copy_engine_actor copier,
              duration request_timeout)
      : super(config, request_timeout, options), copier_(std::move(copier)) {}

  void on_exit() override {
    this->end();
    copier_ = nullptr;
    worker_ = nullptr;
  }

protected:
  transfer_actor::behavior_type make_behavior() override {
    return {
        [this](const transfer_task& work) { return this->template start<transfer_result>(work); },
        [this](cancel_atom, const packed<std::uint64_t>& tags) -> caf::result<void> {
          if (auto bad = check(tags))
            return to_caf(*bad);
          this->state().cancel(tags.items, this->now());
          this->flush();
          return caf::unit;
        },
        [this](bind_atom, const coordinator_binding& node) -> caf::result<void> {
          if (auto bad = check(node))
            return to_caf(*bad);
          this->bind(node.shards, transfer::node_binding{
                                      node.owner, node.ticket_stream, static_cast<std::uint32_t>(node.shards.size()),
                                      node.limits.batch_keys, node.limits.reservation, node.limits.lease, node.segment,
                                      node.buffer_offset, node.buffer_count});
          worker_ = node.worker;
          return caf::unit;
        },
        [this](unbind_atom) -> caf::result<void> {
          if (!asked_from_here(*this))
            return to_caf(not_this_process());
          this->unbind(errc::unreachable);
          worker_ = nullptr;
          return caf::unit;
        },
        [this](caf::tick_atom) { this->on_tick(); },
    };
  }

  const client_worker_actor& worker() const { return worker_; }
  const copy_engine_actor& copier() const { return copier_; }

  void perform(transfer::task_finished& ended) { this->answer(ended.task, std::move(ended.result)); }

private:
  /// What a node cannot have said.
  std::optional<error> check(const coordinator_binding& node) {
    if (auto bad = super::check_node(node))
      return bad;
    const auto slot = this->state().options().slot_bytes;
    // Segments are made of whole pages.
    const auto most =
        std::max(node.limits.segment_bytes, io::slot_bytes(node.limits.segment_bytes) - io::page_header_bytes);
    if (slot == 0 || node.buffer_offset > most || node.buffer_count > (most - node.buffer_offset) / slot)
      return error{errc::out_of_range,
                   std::to_string(node.buffer_count) + " page buffers from " + std::to_string(node.buffer_offset) +
                       " lie outside of a segment of at most " + std::to_string(node.limits.segment_bytes) + " bytes"};
    return std::nullopt;
  }

  std::optional<error> check(const packed<std::uint64_t>& tags) {
    if (!asked_from_here(*this))
      return not_this_process();
    if (const auto most = this->state().options().tasks_max; tags.size() > most)
      return error{errc::limit_exceeded, std::to_string(tags.size()) + " tags to cancel; a coordinator has at most " +
                                             std::to_string(most) + " tasks (transfer.max_tasks)"};
    return std::nullopt;
  }

  copy_engine_actor copier_;
  client_worker_actor worker_;
};

} // namespace troupe
