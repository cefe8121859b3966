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

/// A namespace that was found, by its number in the shard.
struct found_space {
  std::uint32_t number = 0;
  key_space& keys;
};

/// The namespaces of one shard, and what everybody who is asked something about them asks first: is there such a
/// namespace, such a rank, is the batch small enough. Reservations, leases and administration are the business of the
/// classes beside it, which share this one.
///
/// A number belongs to one namespace from `add` to `remove`, and is not found by its id from `hide` on: what is being
/// removed answers nobody, while leases and reservations that refer to the number end.
class shard_spaces {
public:
  explicit shard_spaces(const registry_options& options) : options_(options) {}

  const registry_options& options() const noexcept { return options_; }
  coarse_clock& clock() noexcept { return clock_; }
  const coarse_clock& clock() const noexcept { return clock_; }

  /// Counts a request that made no sense, or went beyond a limit.
  tl::unexpected<error> refuse(error why) {
    ++refused_;
    return tl::unexpected<error>(std::move(why));
  }
  /// The same for what is no request.
  void count_refused() noexcept { ++refused_; }
  std::uint64_t refused() const noexcept { return refused_; }

  const key_space* find(const namespace_id& id) const;
  result<std::uint32_t> number_of(const namespace_id& id) const;
  result<found_space> find_space(const namespace_id& id) const;
  /// The namespace, if it and the rank exist.
  result<found_space> find_rank(const namespace_id& id, rank_number rank) const;

  /// The namespace, if the rank is one of it, or `all_ranks`, and the keys make a batch; and the entry of each key.
  result<found_space> find_keys(const namespace_id& id, rank_number rank, std::span<const key_digest> keys,
                                std::vector<entry_index>& entries) const;

  bool has(std::uint32_t number) const noexcept { return spaces_[number] != nullptr; }
  /// Also while it is being removed.
  key_space& at(std::uint32_t number) const noexcept { return *spaces_[number]; }

  /// The lowest number that nobody has; the id must not be known.
  std::uint32_t add(std::unique_ptr<key_space> space);
  void hide(const namespace_id& id) { numbers_.erase(id); }
  /// Nothing may refer to the number any more.
  void remove(std::uint32_t number) noexcept { spaces_[number].reset(); }
  /// All numbers are below it.
  std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(spaces_.size()); }

  /// Those that are being removed as well.
  template <class F>
  void for_each(F&& f) const {
    for (std::uint32_t i = 0; i < spaces_.size(); ++i)
      if (spaces_[i])
        f(i, *spaces_[i]);
  }

  std::optional<error> check_rank(const key_space& space, rank_number rank) const;
  /// The same, or all ranks.
  std::optional<error> check_ranks(const key_space& space, rank_number rank) const;
  std::optional<error> check_batch(std::size_t n) const;
  std::optional<error> check_keys(std::span<const key_digest> keys) const;
  static std::optional<error> check_duration(duration x, duration most, std::string_view what);
  /// A ticket that somebody owns.
  static std::optional<error> check_ticket(const ticket& x);

private:
  registry_options options_;
  coarse_clock clock_;
  /// Null where a namespace was removed.
  std::vector<std::unique_ptr<key_space>> spaces_;
  /// Without those that are being removed.
  std::unordered_map<namespace_id, std::uint32_t> numbers_;
  std::uint64_t refused_ = 0;
};

} // namespace troupe
