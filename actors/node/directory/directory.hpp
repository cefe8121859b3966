#pragma once

#include "actors/node/directory/directory_journal.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/doors/outgoing_budget.hpp"
#include "base/next_tick.hpp"
#include "handshake/directory_state.hpp"
#include "messages/messages.hpp"
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

/// The directory of handshakes of a node (the rules: `handshake::directory_state`). With a store, what changes is
/// answered, and told to readers, when it is durable, and a new directory goes on with what the one before it knew,
/// deadlines included.
///
/// A fetch that waits is an entry of a table and a promise: it has no thread. It ends with who asked.
class directory : public directory_actor::base {
public:
  /// `store` may be null. `restored` is what it had. `outgoing` has room for what watchers in other processes are told;
  /// null: there is no bound.
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
  /// What a call has led to: changes to the store, answers to those who waited, news to watchers.
  void flush();
  /// Whether there is room for one more change with a payload of so many bytes, until the disk has it.
  bool may_wait_for_store(std::size_t bytes) const;
  /// Makes a change, and answers when it is durable. Where the disk does not keep up, nothing is changed.
  template <class Request>
  caf::result<handshake_reply> change(const Request& x,
                                      handshake_reply (handshake::directory_state::*how)(const Request&, timestamp));
  caf::result<handshake_fetch_reply> fetch(const handshake_fetch_request& x);
  /// Who asked is to be heard of as long as it waits for something.
  void follow(const caf::strong_actor_ptr& asker, number who);
  void unfollow(number who);
  void asker_is_gone(const caf::actor_addr& asker);
  caf::result<std::uint64_t> watch(const std::string& engine, const handshake_watcher_actor& who);
  void unwatch(number who);
  void tell_watchers();
  void wait_for_room(number who, const handshake_update& update);
  bool is_elsewhere(const handshake_watcher_actor& who) const { return who.node() != system().node(); }
  void write_changes();
  void store_failed(const error& why);
  void plan_tick();

  const handshake::directory_options options_;
  handshake::directory_state state_;
  std::shared_ptr<store::metadata_store> store_;
  /// Without a store: none.
  std::optional<directory_journal> journal_;
  const std::shared_ptr<outgoing_budget> outgoing_;
  /// Until then, there is no room for watchers elsewhere.
  std::optional<timestamp> no_room_until_;
  /// The store has taken nothing, and is not asked again before.
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
