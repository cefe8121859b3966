#pragma once

#include "actors/client/link/link_state.hpp"
#include "actors/client/link/node_address.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Where the node is.
struct link_options {
  /// Set: the reception of a node of this process; `where` is not used.
  reception_actor local;
  node_address where;
  /// Who connects; null: the middleman of CAF, which knows TCP without TLS only.
  caf::io::middleman_actor entrance;
  std::string client_name;
  std::string space_name;
  /// Page buffers per rank, shared by load and save in equal parts.
  std::uint64_t buffer_bytes = 0;
  config::attach_config attach;
  std::uint64_t seed = 0;
};

/// A client's tie to one node: attaches, opens the shared page buffers, and binds the client's coordinators. When the
/// node is lost it unbinds them at once, so that all they have under way ends, and comes back with bounded back-off;
/// the node sees the death of the link and releases what the client held.
///
/// A node that comes back with another identity of the namespace is refused for good: its pages are not ours.
///
/// The rules are in `link_state`. Its handle is with the node, which watches it: only this process may ask it.
class link : public link_actor::base {
public:
  link(caf::actor_config& config, link_options options);

  const char* name() const override { return "link"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct waiting_client {
    caf::response_promise promise;
    /// Wants to know what the node said.
    bool wants_reply = false;
  };

  timestamp now() const { return clock().now(); }
  link_wait add_waiting(const caf::response_promise& promise, bool wants_reply);
  const client_rank* client_side(rank_number rank) const;
  const rank_endpoint* node_side(rank_number rank) const;

  /// Carries out what the state wants done, and sets the alarm for what may run out.
  void flush();
  void perform(const link_seek& x);
  void perform(const link_attach& x);
  void perform(const link_part& x);
  void perform(const link_bind_lookup& x);
  void perform(const link_open& x);
  void perform(const link_map& x);
  void perform(const link_bind_transfer& x);
  void perform(const link_close& x);
  void perform(const link_unbind& x);
  void perform(const link_answer& x);
  void perform(const link_news& x);

  /// Asks one of the client's actors or the node's; `on_end(result)` is followed by `flush`.
  template <class Reply, class Handle, class OnEnd, class... Ts>
  void ask(const Handle& to, OnEnd on_end, Ts&&... xs);

  link_options options_;
  link_state state_;
  /// What was found, and is attached to or being attached to.
  reception_actor node_;
  /// Of the current attachment; owner 0 when there is none.
  attach_reply reply_;
  client_parts parts_;
  /// What the client maps, by rank, under the current epoch.
  std::unordered_map<rank_number, segment_info> opened_;
  std::unordered_map<link_wait, waiting_client> waiting_;
  link_wait last_wait_ = 0;
  /// When the ticks come that are on their way, the next one last. One is set only where it is earlier than all of
  /// them, so there are no more than there are things that may run out; a tick that somebody else sends sets none.
  std::vector<timestamp> alarms_;
};

} // namespace troupe
