#pragma once

#include "actors/node/registry/deadline_queue.hpp"
#include "actors/node/registry/key_index.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// Number of one page that is reserved for writers without tokens; `page_cell` refers to it.
using anonymous_number = std::uint32_t;

inline constexpr anonymous_number no_anonymous = 0xffffffff;

/// A key and rank with a slot for whoever asks. See docs/decisions/0006-clients-without-tokens.md.
struct anonymous_page {
  entry_index entry = no_entry;
  std::uint32_t space = 0;
  rank_number rank = 0;
  /// Given out more than once: somebody else may be writing too.
  bool shared = false;
  /// The request that asks for a slot for it.
  std::uint32_t plan = 0;
  /// Generation 0 until there is a slot.
  slot_ref where;
  /// The latest that anybody was promised; from when there is a slot.
  timestamp deadline;
};

/// One request that waits for slots.
struct anonymous_plan {
  std::uint32_t space = 0;
  rank_number rank = 0;
  duration lasts{};
  /// Tells apart what stood at this number before.
  std::uint32_t incarnation = 0;
  bool open = false;
  /// Per key of the request.
  std::vector<location> answers;
  /// Per key: the page that waits for a slot, or `no_anonymous` where the answer is known. Equal for equal keys.
  std::vector<anonymous_number> pages;
  /// Keys whose slot is known, and which answers they are. Much can happen before these are given.
  std::vector<std::pair<key_digest, std::uint32_t>> known;
};

/// Reservations of writers without tokens: each page for itself, since nothing says which requests belong together.
/// Knows no rules.
class anonymous_table {
public:
  using plan_number = std::uint32_t;

  anonymous_number add(entry_index entry, std::uint32_t space, rank_number rank, plan_number plan);
  void remove(anonymous_number page);

  anonymous_page& at(anonymous_number page) noexcept { return pages_[page]; }
  const anonymous_page& at(anonymous_number page) const noexcept { return pages_[page]; }

  /// The page has a slot from now on, or another writer.
  void set_deadline(anonymous_number page, timestamp deadline);

  bool has_deadline(anonymous_number page) const { return deadlines_.contains(page); }
  std::optional<anonymous_number> due(timestamp now) const { return deadlines_.due(now); }
  std::optional<timestamp> next_deadline() const { return deadlines_.next(); }

  /// Makes due all that have slots.
  void doom(std::uint32_t space);

  /// Invalidates references to plans.
  plan_number open_plan(std::uint32_t space, rank_number rank, duration lasts);
  void close_plan(plan_number plan);

  anonymous_plan& plan(plan_number number) noexcept { return plans_[number]; }

  /// Told apart from those of reservations with tokens by the highest bit.
  static constexpr std::uint64_t plan_bit = std::uint64_t{1} << 63U;
  std::uint64_t plan_id(plan_number number) const noexcept;
  std::optional<plan_number> find_plan(std::uint64_t id) const noexcept;

  std::uint64_t pages() const noexcept { return pages_.size() - free_pages_.size(); }
  /// Pages and plans of one namespace.
  std::uint64_t count(std::uint32_t space) const noexcept { return space < counts_.size() ? counts_[space] : 0; }
  std::uint64_t resident_bytes() const noexcept;

  template <class F>
  void for_each(F&& f) const {
    for (anonymous_number i = 0; i < pages_.size(); ++i)
      if (pages_[i].entry != no_entry)
        f(i, pages_[i]);
  }

private:
  std::uint64_t& count_of(std::uint32_t space);

  std::vector<anonymous_page> pages_;
  std::vector<anonymous_number> free_pages_;
  std::vector<anonymous_plan> plans_;
  std::vector<plan_number> free_plans_;
  deadline_queue deadlines_;
  /// By namespace.
  std::vector<std::uint64_t> counts_;
};

} // namespace troupe
