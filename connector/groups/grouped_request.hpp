#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "connector/block_keys.hpp"
#include "connector/groups/page_group.hpp"
#include "connector/scheduler/request_tracker.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe::connector {

/// One request of a model with several groups of layers: which pages of each group it needs, has and stores.
///
///     asking ──alloc, tokens to load──▶ to_load ──metadata──▶ loading ──received──▶ active
///        │                                                       └──failed──▶ asking  │
///        └──alloc, nothing to load────────────────────────────────────────────────────┘
///     any ──preempted──▶ asking
///
/// After a failed load an engine computes nothing of it: it looks the request up again from its start. So pages that
/// could not be loaded are left out of later hits of the request (`distrusted`), unless the node was unreachable, and
/// it has a limited number of loads.
///
/// Pages of attention are stored by the step that fills them, while all their blocks are in the tables: later a window
/// has moved on. Blocks of a state hold what is running, so states are stored only where the engine offers them.
class grouped_request {
public:
  using phase = request_tracker::phase;
  using stay = request_tracker::stay;

  grouped_request(session_id session, std::string name, key_chain keys, std::span<const page_group> groups,
                  std::uint32_t page_tokens, std::uint32_t prompt_tokens);

  session_id session() const noexcept { return session_; }
  const std::string& name() const noexcept { return name_; }
  phase current_phase() const noexcept { return phase_; }
  std::span<const key_digest> keys() const noexcept { return keys_.keys(); }
  std::uint32_t prompt_tokens() const noexcept { return prompt_tokens_; }

  /// Adds tokens and hashes. A gap in them excludes the request from loads and saves.
  void add(const token_range& tokens, const hash_range& hashes);
  void abandon() noexcept { usable_ = false; }

  // Lookup.

  /// Pages that a lookup may find: all full ones except the one with the last token.
  std::uint32_t pages_to_look_up() const noexcept;
  bool may_load() const noexcept { return usable_ && phase_ == phase::asking && failed_loads_ < failed_loads_max; }

  /// Keys of one group that are looked up together, and what is leased of them.
  struct lookup_part {
    std::uint64_t id = 0;
    std::uint32_t group = 0;
    /// Ascending.
    std::vector<std::uint32_t> pages;
    /// The mark of what it finds, by which the pages of this lease are known: 1 for pages that were here, then one more
    /// for each fetch from other nodes.
    std::uint8_t mark = 1;
    bool answered = false;
    /// Null: nothing is leased.
    ticket lease{};
  };
  /// Keys of one group that other nodes are searched for.
  struct search_part {
    std::uint64_t id = 0;
    std::uint32_t group = 0;
    /// Ascending.
    std::vector<std::uint32_t> pages;
    bool answered = false;
    /// What other nodes hold for the fetch; 0: nothing.
    std::uint64_t search = 0;
  };
  /// A lookup finds what this node has. If that is not all, and there are other nodes, these are searched for what a
  /// longer hit may need. When all have answered for all groups, the longest hit of both is known. Exactly its pages
  /// are fetched, then looked up here. A fetch that brought less is followed by one more search, for a shorter hit.
  struct lookup {
    enum class status : std::uint8_t { none, under_way, decided };
    enum class step : std::uint8_t { here, searching, fetching };
    status now = status::none;
    step at = step::here;
    /// The next step waits until fewer lookups are in progress.
    bool due = false;
    std::vector<lookup_part> parts;
    std::vector<search_part> searches;
    /// Answers that are missing in this step.
    std::size_t waiting = 0;
    /// Whether there are other nodes; how often they were searched, and since when.
    bool has_peers = false;
    std::uint8_t searched = 0;
    timestamp searched_since;
    /// The hit for which pages were fetched.
    std::uint32_t goal = 0;
    fetched_pages fetched;
    timestamp since;
    /// As in `request_tracker::lookup`.
    timestamp fresh_until = timestamp::max();
    std::uint32_t missed = 0;
    /// Marks of each group, one for each page that is looked up. `found`: leased here (`lookup_part::mark`); a hit is
    /// made of these alone. `at_peers`: other nodes have it.
    std::vector<std::vector<std::uint8_t>> found;
    std::vector<std::vector<std::uint8_t>> on_disk;
    std::vector<std::vector<std::uint8_t>> at_peers;
    bool tiers_known = true;
    /// The hit, in pages, and the tiers of its tokens: a page is on disk if that of any group is.
    std::uint32_t hit = 0;
    std::vector<std::uint8_t> hit_on_disk;
    /// Pages that were found, and are not loaded because that would take longer than computing them.
    std::uint32_t passed_over = 0;
  };
  lookup& search() noexcept { return lookup_; }
  const lookup& search() const noexcept { return lookup_; }
  /// A lookup of `pages` pages begins.
  void begin_lookup(std::uint32_t pages, timestamp now);
  /// The pages that were found. Pages that could not be loaded earlier do not count.
  void take_marks(const lookup_part& part, std::span<const std::uint8_t> found, std::span<const std::uint8_t> on_disk);
  /// The longest hit of at most `limit` pages.
  std::uint32_t longest(std::uint32_t limit) const;
  std::uint32_t longest() const;

  // Pages of other nodes, while a lookup is under way.

  /// The pages of each group that a longer hit may need and that are not here; empty if there can be no longer hit.
  std::vector<std::vector<std::uint32_t>> pages_to_search() const;
  /// As `begin_lookup`, for a search.
  void begin_search(timestamp now);
  void take_peer_marks(const search_part& part, std::span<const std::uint8_t> found);
  /// The longest hit of pages here and at other nodes.
  std::uint32_t longest_with_peers() const;
  /// The pages of a search that a hit of `hit` pages needs.
  std::vector<std::uint32_t> pages_to_fetch(const search_part& part, std::uint32_t hit) const;
  std::vector<key_digest> keys_of(std::span<const std::uint32_t> pages) const;
  /// The keys before these pages, null for the first one; empty where the group's pages have no parents.
  std::vector<key_digest> parents_of(std::uint32_t group, std::span<const std::uint32_t> pages) const;
  /// The pages of a part that are leased under it and that a hit of `hit` pages needs.
  std::vector<key_digest> keys_to_keep(const lookup_part& part, std::uint32_t hit) const;

  /// Whether each page of a hit is on disk; empty where that is unknown.
  std::vector<std::uint8_t> tiers_of(std::uint32_t hit) const;
  /// The pages of a group that a hit needs.
  page_range needed(std::uint32_t group, std::uint32_t hit) const noexcept;
  /// The tokens to offer to an engine that has computed `computed`.
  std::uint32_t new_tokens(std::uint32_t computed) noexcept;
  hit_sources sources(std::uint32_t first, std::uint32_t last) const noexcept;

  // Blocks.

  void set_tables(const block_tables& blocks);
  void append_tables(const block_tables& blocks);
  /// The engine has allocated blocks. Returns true if a load follows.
  bool allocated(const block_tables& blocks, std::uint32_t external_tokens);
  /// The loads of all groups; the phase becomes `loading`. Groups of which nothing is needed have none. If the engine
  /// wants tokens that were not offered, or has no blocks for them, there is one that fails: the engine must not go on.
  std::vector<load_op> take_loads();
  std::uint32_t load_first() const noexcept { return load_first_; }
  hit_sources load_sources() const noexcept { return sources(load_first_, load_last_); }
  /// Notes pages of a group that a load did not fill. `distrust`: later hits of the request are without them, unless
  /// they are saved again.
  void load_failed(std::uint32_t group, std::span<const std::uint32_t> pages, bool distrust);
  /// The load has ended; `failed`: some of it failed, whatever pages were noted. Returns whether all of it succeeded.
  bool loaded(bool failed);

  /// The engine runs the request, without a load if none has begun.
  void run() noexcept;
  bool has_run() const noexcept { return has_run_; }
  /// The engine has taken its blocks; it is looked up again when it resumes.
  void preempt();

  // Stores.

  /// Pages of one group to be stored; their blocks are in the op.
  struct page_store {
    store_op op;
    std::vector<std::uint32_t> pages;
  };
  /// Stores of a step before which the KV of `computed_before` tokens exists, and after which that of `computed_after`
  /// does; at most `limit` pages each. The pages count as being stored from now on.
  std::vector<page_store> take_stores(std::uint32_t computed_before, std::uint32_t computed_after, std::uint32_t limit,
                                      std::uint32_t attempts_max);
  /// The same for states that the step writes.
  std::vector<page_store> take_states(std::span<const state_offer> offers, std::uint32_t tokens_max);
  /// The results of a store.
  void stored(std::uint32_t group, std::span<const std::uint32_t> pages, std::span<const std::uint8_t> ok);

  stay presence = stay::present;

private:
  static constexpr std::uint32_t failed_loads_max = 3;

  enum class page_state : std::uint8_t { unknown, storing, stored, hole };

  struct group_pages {
    std::vector<page_state> states;
    std::vector<std::uint8_t> attempts;
    /// No page before this one is `unknown`.
    std::uint32_t cursor = 0;
    /// Pages that could not be loaded.
    std::set<std::uint32_t> distrusted;
  };

  void grow();
  /// No hit is longer, because of pages that are not used any more.
  std::uint32_t highest_hit() const;
  load_op new_load(std::uint32_t group) const;
  /// Appends the blocks of a page. False, with nothing changed, if one of them is missing, or may belong to another
  /// request because it is before token `first_live`.
  bool append_blocks(std::uint32_t group, std::uint32_t page, std::uint32_t first_live,
                     std::vector<block_id>& out) const;
  page_store new_store(std::uint32_t group) const;
  void take_group(std::uint32_t group, std::uint32_t computed_before, std::uint32_t end, std::uint32_t limit,
                  std::uint32_t attempts_max, std::vector<page_store>& out);

  session_id session_;
  std::string name_;
  key_chain keys_;
  std::span<const page_group> groups_;
  std::uint32_t page_tokens_;
  std::uint32_t prompt_tokens_;
  phase phase_ = phase::asking;
  bool usable_ = true;
  bool has_run_ = false;
  std::uint32_t failed_loads_ = 0;
  lookup lookup_;
  /// The tokens that the engine had computed at the last lookup.
  std::uint32_t computed_ = 0;
  /// The tokens of the load.
  std::uint32_t load_first_ = 0;
  std::uint32_t load_last_ = 0;
  bool load_failed_ = false;
  /// By the engine's number.
  std::vector<std::vector<block_id>> tables_;
  std::vector<group_pages> pages_;
};

} // namespace troupe::connector
