#pragma once

#include "actors/support/directory_opener.hpp"
#include "handshake/client_state.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <future>
#include <memory>

namespace troupe::handshake {

/// Finds out in the background what peers have published (the rules: `client_state`). Asks the directory through
/// actors, in this process or across a connection; the directory tells it of engines that start again, so that what is
/// known of them is not used any more. When the node, or the connection to it, has gone away, it opens another door,
/// and goes on with those who wait. All functions may be called from any thread and wait for nothing.
class client {
public:
  /// Called once, from any thread: short, and without exceptions. May call the client.
  using callback = std::function<void(result<resolution>)>;
  using number = client_state::number;

  /// `system` has to outlive the client. `open`: as of `directory_of` (actors/client/directory_doors.hpp).
  client(caf::actor_system& system, directory_opener open, client_options options = {});
  /// `door`: what a node's reception answers to `handshake_atom`. There is no other one when it ends.
  client(caf::actor_system& system, handshake_door_actor door, client_options options = {});
  /// Everybody who waits is answered with shutting_down. A callback that another thread was calling may end later.
  ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  /// Answers by the deadline of the request, at once where the ranks are known that it wants. The number is for
  /// `cancel`.
  number resolve(const resolve_request& x, callback then);
  /// The same where somebody waits for the future, and `who` gets the number, if it is given.
  std::future<result<resolution>> resolve(const resolve_request& x, number* who = nullptr);
  /// Answers with `cancelled`, unless there is an answer already. What nobody waits for any more takes no place at the
  /// directory, either.
  void cancel(number who);
  /// What is known of the engine is not to be used again.
  void forget(const std::string& engine);

private:
  struct core;
  std::shared_ptr<core> core_;
};

} // namespace troupe::handshake
