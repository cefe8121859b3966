#pragma once

#include "actors/client/link/link_state.hpp"
#include "actors/client/link/node_address.hpp"
#include "base/next_tick.hpp"
#include "config/node_config.hpp"
#include "io/memory/handed_memory.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace troupe {

/// Where the node is, and how to attach to it.
struct link_options {
  /// Set: the reception of a node of this process; `where` is not used.
  reception_actor local;
  node_address where;
  /// Opens the connection; null: the middleman of CAF, which only supports TCP without TLS.
  caf::io::middleman_actor dialer;
  /// Memory that nodes hand over to the dialer; null: the node is of this process, or elsewhere.
  std::shared_ptr<const io::handed_memory> handed{};
  std::string client_name;
  std::string namespace_name;
  /// Set: the whole namespace, instead of its name. A namespace with the same name and another identity is refused.
  std::optional<namespace_spec> ns{};
  /// If `ns` is set: the node creates the namespace where it has none like it.
  bool make_namespace = true;
  /// Set: this client is a node of that cluster, which looks up and loads, and does not save.
  std::string cluster{};
  /// The most bytes that the coordinators of a rank may have pinned at once, half for load and half for save; of a
  /// node, all but one page for load.
  std::uint64_t window_bytes = 0;
  /// The exposed memory of a rank for pages in transfer, where the node is on another host.
  std::uint64_t remote_bytes = 0;
  config::attach_config attach;
  std::uint64_t seed = 0;
};

/// A description of CAF's error on connecting.
std::string why_not_reached(const caf::error& e, const node_address& where);

/// A client's connection to one node. It attaches, binds the client's copy engines to the node's arena, and then its
/// coordinators. When the node is lost, it unbinds them at once, so that their requests in progress end, and attaches
/// again with bounded back-off. The node monitors the link, and releases what the client held when the link ends,
/// except for frames that it had pinned. These may be accessed until the copy engines are drained, of which the node is
/// notified.
///
/// A node that comes back with another identity of the namespace is refused permanently, because its pages are not
/// exchangeable.
///
/// On a request to end, the link leaves the node, and ends when the copy engines are drained, or after the time of a
/// request. So they have to outlive it.
///
/// The rules are in `link_state`. The node has the link's handle and monitors it, but only this process may send it
/// requests.
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
    /// Whether the caller wants the node's reply.
    bool wants_reply = false;
  };

  timestamp now() const { return clock().now(); }
  link_wait add_waiting(const caf::response_promise& promise, bool wants_reply);
  const client_rank* client_side(rank_number rank) const;
  const rank_endpoint* node_side(rank_number rank) const;

  /// Carries out the effects of the state, and schedules the next tick.
  void flush();
  void perform(const link_seek& x);
  void perform(const link_attach& x);
  void perform(const link_part& x);
  void perform(const link_take_parts& x);
  void perform(const link_bind_lookup& x);
  void perform(const link_map& x);
  /// For an arena on another host: the copy engine exposes memory, which is offered to the node.
  void offer(const link_map& x, const client_rank& mine);
  void perform(const link_bind_transfer& x);
  void perform(const link_unbind& x);
  void perform(const link_quiesce& x);
  void perform(const link_report_quiesced& x);
  void perform(const link_forget_left& x);
  void perform(const link_ended& x);
  void perform(const link_answer& x);
  void perform(const link_news& x);

  /// Sends a request to one of the client's actors or of the node's; `on_end(result)` is followed by `flush`.
  template <class Reply, class Handle, class OnEnd, class... Ts>
  void ask(const Handle& to, OnEnd on_end, Ts&&... xs);

  link_options options_;
  link_state state_;
  /// The node that was found, which is attached or being attached to.
  reception_actor node_;
  /// The node's answer to the current attachment; owner 0 when there is none.
  attach_reply reply_;
  client_parts parts_;
  /// The actors that the client has brought last.
  client_parts next_parts_;
  /// The nodes of earlier attachments that are not drained yet.
  std::unordered_map<owner_id, reception_actor> left_;
  /// The exit reason, once the link was requested to end.
  caf::error end_reason_;
  std::unordered_map<link_wait, waiting_client> waiting_;
  link_wait last_wait_ = 0;
  next_tick tick_;
};

} // namespace troupe
