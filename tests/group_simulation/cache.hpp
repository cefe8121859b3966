#pragma once

#include "connector/scheduler/scheduler_rules.hpp"
#include "connector/worker/worker_state.hpp"
#include "tests/group_simulation/pool.hpp"
#include "tests/group_simulation/world.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::group_simulation {

/// The requests of the engine as the simulation numbers them: unlike their names, never used again.
using life_number = std::uint64_t;

/// A node that keeps pages: by group, key and rank. It evicts them at any time unless they are leased, damages them,
/// answers late and in any order, and fails. Its peers have pages as well, which it searches for and fetches.
class cache {
public:
  cache(world& w, block_pool& pool) : world_(w), pool_(pool) {}

  /// What a key stands for: the prefixes at the end of each of its tokens.
  void meaning(const key_digest& key, std::vector<content> prefixes) { meant_.emplace(key, std::move(prefixes)); }

  // Lookups and leases.

  using lookup_answer = std::function<void(result<lookup_result>)>;
  /// `asker`: the request for which it is.
  void look_up(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer);
  /// The rules are about to receive it.
  void delivered(const ticket& lease);
  void delivered_search(std::uint64_t search);
  void end_search(std::uint64_t search);
  /// What peers hold; those of a request that its rules know.
  std::size_t searches() const noexcept { return searches_.size(); }
  bool has_search(life_number asker) const;
  void release(const ticket& lease);
  void retain(const ticket& lease, const std::vector<key_digest>& keys);
  std::size_t leases() const noexcept { return leases_.size(); }
  /// The keys that a request has leased in a group, as far as its rules know; empty where one of them has expired.
  std::optional<std::set<key_digest>> leased(life_number asker, std::uint32_t group) const;

  // Transfers.

  using task_answer = std::function<void(const result<transfer_result>&)>;
  void load(std::uint32_t worker, std::uint32_t group, const transfer_task& task, task_answer answer);
  void save(std::uint32_t worker, std::uint32_t group, const transfer_task& task, task_answer answer);
  std::size_t under_way() const noexcept { return under_way_; }

  // Faults.

  void evict_some();
  void damage_one();
  /// An engine beside a peer computes a part of a request with these keys.
  void serve_elsewhere(const std::vector<key_digest>& keys);

  /// Whether all ranks have a page that is whole, or had one until a reader found it damaged.
  bool was_promised(std::uint32_t group, const key_digest& key) const;
  /// Notified of each page that could not be loaded into blocks of a request.
  std::function<void(life_number, std::uint32_t group, const key_digest&)> on_failed_page;

private:
  using place = std::pair<std::uint32_t, key_digest>;
  struct page_record {
    std::vector<content> bytes;
    bool damaged = false;
  };
  struct entry {
    /// By rank.
    std::vector<std::optional<page_record>> pages;
  };
  struct lease_record {
    life_number asker = 0;
    std::uint32_t group = 0;
    std::set<key_digest> keys;
    timestamp expires;
    bool known = false;
  };

  struct search_record {
    life_number asker = 0;
    std::uint32_t group = 0;
    std::set<key_digest> keys;
    bool known = false;
  };

  void look_up_here(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer);
  void search_peers(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer);
  void fetch(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer);
  /// False: it did not come.
  bool fetch_page(std::uint32_t group, const key_digest& key);
  std::vector<content> right_bytes(std::uint32_t group, std::uint32_t rank, const std::vector<content>& prefixes) const;
  bool complete(const entry& x) const;
  bool is_leased(const place& where) const;
  lookup_result find(life_number asker, std::uint32_t group, const lookup_task& task);
  errc load_page(std::uint32_t worker, std::uint32_t group, const key_digest& key, std::span<const block_id> blocks);
  errc save_page(std::uint32_t worker, std::uint32_t group, const key_digest& key, std::span<const block_id> blocks);
  void check(std::uint32_t worker, std::uint32_t group, const key_digest& key, const std::vector<content>& bytes);
  /// The group of another stage with the same tables, or the group itself.
  std::uint32_t twin_of(std::uint32_t group) const;
  void write(std::uint32_t worker, block_id block, std::span<const content> bytes);
  /// The time that a transfer takes.
  duration time_of_transfer();

  world& world_;
  block_pool& pool_;
  std::map<key_digest, std::vector<content>> meant_;
  std::map<place, entry> entries_;
  /// Removed because a reader found them damaged.
  std::set<place> fallen_;
  std::map<ticket, lease_record> leases_;
  /// Pages that peers have, of all ranks.
  std::set<place> others_;
  std::map<std::uint64_t, search_record> searches_;
  std::uint64_t last_search_ = 0;
  std::uint64_t last_lease_ = 0;
  std::size_t under_way_ = 0;
};

} // namespace troupe::group_simulation
