#pragma once

#include "base/threads.hpp"
#include "messages/messages.hpp"

#include <caf/all.hpp>
#include <caf/detail/private_thread.hpp>

#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

namespace troupe {

/// An actor that names the thread in which it starts, which is its own. The thread ends when the actor has ended, also
/// while handles to the actor are kept.
template <class Actor>
class with_named_thread final : public Actor {
public:
  template <class... Args>
  with_named_thread(caf::actor_config& config, thread_name thread, Args&&... args)
      : Actor(config, std::forward<Args>(args)...), thread_(thread) {}

  /// CAF's thread would wait until the actor is destroyed, hence for the last handle to it, and the actor system waits
  /// for the thread at its end. A handle may be in a message that is destroyed only after the actor system, such as one
  /// that reached the broker of connections after its end: neither would ever end.
  bool cleanup(caf::error&& why, caf::execution_unit* host) override {
    if (this->private_thread_ == nullptr)
      return false;
    // Closes the mailbox. After that, only the thread itself uses the object that is released here.
    const bool out = Actor::cleanup(std::move(why), host);
    std::exchange(this->private_thread_, nullptr)->notify_self_destroyed();
    return out;
  }

protected:
  typename Actor::behavior_type make_behavior() override {
    name_this_thread(thread_);
    return Actor::make_behavior();
  }

private:
  const thread_name thread_;
};

/// Spawns an actor with a thread of its own, which gets a name and ends with the actor. Errors: `io_error` where no
/// thread can be created; then the actor has ended and is freed. CAF's own function would count the actor as running
/// for ever, and the actor system would wait for it at shutdown. `what`: such as "the thread that copies pages".
template <class Actor, class... Args>
result<caf::infer_handle_from_class_t<Actor>> spawn_with_thread(caf::actor_system& system, caf::actor_config& config,
                                                                thread_name name, std::string_view what,
                                                                Args&&... args) {
  static_assert(!std::is_aggregate_v<Actor>, "an actor declares its constructors");
  const bool hidden = (config.flags & caf::abstract_actor::is_hidden_flag) != 0;
  config.flags |= caf::abstract_actor::is_detached_flag;
  if (config.host == nullptr)
    config.host = system.dummy_execution_unit();
  auto made = caf::make_actor<with_named_thread<Actor>, caf::infer_handle_from_class_t<Actor>>(
      system.next_actor_id(), system.node(), &system, config, name, std::forward<Args>(args)...);
  caf::scheduled_actor* const actor = static_cast<Actor*>(caf::actor_cast<caf::abstract_actor*>(made));
  try {
    actor->launch(config.host, false, hidden);
  } catch (const std::system_error& e) {
    // The cleanup that the thread would have done at its end.
    actor->cleanup(caf::make_error(caf::exit_reason::out_of_workers), config.host);
    system.dec_detached_threads();
    caf::intrusive_ptr_release(actor->ctrl());
    return tl::unexpected<error>(no_thread(what, e.code().value()));
  }
  return made;
}

template <class Actor, class... Args>
result<caf::infer_handle_from_class_t<Actor>> spawn_with_thread(caf::actor_system& system, thread_name name,
                                                                std::string_view what, Args&&... args) {
  caf::actor_config config;
  return spawn_with_thread<Actor>(system, config, name, what, std::forward<Args>(args)...);
}

} // namespace troupe
