#pragma once

#include "actors/cluster/fetching.hpp"
#include "actors/cluster/membership.hpp"
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

/// A namespace of a peer, as this node is a client of it.
using tie_name = std::pair<peer_number, namespace_id>;

/// Attach to a namespace of this node, as a client that saves there; answered by `on_space_opened`.
struct open_space {
  namespace_id space;
  std::string name;
};
struct leave_space {
  namespace_id space;
};
/// Attach to a namespace of a peer, as a client that loads from there; answered by `on_tie_opened`.
struct open_tie {
  tie_name tie;
  std::string name;
};
struct leave_tie {
  tie_name tie;
};

using tie_effect = std::variant<open_space, leave_space, open_tie, leave_tie>;

/// What a node says that a namespace is, and is to be of one at another node.
struct space_shape {
  namespace_id id;
  kv_geometry geometry{};
  /// In their order.
  std::vector<rank_number> ranks{};
};

/// Whether what a peer has answered to an attachment is the namespace as it is here: with the same geometry and ranks 0
/// and following, so many. Everything else of it is told by numbers that come from there, and is to find its place in
/// what there is here. Errors: identity_mismatch.
result<void> check_tie(const space_shape& there, const namespace_id& space, const kv_geometry& geometry,
                       std::size_t ranks);

/// Which namespaces of peers a node attaches to, and when it leaves them: plain rules.
///
/// A namespace that this node and a peer both have is opened here first, since what comes from there has to go
/// somewhere; then at the peer. A tie is to one run of a peer: when that has begun anew, it is made anew. So it is
/// where nothing has come over it for a while although the peer is there, as when the namespace was removed there and
/// made again.
///
/// Attaching waits, in a thread that all peers have in common. So one attempt at a time is made for a peer, and when it
/// has failed, none for a while: one that says hello and cannot be attached to holds up the others once in that time,
/// however many namespaces it has. Those that were tried least recently come first.
///
/// Memory of a namespace that goes is in use until nothing is under way in it: its clients end after that.
class tie_rules {
public:
  /// `pause`: between tries, and how long a tie may answer nothing.
  explicit tie_rules(duration pause) : pause_(pause) {}

  /// Looks at what is here, by name, and at what peers have said. Of `adopted` namespaces there are pages without any
  /// peer: they are opened here as well.
  void follow(const std::map<namespace_id, std::string>& here, const membership& peers, fetching& pages, timestamp now,
              const std::set<namespace_id>& adopted = {});

  void on_space_opened(const namespace_id& space, bool fine, timestamp now);
  /// The client that saves was sent away, as when the namespace is removed.
  void on_space_lost(const namespace_id& space);
  void on_tie_opened(const tie_name& tie, bool fine, timestamp now);
  /// A request over it has been answered, or not since there was nobody.
  void on_answered(const tie_name& tie, bool reached, timestamp now);

  bool is_open(const namespace_id& space) const;
  bool is_open(const tie_name& tie) const;
  std::size_t open_ties(peer_number peer) const;
  /// What a namespace is called here; empty for one that is not followed.
  std::string name_of(const namespace_id& space) const;

  std::vector<tie_effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t { away, opening, open };
  struct space_entry {
    std::string name;
    phase is = phase::away;
    bool lost = false;
    bool leaving = false;
    /// The next try.
    timestamp again{};
  };
  struct tie_entry {
    phase is = phase::away;
    /// Which run of the peer it is to.
    std::uint64_t of = 0;
    timestamp again{};
    /// Since when nobody answers.
    timestamp silent_since = timestamp::max();
  };

  /// After an attempt that failed.
  struct peer_pause {
    timestamp until{};
    /// One that has begun anew is tried at once.
    std::uint64_t of = 0;
  };

  void open_here(const namespace_id& space, const std::string& name, timestamp now);
  /// At most one.
  void open_there(peer_number peer, const std::map<namespace_id, std::string>& here, const membership& peers,
                  timestamp now);
  bool may_try(peer_number peer, const membership& peers, timestamp now) const;
  void leave_ties(const std::map<namespace_id, std::string>& here, const membership& peers, timestamp now);
  void leave_spaces(const std::map<namespace_id, std::string>& here, fetching& pages);

  duration pause_;
  std::map<namespace_id, space_entry> spaces_;
  std::map<tie_name, tie_entry> ties_;
  std::map<peer_number, peer_pause> pauses_;
  std::vector<tie_effect> outbox_;
};

} // namespace troupe::cluster
