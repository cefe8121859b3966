#pragma once

#include "actors/client/link/link_state.hpp"
#include "actors/client/link/node_address.hpp"
#include "base/next_tick.hpp"
#include "config/node_config.hpp"
#include "io/handed_memory.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace troupe {

/// Where the node is.
struct link_options {
  /// Set: the reception of a node of this process; `where` is not used.
  reception_actor local;
  node_address where;
  /// Who connects; null: the middleman of CAF, which knows TCP without TLS only.
  caf::io::middleman_actor entrance;
  /// Memory that nodes hand over to the entrance; null: the node is of this process, or elsewhere.
  std::shared_ptr<const io::handed_memory> handed{};
  std::string client_name;
  std::string space_name;
  /// Set: the namespace as a whole, in the place of its name. One of another identity under its name is refused.
  std::optional<namespace_spec> space{};
  /// With it: the node makes the namespace where it has none like it.
  bool make_space = true;
  /// Set: this is a node of that cluster, which looks up and loads, and saves nothing.
  std::string cluster{};
  /// What the coordinators of a rank may have pinned at once, shared by load and save in equal parts.
  std::uint64_t window_bytes = 0;
  /// The memory of a rank for pages on their way, where the node is on another host.
  std::uint64_t remote_bytes = 0;
  config::attach_config attach;
  std::uint64_t seed = 0;
};

/// What CAF says of connecting, in a sentence.
std::string why_not_reached(const caf::error& e, const node_address& where);

/// A client's tie to one node: attaches, binds the client's copy engines to the node's arena, and then its
/// coordinators. When the node is lost it unbinds them at once, so that all they have under way ends, and comes back
/// with bounded back-off; the node sees the death of the link and releases what the client held, but for frames that it
/// had pinned. These may be touched until the copy engines are at rest, and the node is told when they are.
///
/// A node that comes back with another identity of the namespace is refused for good: its pages are not ours.
///
/// When it is told to end, it leaves the node, and ends when the copy engines are at rest, after the time of a request
/// at the latest: so they have to outlive it.
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
  void perform(const link_take_parts& x);
  void perform(const link_bind_lookup& x);
  void perform(const link_map& x);
  /// The node's arena is elsewhere: the copy engine exposes memory, which the node is told of.
  void offer(const link_map& x, const client_rank& mine);
  void perform(const link_bind_transfer& x);
  void perform(const link_unbind& x);
  void perform(const link_rest& x);
  void perform(const link_say_at_rest& x);
  void perform(const link_forget_left& x);
  void perform(const link_ended& x);
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
  /// What the client has brought last.
  client_parts next_parts_;
  /// Nodes that were parted from in the name of these attachments, while these come to rest.
  std::unordered_map<owner_id, reception_actor> left_;
  /// With what the link ends, when it has been told to.
  caf::error end_reason_;
  std::unordered_map<link_wait, waiting_client> waiting_;
  link_wait last_wait_ = 0;
  next_tick tick_;
};

} // namespace troupe
