#pragma once

#include "actors/node/directory/directory_records.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/outgoing_budget.hpp"
#include "base/next_tick.hpp"
#include "handshake/directory_state.hpp"
#include "messages/messages.hpp"
#include "store/journal.hpp"
#include "store/metadata_store.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace troupe {

/// The actor of a node's directory of handshakes; `handshake::directory_state` has the rules. With a store, changes are
/// answered and shown to readers once they are durable, and a new directory continues from the stored state, deadlines
/// included.
///
/// A waiting fetch is a table entry and a promise, without a thread. It ends when its requester disconnects.
class directory : public directory_actor::base {
public:
  /// `store` may be null. `restored` is its content. `outgoing` limits the memory of updates for watchers in other
  /// processes; null means no limit.
  directory(caf::actor_config& config, const handshake::directory_options& options,
            std::shared_ptr<store::metadata_store> store = nullptr, const restored_handshakes& restored = {},
            std::shared_ptr<outgoing_budget> outgoing = nullptr);

  const char* name() const override { return "directory"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using number = handshake::directory_state::number;

  timestamp now() const { return clock().now(); }
  clock_pair clocks() const { return {now(), std::chrono::system_clock::now()}; }
  void restore(const restored_handshakes& from);
  /// Sends the effects of a call: changes to the store, answers to waiting fetches, updates to watchers.
  void flush();
  /// Whether there is room for another change with this many payload bytes, until the disk has it.
  bool may_wait_for_store(std::size_t bytes) const;
  /// Makes a change, and answers when it is durable. If the disk is too slow, refuses without a change.
  template <class Request>
  caf::result<handshake_reply> change(const Request& x,
                                      handshake_reply (handshake::directory_state::*how)(const Request&, timestamp));
  caf::result<handshake_fetch_reply> fetch(const handshake_fetch_request& x);
  /// Monitors the requester while it waits for something.
  void follow(const caf::strong_actor_ptr& asker, number who);
  void unfollow(number who);
  void asker_is_gone(const caf::actor_addr& asker);
  caf::result<std::uint64_t> watch(const std::string& engine, const handshake_watcher_actor& who);
  void unwatch(number who);
  void notify_watchers();
  void wait_for_room(number who, const handshake_update& update);
  bool is_elsewhere(const handshake_watcher_actor& who) const { return who.node() != system().node(); }
  void write_changes();
  void plan_tick();

  const handshake::directory_options options_;
  handshake::directory_state state_;
  std::shared_ptr<store::metadata_store> store_;
  /// Set if there is a store.
  std::optional<store::journal> journal_;
  const std::shared_ptr<outgoing_budget> outgoing_;
  /// Until then there is no room for updates to watchers in other processes.
  std::optional<timestamp> no_room_until_;
  /// The store was full; it is not tried again before this time.
  std::optional<timestamp> store_full_until_;
  std::size_t waiting_for_store_ = 0;
  std::uint64_t refused_changes_ = 0;
  struct waiting_one {
    caf::response_promise promise;
    caf::actor_addr asker;
  };
  std::unordered_map<number, waiting_one> waiting_;
  std::map<caf::actor_addr, std::set<number>> askers_;
  number last_ = 0;
  std::map<number, handshake_watcher_actor> watchers_;
  next_tick tick_;
};

} // namespace troupe
