#pragma once

#include "actors/support/directory_opener.hpp"
#include "handshake/client_state.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <future>
#include <memory>

namespace troupe::handshake {

/// Resolves in the background what peers have published (the rules: `client_state`). Queries the directory through
/// actors, in this process or across a connection; the directory notifies it of restarted engines, so that outdated
/// results are not used. When the node or the connection to it is lost, it reconnects and repeats the pending fetches.
/// All functions may be called from any thread and do not block.
class client {
public:
  /// Called once, from any thread: must be short and not throw. May call the client.
  using callback = std::function<void(result<resolution>)>;
  using number = client_state::number;

  /// `system` must outlive the client. `open`: as of `directory_of` (actors/client/directory_dialer.hpp).
  client(caf::actor_system& system, directory_opener open, client_options options = {});
  /// `connection`: the answer of a node's reception to `handshake_atom`. There is no reconnection when it ends.
  client(caf::actor_system& system, handshake_proxy_actor connection, client_options options = {});
  /// Answers all pending requests with shutting_down. A callback that is running in another thread may end later.
  ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  /// Answers by the deadline of the request, at once if the ranks are known. The number is for `cancel`.
  number resolve(const resolve_request& x, callback then);
  /// The same with a future; `who` receives the number, if it is given.
  std::future<result<resolution>> resolve(const resolve_request& x, number* who = nullptr);
  /// Answers with `cancelled`, unless there is an answer already. A fetch that no request waits for releases its place
  /// at the directory as well.
  void cancel(number who);
  /// Drops the cached results of the engine.
  void forget(const std::string& engine);

private:
  struct core;
  std::shared_ptr<core> core_;
};

} // namespace troupe::handshake
