#pragma once

#include "actors/client/link/node_address.hpp"
#include "actors/client/link/reconnect_backoff.hpp"
#include "config/node_config.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <cstdint>
#include <string>
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
    timestamp until;
  };

  timestamp now() const { return clock().now(); }
  void connect();
  void attach(const reception_actor& to);
  void attached(const attach_reply& reply);
  void lost(const std::string& why);
  void retry(const error& why);
  void refuse(const error& why);
  /// Forgets the node, and tells it and the client's actors so.
  void leave();
  void unbind_all();
  void close_segments();
  void bind_all();
  void bind_rank(std::size_t index, std::uint64_t epoch);
  void bind_coordinators(std::size_t index, const segment_info& segment, std::uint64_t epoch);
  void bound(std::uint64_t epoch);
  bool ready() const noexcept { return reply_.owner != 0 && (!lookup_ || all_bound_); }
  void answer_waiting();

  link_options options_;
  reconnect_backoff backoff_;
  reception_actor node_;
  /// Of the current attachment; owner 0 when there is none.
  attach_reply reply_;
  namespace_id space_;
  std::vector<client_rank> ranks_;
  lookup_actor lookup_;
  /// Counts attachments, so that answers of an earlier one are recognised.
  std::uint64_t epoch_ = 0;
  /// Coordinators that are not bound yet.
  std::size_t binding_ = 0;
  /// Page buffers that were opened under the current attachment.
  std::vector<std::pair<client_worker_actor, std::uint64_t>> segments_;
  error last_error_{errc::unreachable, "not attached yet"};
  bool refused_ = false;
  std::vector<waiting_client> waiting_attached_;
  std::vector<waiting_client> waiting_bound_;
  bool all_bound_ = false;
};

} // namespace troupe
