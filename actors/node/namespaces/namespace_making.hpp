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

/// The rules for namespaces that clients make by attaching, whose pages the node keeps: which are being made or
/// removed, which requests wait for that, and what must be undone. Plain state. Orders come out of the outbox, and the
/// result of an order comes back with its number.
///
///                    shards say yes       opened             shards know its ranks
///   (none) ─ telling ─────────────▶ opening ─────▶ registering ──────────────────▶ served
///     ▲         │ some say no          │ failed        │ some say no                │
///     │         ▼                      ▼               ▼                            ▼
///     └───── closing ◀──────────── forgetting ◀────────┘◀────────────────────── removing
///
/// A removal on one shard is durable and cannot be undone. So if one shard cannot remove a namespace that others have
/// removed, also by force, the namespace is `half_removed`: it is not served, and can only be removed again.
///
/// The shards judge the name and the identity, so they are asked first, and nothing is opened for a namespace that they
/// refuse. A request for a namespace that is being made shares its answer; while it is being undone the answer is
/// `busy`.
class namespace_making {
public:
  /// The caller's number of a waiting request.
  using request_number = std::uint64_t;
  using order_number = std::uint64_t;

  struct options {
    /// Whether pages of such a namespace can be kept here, and if not, why. Returns without waiting.
    std::function<result<void>(const namespace_spec&)> judge;
  };

  // Orders.

  /// Registers the namespace at all shards; answered by `notified`.
  struct report_namespace {
    order_number number = 0;
    namespace_spec spec;
  };
  /// Opens io workers, allocators, memory and slab files; answered by `done`.
  struct open_namespace {
    order_number number = 0;
    namespace_spec spec;
  };
  /// Registers the ranks of the opened namespace at all shards; answered by `notified`.
  struct report_ranks {
    order_number number = 0;
    namespace_id ns;
  };
  /// Refuses new attaches from now on; answered by `done`, with `busy` while clients are attached, unless forced.
  struct leave_namespace {
    order_number number = 0;
    namespace_id ns;
    bool force = false;
  };
  /// Removes the namespace from all shards, durably; answered by `notified`.
  struct order_removal {
    order_number number = 0;
    namespace_id ns;
    bool force = false;
  };
  /// Undoes `leave_namespace`: clients may attach again.
  struct keep_namespace {
    namespace_id ns;
  };
  /// Closes what was opened and removes its files; answered by `done`.
  struct close_namespace {
    order_number number = 0;
    namespace_id ns;
  };
  /// Reports that the namespace is served from now on, or not any more, to all parts that look up names.
  struct served {
    namespace_id ns;
    std::string name;
    bool is = false;
  };
  /// The answer to a request that made the namespace (ok, and then it is served; or the reason), or that removed it.
  struct answer {
    request_number request = 0;
    namespace_id ns;
    error outcome;
  };
  /// A line for the log.
  struct note {
    std::string text;
  };
  using effect = std::variant<report_namespace, open_namespace, report_ranks, leave_namespace, order_removal,
                              keep_namespace, close_namespace, served, answer, note>;

  explicit namespace_making(options how) : options_(std::move(how)) {}

  /// Adds a namespace that is served when the node starts.
  void know(const namespace_spec& ns);

  /// Each request is answered once.
  void make(request_number request, const namespace_spec& wanted);
  void remove(request_number request, const namespace_id& ns, bool force);

  /// Whether such a namespace is served, being made or being removed.
  bool knows(const namespace_id& ns) const { return namespaces_.contains(ns); }
  /// Whether it is served.
  bool serves(const namespace_id& ns) const;

  /// Reports the answer of each shard.
  void notified(order_number number, std::span<const error> outcomes);
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
    half_removed,
    forgetting,
    closing,
  };

  struct entry {
    namespace_spec spec;
    phase state = phase::telling;
    std::vector<request_number> waiting;
    /// Why the namespace is being undone, if not because of a removal.
    std::optional<error> failure;
    bool opened = false;
    /// Whether it is removed in spite of leases.
    bool force = false;
    /// Whether a shard has removed it.
    bool begun = false;
  };

  order_number expect(const namespace_id& ns);
  void reply(request_number request, const namespace_id& ns, error outcome);
  void end(const namespace_id& ns, entry& x, const error& outcome);
  /// Undoes what was done.
  void undo(const namespace_id& ns, entry& x, error why);
  void forgotten(const namespace_id& ns, entry& x);
  void gone(const namespace_id& ns);
  void stays(const namespace_id& ns, entry& x, const error& why);
  /// Handles a removal that at least one shard has refused, for this reason.
  void not_forgotten(const namespace_id& ns, entry& x, const error& why);

  options options_;
  std::map<namespace_id, entry> namespaces_;
  std::unordered_map<order_number, namespace_id> orders_;
  order_number last_order_ = 0;
  std::vector<effect> outbox_;
};

} // namespace troupe
