#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// The rules for the clients of a node: who may attach, who is attached, which disconnected clients may still access
/// memory, and when the node is drained.
///
/// A client is its link: when the link ends or attaches again, the client has disconnected, and its owner id is
/// retired. An owner id names at most one client in the life of a node, is known only to that client, and is never 0.
/// So what a client holds under it can be released when it disconnects, and late messages find nothing of it.
///
/// A disconnected client can still be copying between its device and the node's memory. It is *disconnected* until it
/// is quiesced: it has reported so, or its process has ended, or it never requested memory, for example because the
/// answer was lost when it attached. Every owner id is attached, disconnected and quiesced, in that order, and becomes
/// quiesced once. The number of attached and disconnected clients together is bounded.
class node_state {
public:
  /// The number of the actor with which a client attached; assigned by the caller.
  using link_number = std::uint64_t;

  /// The time after which a disconnected client that is not quiesced is reported: its process still runs and sends
  /// nothing.
  static constexpr duration quiesce_expected = std::chrono::minutes(1);

  /// The time that a process may take to end after its client has detached, which is no reason to notify the operator.
  static constexpr duration linger_time = std::chrono::seconds(5);

  struct options {
    /// The first namespace is the default of clients that name none.
    std::vector<namespace_spec> namespaces;
    std::uint32_t protocol = 0;
    /// The limit of attached and disconnected clients together.
    std::size_t max_clients = 1;
    /// Draws 64 bits that cannot be guessed.
    std::function<std::uint64_t()> draw;
    /// Ends the rights of this disconnected client, and returns whether it ever requested memory.
    std::function<bool(owner_id)> end_asking;
  };

  /// A client that requests to attach.
  struct caller {
    std::uint32_t protocol = 0;
    std::string name;
    /// Empty for the node's first namespace.
    std::string namespace_name;
    /// Set: the complete namespace; `namespace_name` is then ignored.
    std::optional<namespace_spec> ns{};
    /// Create the namespace if it does not exist.
    bool make = false;
  };

  /// A client that has disconnected: what it held is released, except memory that it may still access.
  struct departure {
    owner_id owner = 0;
    std::string name;
    std::string why;
  };

  struct arrival {
    owner_id owner = 0;
    /// The index of its namespace.
    std::size_t ns = 0;
  };

  explicit node_state(options how);

  /// Whether the caller's namespace must be created before it can attach: none has its name or its identity, and no
  /// other obstacle is known.
  bool is_to_make(const caller& who) const;

  /// Adds a namespace to which clients may attach. Returns its index, which is that of a removed namespace or the next
  /// one.
  std::size_t add_namespace(const namespace_spec& ns);
  /// Stops attachments to a namespace that is about to be removed. `busy` if clients are attached, unless `force`d:
  /// then they are disconnected. unknown_namespace if it was not added.
  result<void> close_namespace(const namespace_id& ns, bool force, timestamp now);
  /// Allows attachments again; the namespace stays.
  void reopen_namespace(const namespace_id& ns);
  /// Removes a namespace whose memory none of its clients accesses any more.
  void remove_namespace(const namespace_id& ns);
  std::optional<std::size_t> index_of(const namespace_id& ns) const;
  /// The namespaces to which clients may attach.
  std::vector<namespace_spec> open_namespaces() const;

  /// Attaches a client. Errors, with a sentence: unsupported, unknown_namespace, identity_mismatch, limit_exceeded or
  /// shutting_down. A link that was already attached is detached first, also when it is rejected for the limit: see
  /// `take_disconnected`.
  result<arrival> attach(const caller& who, link_number link, timestamp now);

  /// Detaches a client. not_found unless this link attached as this owner, so that no client can detach another one.
  result<void> leave(owner_id owner, link_number link, timestamp now);

  /// Handles the end of the link.
  void link_disconnected(link_number link, timestamp now) { disconnect(link, "connection ended", now); }

  std::vector<departure> take_disconnected() { return std::exchange(disconnected_clients_, {}); }

  /// Marks a client as quiesced: it does not access the node's memory any more. `busy` if it is attached. No effect for
  /// a client that is already quiesced or unknown.
  result<void> owner_quiesced(owner_id owner);

  /// Clients that were quiesced since the last call, each once, and never before its departure was taken.
  std::vector<owner_id> take_quiesced();

  /// Disconnected clients that are not quiesced, in no order.
  std::vector<owner_id> disconnected() const;

  /// Disconnected clients that should be quiesced by now and are not; each once.
  std::vector<departure> take_overdue(timestamp now);

  std::size_t clients() const noexcept { return clients_.size(); }
  std::size_t disconnected_clients() const noexcept { return disconnected_.size(); }
  /// Those that disconnected at least `linger_time` ago.
  std::size_t lingering_clients(timestamp now) const;

  /// Stops attachments. Returns true the first time; then `parts` parts have to be drained.
  bool drain(std::size_t parts) noexcept;
  /// One part is drained, or its time limit has passed.
  void part_quiesced() noexcept { --busy_parts_; }
  bool quiesced() const noexcept { return draining_ && busy_parts_ == 0; }

private:
  struct client {
    link_number link = 0;
    std::string name;
    std::size_t ns = 0;
  };

  struct namespace_entry {
    namespace_spec spec;
    namespace_id id;
    enum class phase : std::uint8_t { open, closed, removed } state = phase::open;
    /// A namespace of the config, which cannot be removed.
    bool own = false;
  };

  struct disconnected_client {
    std::string name;
    timestamp since{};
    bool overdue_notified = false;
  };

  result<std::size_t> namespace_of(const caller& who) const;
  result<std::size_t> namespace_named(const std::string& name) const;
  bool fits(const caller& who) const { return !draining_ && who.protocol == options_.protocol; }
  error too_many() const;
  void disconnect(link_number link, const char* why, timestamp now);

  options options_;
  std::vector<namespace_entry> namespaces_;
  std::unordered_map<owner_id, client> clients_;
  std::unordered_map<owner_id, disconnected_client> disconnected_;
  std::vector<departure> disconnected_clients_;
  std::vector<owner_id> quiesced_owners_;
  std::size_t busy_parts_ = 0;
  bool draining_ = false;
};

} // namespace troupe
