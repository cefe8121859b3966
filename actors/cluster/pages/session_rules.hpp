#pragma once

#include "actors/cluster/pages/fetching.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::cluster {

/// A session with a peer: a namespace of the peer to which this node is attached as a client.
using session_name = std::pair<peer_number, namespace_id>;

/// Attach to a namespace of this node as a client that saves there; answered by `on_namespace_opened`.
struct open_namespace {
  namespace_id ns;
  std::string name;
};
struct leave_namespace {
  namespace_id ns;
};
/// Attach to a namespace of a peer as a client that loads from there; answered by `on_session_opened`.
struct open_session {
  session_name session;
  std::string name;
};
struct leave_session {
  session_name session;
};

using session_effect = std::variant<open_namespace, leave_namespace, open_session, leave_session>;

/// The description of a namespace in a node's answer, to be compared with that of another node.
struct namespace_shape {
  namespace_id id;
  kv_geometry geometry{};
  /// In the node's order.
  std::vector<rank_number> ranks{};
};

/// Checks that the namespace in a peer's answer equals the one here: the same id and geometry, and ranks numbered from
/// 0 to `ranks` - 1. The rest refers to pages and ranks by the peer's numbers, which have to be valid here. Errors:
/// identity_mismatch.
result<void> check_session(const namespace_shape& there, const namespace_id& ns, const kv_geometry& geometry,
                           std::size_t ranks);

/// Decides to which namespaces of peers a node attaches, and when it leaves them: plain rules.
///
/// A namespace that this node and a peer both have is opened here first, because fetched pages are saved here; then at
/// the peer. A session belongs to one run of a peer and is opened again when the peer has restarted. It is also opened
/// again when it has had no answer for a while although the peer is up, as when the namespace was removed there and
/// made again.
///
/// Attaching blocks a thread that all peers share. So one attempt at a time is made for a peer, and after a failure
/// there is a pause. A peer that answers hellos and cannot be attached to delays the others once per pause, however
/// many namespaces it has. The least recently tried namespaces come first.
///
/// The memory of a removed namespace is in use until no transfer is in progress in it. Its clients end after that.
class session_rules {
public:
  /// `pause`: between attempts, and how long a session may have no answer.
  explicit session_rules(duration pause) : pause_(pause) {}

  /// Compares the namespaces here, by name, with those that peers have. `adopted` namespaces have pages without any
  /// peer; they are opened here as well.
  void follow(const std::map<namespace_id, std::string>& here, const membership& peers, fetching& pages, timestamp now,
              const std::set<namespace_id>& adopted = {});

  void on_namespace_opened(const namespace_id& ns, bool fine, timestamp now);
  /// The node ended the attachment of the client that saves, as when the namespace is removed.
  void on_namespace_lost(const namespace_id& ns);
  /// Returns true for a failure that is to be logged: the first one of the session since it was open, unless no session
  /// of the peer is open, and that is known already.
  bool on_session_opened(const session_name& session, const result<void>& outcome, timestamp now);
  /// A request over the session was answered, or found no receiver.
  void on_answered(const session_name& session, bool reached, timestamp now);

  bool is_open(const namespace_id& ns) const;
  bool is_open(const session_name& session) const;
  std::size_t open_sessions(peer_number peer) const;
  /// Why no page of a peer that answers can be reached: the error of a session, where none is open and one has failed;
  /// else empty.
  std::string trouble(peer_number peer) const;
  /// The name of the namespace here; empty for one that is not followed.
  std::string name_of(const namespace_id& ns) const;

  std::vector<session_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t { unreachable, opening, open };
  struct namespace_entry {
    std::string name;
    phase is = phase::unreachable;
    bool lost = false;
    bool leaving = false;
    /// The time of the next attempt.
    timestamp again{};
  };
  struct session_entry {
    phase is = phase::unreachable;
    /// The run of the peer that the session belongs to.
    std::uint64_t of = 0;
    timestamp again{};
    /// Since when there has been no answer.
    timestamp silent_since = timestamp::max();
    /// Why the last attempt failed; empty if it has not.
    std::string trouble{};
  };

  /// The pause after a failed attempt.
  struct peer_pause {
    timestamp until{};
    /// The run of the peer that failed; a restarted peer is tried at once.
    std::uint64_t of = 0;
  };

  void open_here(const namespace_id& ns, const std::string& name, timestamp now);
  /// Opens at most one session.
  void open_there(peer_number peer, const std::map<namespace_id, std::string>& here, const membership& peers,
                  timestamp now);
  bool may_try(peer_number peer, const membership& peers, timestamp now) const;
  void leave_sessions(const std::map<namespace_id, std::string>& here, const membership& peers, timestamp now);
  void leave_namespaces(const std::map<namespace_id, std::string>& here, fetching& pages);

  duration pause_;
  std::map<namespace_id, namespace_entry> namespaces_;
  std::map<session_name, session_entry> sessions_;
  std::map<peer_number, peer_pause> pauses_;
  std::vector<session_effect> outbox_;
};

} // namespace troupe::cluster
