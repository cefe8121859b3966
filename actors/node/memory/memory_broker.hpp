#pragma once

#include "actors/node/memory/memory_broker_state.hpp"
#include "io/memory/extent_source.hpp"
#include "messages/messages.hpp"

#include <map>
#include <memory>
#include <utility>

namespace troupe {

/// The actor that distributes the arena of a node among the io workers of its ranks when all extents are assigned;
/// `memory_broker_state` has the rules. There is one per node; workers may come and go.
class memory_broker : public memory_broker_actor::base {
public:
  /// `patience`: how long a rank may try to empty an extent.
  memory_broker(caf::actor_config& config, std::shared_ptr<io::extent_source> extents,
                const memory_broker_options& options = {}, duration patience = std::chrono::seconds(5));

  const char* name() const override { return "memory_broker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using holder = memory_broker_state::holder;

  timestamp now() const { return clock().now(); }
  void flush();
  void ask_back(const memory_broker_state::order& x);
  void assign(const memory_broker_state::assignment& x);
  void forget(holder x);

  std::shared_ptr<io::extent_source> extents_;
  duration patience_;
  memory_broker_state state_;
  std::map<std::pair<namespace_id, rank_number>, holder> numbers_;
  std::map<holder, io_worker_actor> workers_;
  holder last_ = 0;
};

} // namespace troupe
