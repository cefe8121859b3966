#pragma once

#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/registry/key_space.hpp"
#include "actors/node/registry/registry_options.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// A namespace that was found, with its number in the shard.
struct found_namespace {
  std::uint32_t number = 0;
  key_space& keys;
};

/// The namespaces of one shard, and the checks that every request begins with: does the namespace exist, does the rank
/// exist, is the batch small enough. Reservations, leases and administration are in classes of their own, which share
/// this one.
///
/// A number belongs to one namespace from `add` to `remove`. From `hide` on it is not found by its id: a namespace that
/// is being removed answers no requests while leases and reservations that refer to the number end.
class shard_namespaces {
public:
  explicit shard_namespaces(const registry_options& options) : options_(options) {}

  const registry_options& options() const noexcept { return options_; }
  /// Where lookups and key events are recorded; null if they are not.
  lookup_history* history() const noexcept { return options_.history.get(); }
  /// The time of the key events that are recorded from now on.
  void advance_history(timestamp now) const noexcept {
    if (options_.history)
      options_.history->advance(now);
  }
  coarse_clock& clock() noexcept { return clock_; }
  const coarse_clock& clock() const noexcept { return clock_; }

  /// Counts a request that was invalid or exceeded a limit, and returns its error.
  tl::unexpected<error> refuse(error why) {
    ++refused_;
    return tl::unexpected<error>(std::move(why));
  }
  /// Counts a refusal that is not a request.
  void count_refused() noexcept { ++refused_; }
  std::uint64_t refused() const noexcept { return refused_; }

  const key_space* find(const namespace_id& id) const;
  result<std::uint32_t> number_of(const namespace_id& id) const;
  result<found_namespace> find_namespace(const namespace_id& id) const;
  /// Returns the namespace if it and the rank exist.
  result<found_namespace> find_rank(const namespace_id& id, rank_number rank) const;

  /// Returns the namespace if it has the rank (or the rank is `all_ranks`) and the keys are a valid batch, and the
  /// entry of each key.
  result<found_namespace> find_keys(const namespace_id& id, rank_number rank, std::span<const key_digest> keys,
                                    std::vector<entry_index>& entries) const;

  bool has(std::uint32_t number) const noexcept { return namespaces_[number] != nullptr; }
  /// Also finds a namespace that is being removed.
  key_space& at(std::uint32_t number) const noexcept { return *namespaces_[number]; }

  /// Returns the lowest free number; the id must not be known.
  std::uint32_t add(std::unique_ptr<key_space> ns);
  void hide(const namespace_id& id);
  /// Frees the number; nothing may refer to it any more.
  void remove(std::uint32_t number) noexcept { namespaces_[number].reset(); }
  /// An upper bound of all numbers.
  std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(namespaces_.size()); }

  /// Includes namespaces that are being removed.
  template <class F>
  void for_each(F&& f) const {
    for (std::uint32_t i = 0; i < namespaces_.size(); ++i)
      if (namespaces_[i])
        f(i, *namespaces_[i]);
  }

  /// Bounds what one eviction can cost. Of a model with more groups, as in many pipeline stages, those beyond evict
  /// without regard to the others.
  static constexpr std::size_t most_siblings = 31;

  /// The namespaces of the other groups of layers of the same model, without those that are being removed. At most
  /// `most_siblings`.
  std::span<const std::uint32_t> siblings_of(std::uint32_t number) const noexcept { return siblings_[number]; }
  /// Those that have siblings.
  std::span<const std::uint32_t> with_siblings() const noexcept { return with_siblings_; }

  std::optional<error> check_rank(const key_space& ns, rank_number rank) const;
  /// As `check_rank`, but also accepts `all_ranks`.
  std::optional<error> check_ranks(const key_space& ns, rank_number rank) const;
  std::optional<error> check_batch(std::size_t n) const;
  std::optional<error> check_keys(std::span<const key_digest> keys) const;
  static std::optional<error> check_duration(duration x, duration most, std::string_view what);
  /// Checks that the ticket has an owner.
  static std::optional<error> check_ticket(const ticket& x);

private:
  void relate(std::uint32_t number, std::uint32_t to);
  void end_if_alone(std::uint32_t number);

  registry_options options_;
  coarse_clock clock_;
  /// Null where a namespace was removed.
  std::vector<std::unique_ptr<key_space>> namespaces_;
  /// Without namespaces that are being removed.
  std::unordered_map<namespace_id, std::uint32_t> numbers_;
  /// By number, as `namespaces_`; and the numbers for which it is not empty.
  std::vector<std::vector<std::uint32_t>> siblings_;
  std::vector<std::uint32_t> with_siblings_;
  std::uint64_t refused_ = 0;
};

} // namespace troupe
