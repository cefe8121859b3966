#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Namespaces that clients make by attaching, whose pages the node keeps: which are being made or removed, who waits
/// for that, and what is to be undone. Plain rules; what they want done comes out as orders, and what became of an
/// order comes back with its number.
///
///                    shards say yes       opened             shards know its ranks
///   (none) ─ telling ─────────────▶ opening ─────▶ registering ──────────────────▶ served
///     ▲         │ some say no          │ failed        │ some say no                │
///     │         ▼                      ▼               ▼                            ▼
///     └───── closing ◀──────────── forgetting ◀────────┘◀────────────────────── removing
///
/// What a shard has forgotten is gone durably for all of them. So where one of them cannot forget a namespace that
/// others have forgotten, also by force, it is `half_gone`: nobody has it, and it can only be removed again.
///
/// A name and an identity are the shards' to judge, so they are told first, and nothing is opened for what they refuse.
/// Whoever makes the same namespace meanwhile shares the answer; who comes while it is taken back is told `busy`.
class namespace_making {
public:
  /// Of a request that waits; the caller's.
  using request_number = std::uint64_t;
  using order_number = std::uint64_t;

  struct options {
    /// Whether pages of such a namespace can be kept here at all, and if not, why. At once.
    std::function<result<void>(const namespace_spec&)> judge;
  };

  // Orders.

  /// To all shards; `told`.
  struct tell_of_namespace {
    order_number number = 0;
    namespace_spec spec;
  };
  /// Io workers, allocators, memory and slab files; `done`.
  struct open_space {
    order_number number = 0;
    namespace_spec spec;
  };
  /// To all shards: the ranks of what was opened; `told`.
  struct tell_of_ranks {
    order_number number = 0;
    namespace_id space;
  };
  /// Nobody may attach to it from now on; `done`, with `busy` while clients are attached, unless it is forced.
  struct leave_space {
    order_number number = 0;
    namespace_id space;
    bool force = false;
  };
  /// All shards forget it, durably; `told`.
  struct tell_to_remove {
    order_number number = 0;
    namespace_id space;
    bool force = false;
  };
  /// It stays after all: clients may attach again.
  struct keep_space {
    namespace_id space;
  };
  /// End what was opened and remove its files; `done`.
  struct close_space {
    order_number number = 0;
    namespace_id space;
  };
  /// It is served from now on, or not any more: for all who look up names.
  struct served {
    namespace_id space;
    std::string name;
    bool is = false;
  };
  /// A request that made it: ok, and then it is served; or why not. Or one that removed it.
  struct answer {
    request_number request = 0;
    namespace_id space;
    error outcome;
  };
  /// For the log.
  struct note {
    std::string text;
  };
  using effect = std::variant<tell_of_namespace, open_space, tell_of_ranks, leave_space, tell_to_remove, keep_space,
                              close_space, served, answer, note>;

  explicit namespace_making(options how) : options_(std::move(how)) {}

  /// What is served when the node starts.
  void know(const namespace_spec& space);

  /// Each is answered once.
  void make(request_number request, const namespace_spec& wanted);
  void remove(request_number request, const namespace_id& space, bool force);

  /// Whether such a namespace is served, being made or being removed.
  bool knows(const namespace_id& space) const { return spaces_.contains(space); }
  /// Whether it is served.
  bool serves(const namespace_id& space) const;

  /// What each shard said.
  void told(order_number number, std::span<const error> outcomes);
  void done(order_number number, const result<void>& outcome);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

private:
  enum class phase : std::uint8_t {
    telling,
    opening,
    registering,
    served,
    leaving,
    removing,
    half_gone,
    forgetting,
    closing,
  };

  struct entry {
    namespace_spec spec;
    phase state = phase::telling;
    std::vector<request_number> waiting;
    /// Why it is taken back, if it is not that it was removed.
    std::optional<error> failure;
    bool opened = false;
    /// It is removed whoever has leases.
    bool force = false;
    /// A shard has forgotten it.
    bool begun = false;
  };

  order_number expect(const namespace_id& space);
  void reply(request_number request, const namespace_id& space, error outcome);
  void end(const namespace_id& space, entry& x, const error& outcome);
  /// Takes back what was done.
  void undo(const namespace_id& space, entry& x, error why);
  void forgotten(const namespace_id& space, entry& x);
  void gone(const namespace_id& space);
  void stays(const namespace_id& space, entry& x, const error& why);
  /// Shards have been told to forget it, and one at least does not, for this reason.
  void not_forgotten(const namespace_id& space, entry& x, const error& why);

  options options_;
  std::map<namespace_id, entry> spaces_;
  std::unordered_map<order_number, namespace_id> orders_;
  order_number last_order_ = 0;
  std::vector<effect> outbox_;
};

} // namespace troupe
