#pragma once

#include "actors/client/transfer/coordinator_core.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/request_deadlines.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

namespace troupe {

/// What the save and the load coordinator have in common as actors: tasks with their promises, binding to a node, the
/// timer. `Derived::perform` sends one effect; its answer goes back into the state through `ask`.
template <class Derived, class State>
class coordinator : public transfer_actor::base {
public:
  coordinator(caf::actor_config& config, const transfer::coordinator_options& options, copy_engine_actor copier,
              duration request_timeout)
      : transfer_actor::base(config), state_(options), copier_(std::move(copier)), deadlines_(request_timeout) {}

  void on_exit() override {
    state_.unbind(errc::shutting_down);
    flush();
    // What is left waits for the copy engine, whose answer would come too late.
    for (auto& [task, promise] : promises_)
      promise.deliver(to_caf(error{errc::shutting_down, "the coordinator is ending"}));
    promises_.clear();
    copier_ = nullptr;
    unbind_handles();
  }

protected:
  behavior_type make_behavior() override {
    return {
        [this](const transfer_task& work) -> caf::result<transfer_result> {
          const auto id = state_.start(work, now());
          if (!id)
            return to_caf(id.error());
          auto promise = make_response_promise();
          promises_.emplace(*id, promise);
          flush();
          return promise;
        },
        [this](cancel_atom, const packed<std::uint64_t>& tags) -> caf::result<void> {
          state_.cancel(tags.items, now());
          flush();
          return caf::unit;
        },
        [this](bind_atom, const coordinator_binding& node) -> caf::result<void> {
          if (auto bad = check(node))
            return to_caf(*bad);
          state_.unbind(errc::unreachable);
          flush();
          shards_ = node.shards;
          worker_ = node.worker;
          state_.bind({node.owner, node.ticket_stream, static_cast<std::uint32_t>(shards_.size()),
                       node.limits.batch_keys, node.limits.reservation, node.limits.lease, node.segment,
                       node.buffer_offset, node.buffer_count});
          return caf::unit;
        },
        [this](unbind_atom) -> caf::result<void> {
          state_.unbind(errc::unreachable);
          flush();
          unbind_handles();
          return caf::unit;
        },
        [this](caf::tick_atom) {
          ticking_ = false;
          deadlines_.expire(*this, now());
          state_.on_tick(now());
          flush();
        },
    };
  }

  timestamp now() const { return clock().now(); }

  enum class patience : std::uint8_t {
    /// For requests to the registry, whose loss can be made good by asking again.
    limited,
    /// For requests that keep page buffers in use: those buffers are free again only when the answer is there or the
    /// node is lost, so waiting has no end of its own. The caller's deadline is kept by the state.
    until_answered,
  };

  /// Sends a request whose answer, of type `Reply`, goes to `(state.*on_reply)(call, answer, now)`.
  template <class Reply, class Handle, class... Args>
  void ask(const Handle& to, patience how, void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp),
           transfer::call_id call, Args&&... args) {
    auto sent = this->request(to, caf::infinite, std::forward<Args>(args)...);
    if (how == patience::limited)
      deadlines_.watch(sent, now());
    if constexpr (std::is_void_v<Reply>)
      sent.then(
          [this, on_reply, call] {
            (state_.*on_reply)(call, {}, now());
            flush();
          },
          [this, on_reply, call](const caf::error& e) {
            (state_.*on_reply)(call, failed<void>(e), now());
            flush();
          });
    else
      sent.then(
          [this, on_reply, call](Reply& reply) {
            (state_.*on_reply)(call, std::move(reply), now());
            flush();
          },
          [this, on_reply, call](const caf::error& e) {
            (state_.*on_reply)(call, failed<Reply>(e), now());
            flush();
          });
  }

  const client_shard_actor& shard(std::uint32_t i) const { return shards_[i]; }
  const client_worker_actor& worker() const { return worker_; }
  const copy_engine_actor& copier() const { return copier_; }

  void perform(transfer::task_finished& ended) {
    auto node = promises_.extract(ended.task);
    if (!node.empty())
      node.mapped().deliver(std::move(ended.result));
  }

private:
  /// What a node cannot have said.
  std::optional<error> check(const coordinator_binding& node) const {
    if (node.owner == 0 || node.shards.empty())
      return error{errc::invalid_argument, "a binding needs an owner and at least one registry shard"};
    const auto slot = state_.options().slot_bytes;
    // Segments are made of whole pages.
    const auto most =
        std::max(node.limits.segment_bytes, io::slot_bytes(node.limits.segment_bytes) - io::page_header_bytes);
    if (slot == 0 || node.buffer_offset > most || node.buffer_count > (most - node.buffer_offset) / slot)
      return error{errc::out_of_range,
                   std::to_string(node.buffer_count) + " page buffers from " + std::to_string(node.buffer_offset) +
                       " lie outside of a segment of at most " + std::to_string(node.limits.segment_bytes) + " bytes"};
    return std::nullopt;
  }

  void flush() {
    for (auto& effect : state_.take_outbox())
      std::visit([this](auto& x) { static_cast<Derived*>(this)->perform(x); }, effect);
    if (!ticking_ && (state_.open_tasks() > 0 || !deadlines_.empty())) {
      ticking_ = true;
      delayed_send(this, std::chrono::milliseconds(100), caf::tick_atom_v);
    }
  }

  void unbind_handles() {
    shards_.clear();
    worker_ = nullptr;
  }

  State state_;
  copy_engine_actor copier_;
  request_deadlines deadlines_;
  std::vector<client_shard_actor> shards_;
  client_worker_actor worker_;
  std::unordered_map<transfer::task_id, caf::response_promise> promises_;
  bool ticking_ = false;
};

} // namespace troupe
