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

/// What the coordinators of a client have in common as actors: rules in a `State`, callers whose promises wait for it,
/// requests to a node whose answers go back into it, and the timer. `Derived::perform` sends one effect of the state.
///
/// The node knows the handle, from requests that it gets: only this process is served.
///
/// Whatever changes the state is followed by `flush`: an effect that stays in the outbox is a request that is never
/// sent, or a caller who is never answered.
template <class Derived, class Interface, class State>
class coordinating_actor : public Interface::base {
public:
  /// `for_state`: what the state is made of.
  template <class... Ts>
  coordinating_actor(caf::actor_config& config, duration request_timeout, Ts&&... for_state)
      : Interface::base(config), state_(std::forward<Ts>(for_state)...), deadlines_(request_timeout) {}

  /// Whether nothing of this is under way that its end has to wait for.
  bool at_rest() const noexcept { return true; }

protected:
  timestamp now() const { return this->clock().now(); }
  State& state() noexcept { return state_; }
  const State& state() const noexcept { return state_; }
  duration request_timeout() const noexcept { return deadlines_.limit(); }

  // -- callers --

  /// Starts what a caller asks for. The answer comes from the state, by `answer`.
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

  /// Answers a caller, who may have been answered before.
  template <class Answer>
  void answer(std::uint64_t id, Answer&& what) {
    if (auto node = promises_.extract(id); !node.empty())
      node.mapped().deliver(std::forward<Answer>(what));
  }

  // -- the node --

  /// Why there is nothing to bind to: what a node cannot have said of itself, or somebody else who says it.
  template <class Binding>
  std::optional<error> check_node(const Binding& node) {
    if (!asked_from_here(*this))
      return not_this_process();
    if (leaving_)
      return error{errc::shutting_down, "the coordinator is ending"};
    if (node.owner == 0 || node.shards.empty())
      return error{errc::invalid_argument, "a binding needs an owner and at least one registry shard"};
    return std::nullopt;
  }

  /// Ends what is under way at the node of before, and works with this one. The caller has checked who asks.
  template <class Binding>
  void bind(const std::vector<client_shard_actor>& shards, const Binding& node) {
    unbind(errc::unreachable);
    shards_ = shards;
    state_.bind(node);
  }

  /// Ends all that is under way with `why`.
  void unbind(errc why) {
    state_.unbind(why);
    flush();
    shards_.clear();
  }

  /// The last word, from `on_exit`. Promises are left where the state waits for something whose answer will come too
  /// late now.
  void end() {
    leaving_.reset();
    unbind(errc::shutting_down);
    for (auto& [id, promise] : std::exchange(promises_, {}))
      promise.deliver(to_caf(error{errc::shutting_down, "the coordinator is ending"}));
  }

  const std::vector<client_shard_actor>& shards() const noexcept { return shards_; }
  const client_shard_actor& shard(std::uint32_t i) const { return shards_[i]; }

  // -- requests --

  enum class patience : std::uint8_t {
    /// For requests to the registry, whose loss can be made good by asking again.
    limited,
    /// For requests that have to do with frames: only the answer says what is pinned, or that nothing touches it any
    /// more, so waiting has no end of its own but the loss of the node. The caller's deadline is kept by the state.
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

  /// Sends a request for whose answer nobody waits.
  template <class Handle, class... Args>
  void tell(const Handle& to, Args&&... args) {
    deadlines_.watch(this->request(to, caf::infinite, std::forward<Args>(args)...), now())
        .then([] {}, [](const caf::error&) {});
  }

  // -- the end --

  /// Ends all that is under way, as far as it can, and then this: at once, or with the last answer that `at_rest` waits
  /// for.
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

  /// Carries out what the state wants done, and sees to it that there is a tick as long as something may run out.
  void flush() {
    for (auto& effect : state_.take_outbox())
      std::visit([this](auto& x) { static_cast<Derived*>(this)->perform(x); }, effect);
    if (leaving_ && static_cast<Derived*>(this)->at_rest())
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
  /// A tick is on its way; there is never a second.
  bool ticking_ = false;
  /// Why it ends as soon as it is at rest.
  std::optional<caf::error> leaving_;
};

} // namespace troupe
