#pragma once

#include "actors/support/actor_support.hpp"
#include "actors/support/request_deadlines.hpp"
#include "messages/messages.hpp"

#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// The common part of a client's coordinators as actors: rules in a `State`, callers whose promises wait for it,
/// requests to a node whose answers go back into it, and the timer. `Derived::perform` sends one effect of the state.
///
/// The node has the handle from the requests that it receives, but only this process is served.
///
/// Every change of the state is followed by `flush`: an effect that stays in the outbox is a request that is never
/// sent, or a caller that is never answered.
template <class Derived, class Interface, class State>
class coordinating_actor : public Interface::base {
public:
  /// `for_state`: the arguments of the state's constructor.
  template <class... Ts>
  coordinating_actor(caf::actor_config& config, duration request_timeout, Ts&&... for_state)
      : Interface::base(config), state_(std::forward<Ts>(for_state)...), deadlines_(request_timeout) {}

  /// Whether no request is in progress that the end of this actor has to wait for.
  bool quiesced() const noexcept { return true; }

protected:
  timestamp now() const { return this->clock().now(); }
  State& state() noexcept { return state_; }
  const State& state() const noexcept { return state_; }
  duration request_timeout() const noexcept { return deadlines_.limit(); }

  // -- callers --

  /// Starts a caller's task. The answer comes from the state, by `answer`.
  template <class Answer, class Task>
  caf::result<Answer> start(const Task& work) {
    if (!asked_from_here(*this))
      return to_caf(not_this_process());
    const auto id = state_.start(work, now());
    if (!id)
      return to_caf(id.error());
    auto promise = this->make_response_promise();
    promises_.emplace(*id, promise);
    flush();
    return promise;
  }

  /// Answers a caller, unless it was answered before.
  template <class Answer>
  void answer(std::uint64_t id, Answer&& what) {
    if (auto node = promises_.extract(id); !node.empty())
      node.mapped().deliver(std::forward<Answer>(what));
  }

  // -- the node --

  /// Why the binding is refused: values that a node cannot have sent, or a request from another process.
  template <class Binding>
  std::optional<error> check_node(const Binding& node) {
    if (!asked_from_here(*this))
      return not_this_process();
    if (leaving_)
      return error{errc::shutting_down, "the coordinator is shutting down"};
    if (node.owner == 0 || node.shards.empty())
      return error{errc::invalid_argument, "a binding needs an owner and at least one registry shard"};
    return std::nullopt;
  }

  /// Ends what is in progress at the earlier node, and uses this one. The caller has called `check_node`.
  template <class Binding>
  void bind(const std::vector<client_shard_actor>& shards, const Binding& node) {
    unbind(errc::unreachable);
    shards_ = shards;
    state_.bind(node);
  }

  /// Ends all that is in progress with `why`.
  void unbind(errc why) {
    state_.unbind(why);
    flush();
    shards_.clear();
  }

  /// Ends everything, from `on_exit`. Answers also the callers for which the state waits, because those answers would
  /// come too late.
  void end() {
    leaving_.reset();
    unbind(errc::shutting_down);
    for (auto& [id, promise] : std::exchange(promises_, {}))
      promise.deliver(to_caf(error{errc::shutting_down, "the coordinator is shutting down"}));
  }

  const std::vector<client_shard_actor>& shards() const noexcept { return shards_; }
  const client_shard_actor& shard(std::uint32_t i) const { return shards_[i]; }

  // -- requests --

  enum class patience : std::uint8_t {
    /// For requests to the registry, which can be repeated if they are lost.
    limited,
    /// For requests about frames: only the answer says what is pinned, or that it is not accessed any more. So the wait
    /// ends only with the answer or the loss of the node. The state enforces the caller's deadline.
    until_answered,
  };

  /// Sends a request whose answer, of type `Reply`, goes to `(state.*on_reply)(call, answer, now)`.
  template <class Reply, class Handle, class... Args>
  void ask(const Handle& to, patience how, void (State::*on_reply)(std::uint64_t, result<Reply>, timestamp),
           std::uint64_t call, Args&&... args) {
    auto sent = this->request(to, caf::infinite, std::forward<Args>(args)...);
    if (how == patience::limited)
      deadlines_.watch(sent, now());
    const auto failed_to = [this, on_reply, call](const caf::error& e) {
      (state_.*on_reply)(call, failed<Reply>(e), now());
      flush();
    };
    if constexpr (std::is_void_v<Reply>)
      sent.then(
          [this, on_reply, call] {
            (state_.*on_reply)(call, {}, now());
            flush();
          },
          failed_to);
    else
      sent.then(
          [this, on_reply, call](Reply& reply) {
            (state_.*on_reply)(call, std::move(reply), now());
            flush();
          },
          failed_to);
  }

  /// Sends a request whose answer is ignored.
  template <class Handle, class... Args>
  void tell(const Handle& to, Args&&... args) {
    deadlines_.watch(this->request(to, caf::infinite, std::forward<Args>(args)...), now())
        .then([] {}, [](const caf::error&) {});
  }

  // -- the end --

  /// Ends all that is in progress, as far as possible, and then this actor: at once, or with the last answer that
  /// `quiesced` waits for.
  void leave(caf::error why) {
    leaving_ = std::move(why);
    unbind(errc::shutting_down);
  }

  void on_tick() {
    ticking_ = false;
    deadlines_.expire(*this, now());
    state_.on_tick(now());
    flush();
  }

  /// Carries out the effects of the state, and keeps a tick scheduled as long as there is a deadline.
  void flush() {
    for (auto& effect : state_.take_outbox())
      std::visit([this](auto& x) { static_cast<Derived*>(this)->perform(x); }, effect);
    if (leaving_ && static_cast<Derived*>(this)->quiesced())
      return this->quit(*std::exchange(leaving_, std::nullopt));
    if (!ticking_ && (state_.needs_ticks() || !deadlines_.empty())) {
      ticking_ = true;
      this->delayed_send(this, std::chrono::milliseconds(100), caf::tick_atom_v);
    }
  }

private:
  State state_;
  request_deadlines deadlines_;
  std::vector<client_shard_actor> shards_;
  std::unordered_map<std::uint64_t, caf::response_promise> promises_;
  /// Whether a tick is scheduled; there is never a second one.
  bool ticking_ = false;
  /// The reason with which the actor ends once it is drained.
  std::optional<caf::error> leaving_;
};

} // namespace troupe
