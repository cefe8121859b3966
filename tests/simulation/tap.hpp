#pragma once

#include "messages/messages.hpp"

#include <caf/all.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::simulation {

/// A message of a process to one of its actors, in flight.
struct passing {
  caf::strong_actor_ptr sender;
  caf::message_id id;
  caf::message content;
};

/// The handlers of a tap. Both see a message at the moment at which it is sent; a request therefore before the actor
/// behind the tap has processed it, and an answer in the very turn in which the actor has given it.
struct tap_rules {
  /// False: the handler forwards the message itself, or drops it.
  std::function<bool(passing&)> on_message{};
  /// Only requests are answered.
  std::function<bool(const passing& request, caf::message& answer)> on_answer{};
};

/// Stands before an actor: sees the messages to it and its answers, and may delay or change them. All of them stay in
/// order. Has no mailbox, and so takes no turn.
class tap final : public caf::monitorable_actor {
public:
  tap(caf::actor_config& config, caf::strong_actor_ptr behind, tap_rules rules);

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override;
  const char* name() const override { return "tap"; }

  /// Forwards a message as if it had just come and no handler had stopped it.
  void pass(passing what);
  /// As an answer of the actor behind.
  static void answer(const passing& request, caf::message content);

  const caf::strong_actor_ptr& behind() const noexcept { return behind_; }
  /// Lets go of the actor, whose process ends.
  void forget() { behind_ = nullptr, rules_ = {}; }

private:
  friend class tap_relay;

  caf::strong_actor_ptr behind_;
  tap_rules rules_;
};

caf::strong_actor_ptr make_tap(caf::actor_system& system, caf::strong_actor_ptr behind, tap_rules rules);

template <class Handle>
Handle put_tap(caf::actor_system& system, const Handle& behind, tap_rules rules) {
  return caf::actor_cast<Handle>(make_tap(system, caf::actor_cast<caf::strong_actor_ptr>(behind), std::move(rules)));
}

template <class Handle>
tap& tap_of(const Handle& handle) {
  return *caf::actor_cast<tap*>(handle);
}

/// Asks actors in the name of the world itself. Answers are received in the turn in which they are given.
class asker final : public caf::monitorable_actor {
public:
  using then = std::function<void(caf::message&)>;

  explicit asker(caf::actor_config& config) : caf::monitorable_actor(config) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override;
  const char* name() const override { return "asker"; }

  void ask(const caf::strong_actor_ptr& to, caf::message what, then done);
  void forget() { waiting_.clear(); }
  /// Ends, so that its monitors are notified: answers are not taken any more.
  void end();

  static caf::strong_actor_ptr make(caf::actor_system& system);

private:
  std::map<std::uint64_t, then> waiting_;
  std::uint64_t last_ = 1'000'000;
};

template <class T>
result<T> answer_as(const caf::message& answer) {
  if (answer.match_elements<caf::error>())
    return tl::unexpected<error>(from_caf(answer.get_as<caf::error>(0)));
  if constexpr (std::is_void_v<T>)
    return {};
  else if (answer.match_elements<T>())
    return answer.get_as<T>(0);
  else
    return fail(errc::internal, "an answer of another kind: " + caf::deep_to_string(answer));
}

/// Takes every message and does nothing with it.
caf::strong_actor_ptr make_deaf(caf::actor_system& system);

} // namespace troupe::simulation
