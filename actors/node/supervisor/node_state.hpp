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

/// Who may attach to a node, who is attached, who has gone and may still touch its memory, and when the node is at
/// rest: plain rules.
///
/// A client is its link: when the link dies, or attaches again, the client is gone, and its owner id with it. An owner
/// id names at most one client in the life of a node, is told to nobody but that client, and is never 0; so what a
/// client holds under it can be released when it is gone, and a message that is late finds nothing of it.
///
/// A client that is gone can still be copying between its device and the node's memory. It is *departed* until it is at
/// rest: it has said so, or its process is gone, or it had never asked for anything, as one to which the answer was
/// lost when it attached. Every owner id that was given out is attached, departed or at rest, in that order, and comes
/// to rest once. Those attached and departed together are bounded.
class node_state {
public:
  /// Stands for the actor that a client attached with; the caller's.
  using link_number = std::uint64_t;

  /// After so long, a departed client that has not come to rest is worth a word: its process lives, and says nothing.
  static constexpr duration rest_expected = std::chrono::minutes(1);

  struct options {
    /// The first is the one of clients that name none.
    std::vector<namespace_spec> spaces;
    std::uint32_t protocol = 0;
    /// Attached or departed.
    std::size_t max_clients = 1;
    /// Draws 64 bits that nobody can guess.
    std::function<std::uint64_t()> draw;
    /// Ends what this client, which is gone, could still ask for, and says whether it ever asked for anything.
    std::function<bool(owner_id)> end_asking;
  };

  /// Who wants to attach.
  struct caller {
    std::uint32_t protocol = 0;
    std::string name;
    /// Empty for the node's first.
    std::string space_name;
    /// Set: the namespace as a whole, and `space_name` says nothing.
    std::optional<namespace_spec> space{};
    /// It is made where it is not there.
    bool make = false;
  };

  /// A client that is not attached any more: what it held is to be released, but for what it may still touch.
  struct departure {
    owner_id owner = 0;
    std::string name;
    std::string why;
  };

  struct arrival {
    owner_id owner = 0;
    /// Index of its namespace.
    std::size_t space = 0;
  };

  explicit node_state(options how);

  /// Whether the caller's namespace is to be made before it can attach: there is none of its name or its identity, and
  /// nothing else is known to be in the way.
  bool is_to_make(const caller& who) const;

  /// From now on clients may attach to it. The index that arrivals have: that of one that was removed, or the next one.
  std::size_t add_space(const namespace_spec& space);
  /// Clients may not, for it is about to be removed; `busy` if some are attached, unless `force`d: then they are
  /// attached no more. unknown_namespace if it was not added.
  result<void> close_space(const namespace_id& space, bool force, timestamp now);
  /// It stays after all.
  void reopen_space(const namespace_id& space);
  /// Nobody who was attached to it touches its memory any more.
  void remove_space(const namespace_id& space);
  std::optional<std::size_t> index_of(const namespace_id& space) const;
  /// That clients may attach to.
  std::vector<namespace_spec> open_spaces() const;

  /// unsupported, unknown_namespace, identity_mismatch, limit_exceeded or shutting_down, with a sentence. A link that
  /// was attached is not any more, also when it is refused for the limit: see `take_departures`.
  result<arrival> attach(const caller& who, link_number link, timestamp now);

  /// not_found unless this link attached as this owner: nobody sends another one away.
  result<void> leave(owner_id owner, link_number link, timestamp now);

  /// The link has died.
  void link_gone(link_number link, timestamp now) { depart(link, "is gone", now); }

  std::vector<departure> take_departures() { return std::exchange(departures_, {}); }

  /// Nothing of this client touches the node's memory any more. `busy` if it is attached. Of one that is at rest
  /// already, or never was there: nothing changes.
  result<void> owner_at_rest(owner_id owner);

  /// Who has come to rest since the last call, each once, and never before its departure was taken.
  std::vector<owner_id> take_rested();

  /// Who is not at rest, in no order.
  std::vector<owner_id> departed() const;

  /// Who should be at rest by now, and is not; each once.
  std::vector<departure> take_overdue(timestamp now);

  std::size_t clients() const noexcept { return clients_.size(); }
  std::size_t departed_clients() const noexcept { return departed_.size(); }

  /// From now on nobody attaches. True the first time: then so many are to be brought to rest.
  bool drain(std::size_t parts) noexcept;
  /// One of them is, or has been waited for long enough.
  void part_at_rest() noexcept { --restless_; }
  bool at_rest() const noexcept { return draining_ && restless_ == 0; }

private:
  struct client {
    link_number link = 0;
    std::string name;
    std::size_t space = 0;
  };

  struct space_entry {
    namespace_spec spec;
    namespace_id id;
    enum class phase : std::uint8_t { open, closed, removed } state = phase::open;
    /// Of the config: it cannot be removed.
    bool own = false;
  };

  struct departed_client {
    std::string name;
    timestamp since{};
    bool overdue_told = false;
  };

  result<std::size_t> space_of(const caller& who) const;
  result<std::size_t> space_named(const std::string& name) const;
  bool fits(const caller& who) const { return !draining_ && who.protocol == options_.protocol; }
  error too_many() const;
  void depart(link_number link, const char* why, timestamp now);

  options options_;
  std::vector<space_entry> spaces_;
  std::unordered_map<owner_id, client> clients_;
  std::unordered_map<owner_id, departed_client> departed_;
  std::vector<departure> departures_;
  std::vector<owner_id> rested_;
  std::size_t restless_ = 0;
  bool draining_ = false;
};

} // namespace troupe
