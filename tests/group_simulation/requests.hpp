#pragma once

#include "connector/block_keys.hpp"
#include "connector/types.hpp"
#include "tests/group_simulation/cache.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::group_simulation {

/// A request of the engine.
struct request {
  enum class phase : std::uint8_t {
    waiting,
    /// For its load; then that has ended, and it runs as soon as it can be scheduled.
    loading,
    loaded,
    running,
    /// Aborted during its load.
    leaving,
  };

  life_number life = 0;
  std::string name;
  phase now = phase::waiting;
  /// `prefix[n]` stands for the first n tokens.
  std::vector<content> prefix;
  /// The same for the tokens that a step drafts, of which so many are accepted.
  std::vector<content> drafts;
  std::uint32_t accepted = 0;
  std::uint32_t prompt = 0;
  /// The number of tokens at which it ends.
  std::uint32_t end = 0;
  std::uint32_t computed = 0;
  bool has_run = false;
  /// By table; null blocks are `empty_block`.
  std::vector<std::vector<block_id>> tables;
  /// Tokens that the engine had, and will have, when the load began.
  std::uint32_t load_first = 0;
  std::uint32_t load_last = 0;
  /// Of each page.
  std::vector<connector::block_hash> hashes;
  std::vector<key_digest> keys;
  /// Pages that could not be loaded, by group, and have not been saved since.
  std::set<std::pair<std::uint32_t, key_digest>> bad;
  std::uint32_t failed_loads = 0;
  /// How often a page was to be saved, and those that the connector may take for saved.
  std::map<std::pair<std::uint32_t, key_digest>, std::uint32_t> saves;
  std::set<std::pair<std::uint32_t, key_digest>> known;

  /// Stands for the first n tokens, the last of which may be drafts.
  content with_drafts(std::size_t n) const { return n < prefix.size() ? prefix[n] : drafts[n - prefix.size()]; }
  std::uint32_t tokens() const noexcept { return static_cast<std::uint32_t>(prefix.size()) - 1; }
};

/// The engine's hash of a page whose last token `prefix` stands for.
connector::block_hash hash_of(content prefix);

/// Part of a step.
struct step_part {
  request* who = nullptr;
  std::uint32_t computed = 0;
  std::uint32_t scheduled = 0;
  bool is_new = false;
  bool resumed = false;
  /// New blocks by table, or all of them.
  std::vector<std::vector<block_id>> blocks;
  std::vector<connector::state_offer> offers;
};

struct step {
  std::vector<step_part> parts;
  std::vector<std::string> preempted;
};

} // namespace troupe::group_simulation
