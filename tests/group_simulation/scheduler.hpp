#pragma once

#include "connector/groups/grouped_scheduler_state.hpp"
#include "tests/group_simulation/requests.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::group_simulation {

/// The scheduler half as it stands around the real rules, with the checks of what they answer and order.
class scheduler_side {
public:
  scheduler_side(world& w, cache& c, block_pool& pool);

  void on_new_request(request& x);
  connector::matched_tokens match(request& x, std::uint32_t computed);
  /// `tables`: as the engine has them.
  void allocated(request& x, const std::vector<std::vector<block_id>>& tables, std::uint32_t external);
  connector::connector_metadata build(const step& of);
  bool finished(request& x);
  void report(const connector::worker_output& output);

  const connector::grouped_scheduler_state& rules() const noexcept { return *rules_; }
  std::size_t held() const noexcept { return held_.size() + late_holds_.size(); }
  bool quiet() const noexcept { return inbox_.empty() && late_stores_.empty() && stores_.empty(); }
  void received(const request& x) { loading_.erase(x.name); }
  void forget(const request& x) { alive_.erase(x.life), searches_.erase(x.life); }

private:
  struct asked_keys {
    life_number asker = 0;
    std::uint32_t group = 0;
    std::vector<key_digest> keys;
    peer_step::kind step = peer_step::kind::none;
  };
  /// The last lookup of a request, in all its parts.
  struct search_record {
    timestamp since;
    std::set<std::uint64_t> waiting;
    /// What the rules may use of the answers.
    std::set<std::pair<std::uint32_t, key_digest>> found;
    std::set<std::pair<std::uint32_t, key_digest>> at_peers;
    /// A hit was made before all answers were there.
    bool cut = false;
  };
  struct open_store {
    life_number life = 0;
    std::uint32_t group = 0;
    std::vector<key_digest> keys;
    std::uint32_t reports_missing = 0;
    std::vector<std::uint8_t> done;
  };

  connector::engine_request said_of(const request& x);
  void receive();
  void note_failed(const connector::store_outcome& outcome);
  void note_found(std::uint64_t lookup, const asked_keys& asked, const result<lookup_result>& answer);
  void flush();
  void submit(connector::lookup_submit& x);
  void retain(const connector::lookup_retain& x);
  /// The longest hit, in pages, whose pages are all in `there`.
  std::uint32_t longest(const request& x, const std::set<std::pair<std::uint32_t, key_digest>>& there) const;
  void check_fetched(const std::vector<connector::lookup_submit>& fetches);
  void spoil_fetch(connector::lookup_submit& x);
  void take_holds();
  void hold(block_id block);
  void let_go(block_id block);
  void check_hit(request& x, std::uint32_t length);
  void check_longest(const request& x, std::uint32_t computed, std::uint32_t tokens);
  void check_loads(const connector::connector_metadata& said);
  void note_stores(const step& of, const connector::connector_metadata& said);
  void check_nothing_forgotten(const step_part& part);
  void check_saved(const step_part& part, std::uint32_t group, std::uint32_t page);
  connector::block_tables flat(const std::vector<std::vector<block_id>>& tables, bool without_named);
  /// Where drafts count as tokens: `hashes` get those of pages with drafts.
  void name_drafts(const request& x, std::vector<connector::block_hash>& hashes, connector::scheduled_request& said);
  std::vector<connector::state_offer> spoiled_offers(const step_part& of);
  void spoil(connector::connector_metadata& said);

  world& world_;
  cache& cache_;
  block_pool& pool_;
  connector::grouped_options options_;
  std::unique_ptr<connector::grouped_scheduler_state> rules_;
  /// The request that the rules are called for.
  life_number caller_ = 0;
  std::vector<std::pair<std::uint64_t, result<lookup_result>>> inbox_;
  std::map<std::uint64_t, asked_keys> asked_;
  std::multiset<block_id> held_;
  std::map<connector::store_id, open_store> stores_;
  std::map<std::string, const request*> loading_;
  std::map<life_number, request*> alive_;
  std::map<life_number, search_record> searches_;
  /// Loads that were ordered.
  struct open_load {
    life_number life = 0;
    std::uint32_t group = 0;
    std::vector<key_digest> keys;
    std::uint32_t reports_missing = 0;
    std::set<key_digest> failed{};
  };
  std::map<connector::store_id, open_load> loads_;
  /// Tokens that a call refers to.
  std::vector<connector::token_id> tokens_;
  /// Block tables that a call refers to.
  struct flat_tables {
    std::vector<block_id> blocks;
    std::vector<std::uint32_t> ends;
  };
  std::deque<flat_tables> tables_;
  // For mistakes that are built in.
  std::set<ticket> fetched_leases_;
  std::vector<block_id> late_holds_;
  std::vector<connector::store_op> late_stores_;
  std::map<std::string, std::deque<std::vector<connector::state_offer>>> late_offers_;
};

} // namespace troupe::group_simulation
