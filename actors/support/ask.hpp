#pragma once

#include "actors/support/asking_round.hpp"
#include "messages/messages.hpp"

#include <atomic>
#include <functional>
#include <type_traits>
#include <utility>

namespace troupe {

/// A receiver for the answer to one request, used where there is no actor to receive it. It has no mailbox and no
/// thread: its function runs in the thread of the actor that answers.
///
/// The function is called exactly once. If all references to the receiver are dropped without an answer, for example
/// because the actor that was asked lost its promise, the function is called with `unreachable`.
template <class Reply, class Then>
class answer_receiver final : public caf::monitorable_actor {
public:
  /// `asks_elsewhere`: the request goes to another process. CAF keeps each actor that another process knows until it
  /// ends, so the receiver ends itself after the answer.
  answer_receiver(caf::actor_config& config, Then then, bool asks_elsewhere)
      : caf::monitorable_actor(config), then_(std::move(then)), asks_elsewhere_(asks_elsewhere) {}

  ~answer_receiver() override {
    // There is an answer in nearly all cases; then no error text has to be built.
    if (!answered_.load(std::memory_order_relaxed))
      deliver(tl::unexpected<error>(error{errc::unreachable, "the actor ended without answering"}));
  }

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override {
    take(element->move_content_to_message());
    if (asks_elsewhere_)
      cleanup(caf::make_error(caf::exit_reason::normal), host);
  }
  /// Cancels the request: the function is not called, and actors that monitor the sender of the request are notified
  /// that it has ended. False if the function has been called, or is being called.
  bool cancel() {
    if (answered_.exchange(true, std::memory_order_relaxed))
      return false;
    cleanup(caf::make_error(caf::exit_reason::user_shutdown), nullptr);
    return true;
  }

  const char* name() const override { return "answer_receiver"; }

private:
  void take(caf::message content) {
    if (content.match_elements<caf::error>()) {
      deliver(tl::unexpected<error>(from_caf(content.get_as<caf::error>(0))));
    } else if constexpr (std::is_void_v<Reply>) {
      deliver({});
    } else if (content.match_elements<Reply>()) {
      deliver(std::move(content.get_mutable_as<Reply>(0)));
    } else {
      deliver(tl::unexpected<error>(error{errc::internal, "an actor answered with another type than it declares"}));
    }
  }

  void deliver(result<Reply> answer) noexcept {
    if (!answered_.exchange(true, std::memory_order_relaxed))
      then_(std::move(answer));
  }

  Then then_;
  const bool asks_elsewhere_;
  std::atomic<bool> answered_{false};
};

/// Sends the request with the receiver as its sender. Returns null where `to` is null; then `then` has been called
/// already.
template <class Reply, class Handle, class Then, class... Ts>
caf::strong_actor_ptr send_request(caf::actor_system& system, const Handle& to, Then then, Ts&&... xs) {
  using asked = caf::detail::type_list<typename caf::detail::implicit_conversions<std::decay_t<Ts>>::type...>;
  using answer = caf::response_type_unbox<caf::signatures_of_t<Handle>, asked>;
  static_assert(answer::valid, "the actor does not take this message");
  using declared =
      std::conditional_t<std::is_void_v<Reply>, caf::detail::type_list<void>, caf::detail::type_list<Reply>>;
  static_assert(std::is_same_v<typename answer::type, declared>, "the actor answers with another type");
  if (!to) {
    then(result<Reply>(tl::unexpected<error>(error{errc::unreachable, "there is no actor to ask"})));
    return nullptr;
  }
  caf::actor_config config;
  auto receiver = caf::make_actor<answer_receiver<Reply, Then>, caf::strong_actor_ptr>(
      system.next_actor_id(), system.node(), &system, config, std::move(then), to.node() != system.node());
  caf::actor_cast<caf::strong_actor_ptr>(to)->enqueue(
      receiver, caf::message_id(1).with_category(caf::message_id::normal_message_category),
      caf::make_message(std::forward<Ts>(xs)...), asking_round::for_question(system));
  return receiver;
}

/// Sends a request to an actor from a thread that belongs to no actor, and does not wait. `then` gets a
/// `result<Reply>`, in the thread of the actor that answers. It must be short, must not throw, and usually passes the
/// answer on to a thread of its own. There is no time limit; a caller that needs one has to keep it.
template <class Reply, class Handle, class Then, class... Ts>
void ask(caf::actor_system& system, const Handle& to, Then then, Ts&&... xs) {
  send_request<Reply>(system, to, std::move(then), std::forward<Ts>(xs)...);
}

/// Cancels a request, from any thread: see `answer_receiver::cancel`. Does not keep the receiver alive.
using cancel_function = std::function<bool()>;

/// As `ask`, for an answer that may take long; the returned function cancels the request.
template <class Reply, class Handle, class Then, class... Ts>
cancel_function ask_for_long(caf::actor_system& system, const Handle& to, Then then, Ts&&... xs) {
  const auto receiver = send_request<Reply>(system, to, std::move(then), std::forward<Ts>(xs)...);
  return [weak = caf::actor_cast<caf::actor_addr>(receiver)] {
    const auto still_there = caf::actor_cast<caf::strong_actor_ptr>(weak);
    return still_there && static_cast<answer_receiver<Reply, Then>*>(still_there->get())->cancel();
  };
}

} // namespace troupe
