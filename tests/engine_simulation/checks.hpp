#pragma once

#include "tests/engine_simulation/cache.hpp"
#include "tests/engine_simulation/halves.hpp"
#include "tests/engine_simulation/world.hpp"
#include "workload/engine_model/engine_model.hpp"

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

namespace troupe::engine_simulation {

/// Checks the output of the scheduler half against the engine's state. The properties are numbered as LMCache's proof
/// obligations for preemption:
///
///   P1a  blocks of an op are those of the request at these positions, at that step
///   P1b  a store ends where tokens are computed once the step has ended; no page is stored twice at a time, or again
///        when it is in the cache; none is forgotten
///   P1c  a load covers what the engine has not computed, from the beginning of the page on, once between preemptions
///   P1d  the connector's list of a request's blocks is the engine's
///   P2   no block changes its owner while it is loaded or waits to be copied (also in `memory`)
///   P3   what is stored under a key belongs there (also in `cache`)
///   P5   a request that comes back after a preemption asks the cache again
///
/// P0, every request ends and leaves nothing behind, is checked at the end of a run; P4, a forward pass reads the right
/// KV, by the engine.
class checks final : public observer {
public:
  checks(world& w, cache& c, const memory& m, const engine::engine_model& e, const sim_scheduler_half& half);

  void matched(const connector::engine_request& request, const connector::matched_tokens& answer, bool asked) override;
  void allocating(std::string_view request, std::uint32_t pages_found) override;
  void scheduled(const connector::scheduler_output& step, const connector::connector_metadata& said) override;
  void reported(const connector::worker_output& output) override;

  void check_events(const std::vector<connector::cache_event>& events);
  /// Pages of which events say that they are being saved.
  std::size_t pages_being_saved() const noexcept { return saving_.size(); }
  /// Between steps.
  void quiet_moment();

private:
  /// A store, or a synchronous load.
  struct open_store {
    connector::session_id session = 0;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint32_t reports_missing = 0;
    std::vector<std::uint8_t> stored;
    bool load = false;
  };
  void end_synchronous_load(const open_store& open);
  /// What the connector can know of a page of a request.
  enum class page_state : std::uint8_t {
    unknown,
    storing,
    stored,
    failed,
    /// It was, or is being, loaded.
    loaded,
    /// Could not be loaded.
    lost,
  };
  struct page_record {
    page_state now = page_state::unknown;
    std::uint8_t attempts = 0;
    /// A load has failed, so that it may be stored in any case.
    bool load_failed = false;
    /// The engine had freed a block of it when it could have been stored; the connector does not check it again.
    bool hole = false;
  };
  struct session_record {
    /// How many preemptions there were before the last load and the last lookup.
    std::uint32_t loaded = ~std::uint32_t{0};
    std::uint32_t asked = ~std::uint32_t{0};
    std::vector<page_record> pages;
  };

  void check_store(const connector::store_op& op, const connector::scheduler_output& step);
  void check_pages(const connector::store_op& op, const engine::request& r);
  void check_nothing_forgotten(const connector::scheduled_request& part);
  void check_load(const connector::load_op& op);
  void check_blocks();
  void check_loading();
  std::span<const engine::content> page_of(const engine::request& r, std::uint32_t page) const;
  void check_save_events(const connector::cache_event& x);
  void fail(std::string_view property, const std::string& request, const std::string& text);

  world& world_;
  cache& cache_;
  const memory& memory_;
  const engine::engine_model& engine_;
  const sim_scheduler_half& half_;
  std::unordered_map<connector::store_id, open_store> stores_;
  std::unordered_map<connector::session_id, session_record> sessions_;
  /// By save and page.
  std::set<std::pair<connector::store_id, std::uint32_t>> saving_;
  /// Saves up to this one may have been forgotten by an event.
  connector::store_id forgotten_ = 0;
  connector::store_id last_save_ = 0;
};

} // namespace troupe::engine_simulation
