#pragma once

#include "actors/client/transfer/coordinating_actor.hpp"
#include "actors/client/transfer/coordinator_core.hpp"

#include <optional>
#include <utility>

namespace troupe {

/// The common part of the save and the load coordinator as actors: tasks, an io worker of a node, a copy engine.
template <class Derived, class State>
class coordinator : public coordinating_actor<Derived, transfer_actor, State> {
  using super = coordinating_actor<Derived, transfer_actor, State>;

public:
  /// `reads_slabs`: whether slab files of nodes with shared storage are read.
  coordinator(caf::actor_config& config, const transfer::coordinator_options& options, copy_engine_actor copier,
              duration request_timeout, bool reads_slabs = false)
      : super(config, request_timeout, options), copier_(std::move(copier)), reads_slabs_(reads_slabs) {}

  void on_exit() override {
    this->end();
    copier_ = nullptr;
    worker_ = nullptr;
  }

  /// Between two bindings, only calls whose blocks are being written are in progress.
  bool quiesced() const noexcept { return this->state().calls_under_way() == 0; }

protected:
  transfer_actor::behavior_type make_behavior() override {
    // A caller that has its answer reuses the blocks of the task. So the actor waits for copies that still write to
    // them, and then answers the task with their result.
    this->set_exit_handler([this](caf::exit_msg& x) { this->leave(std::move(x.reason)); });
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
          this->bind(node.shards, transfer::node_binding{.owner = node.owner,
                                                         .ticket_stream = node.ticket_stream,
                                                         .shard_count = static_cast<std::uint32_t>(node.shards.size()),
                                                         .batch_keys_max = node.limits.batch_keys,
                                                         .batch_pages_max = node.limits.batch_pages,
                                                         .reservation_max = node.limits.reservation,
                                                         .lease_max = node.limits.lease,
                                                         .window_pages = node.window_pages,
                                                         .shares_slab = reads_slabs_ && !node.slab.path.empty()});
          worker_ = node.worker;
          slab_ = node.slab;
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
  /// The slab file of the current or the last binding.
  const shared_slab& slab() const { return slab_; }

  void perform(transfer::task_finished& ended) { this->answer(ended.task, std::move(ended.result)); }

private:
  /// Checks for values that a node cannot have sent.
  std::optional<error> check(const coordinator_binding& node) {
    if (auto bad = super::check_node(node))
      return bad;
    const auto slot = this->state().options().slot_bytes;
    if (slot == 0 || node.window_pages == 0 || node.window_pages > node.limits.pinned_bytes / slot)
      return error{errc::out_of_range, "invalid window of " + std::to_string(node.window_pages) +
                                           " pages: it must have at least one page, and at most " +
                                           std::to_string(node.limits.pinned_bytes) + " bytes may be pinned"};
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
  bool reads_slabs_ = false;
  shared_slab slab_;
};

} // namespace troupe
