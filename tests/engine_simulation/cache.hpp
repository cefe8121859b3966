#pragma once

#include "base/error.hpp"
#include "connector/worker/worker_state.hpp"
#include "messages/transfer_messages.hpp"
#include "tests/engine_simulation/memory.hpp"
#include "tests/engine_simulation/world.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::engine_simulation {

/// Receives the results of requests to the cache.
class cache_client {
public:
  cache_client() = default;
  cache_client(const cache_client&) = delete;
  cache_client& operator=(const cache_client&) = delete;
  virtual ~cache_client() = default;

  virtual void lookup_answered(std::uint64_t lookup, const result<lookup_result>& answer) = 0;
  virtual void task_ended(std::uint32_t worker, connector::task_tag tag, const result<transfer_result>& outcome) = 0;
  virtual void cancel_answered(std::uint32_t worker) = 0;
};

/// A model of coordinators and the node behind them: keys with one page per rank, leases, eviction. Tasks have phases,
/// and anything can happen between them. Copies take time and read or write each half of their blocks at another
/// moment. Property P3 is checked at the commit of a page.
class cache {
public:
  cache(world& w, memory& m);

  void connect(cache_client& client) { client_ = &client; }

  void submit_lookup(std::uint64_t lookup, const lookup_task& work);
  void release(const ticket& lease);
  void submit_load(std::uint32_t worker, connector::task_tag tag, transfer_task work);
  void submit_save(std::uint32_t worker, connector::task_tag tag, transfer_task work);
  void cancel(std::uint32_t worker, const std::vector<connector::task_tag>& tags);

  /// Lets time pass, with all that happens meanwhile.
  void advance(duration by);
  /// Lets the next thing happen; false if there is none.
  bool next();

  void kill_node(bool loses_index);
  void start_node() { down_ = false; }
  void evict_all();

  /// Says what belongs under a key, from when on it may be saved. False if something else does.
  bool expect(const key_digest& key, const key_digest& parent, std::span<const engine::content> contents,
              std::uint32_t epoch);
  struct expectation {
    std::span<const engine::content> contents;
    std::uint32_t epoch = 0;
    key_digest parent;
  };
  /// Null where a key is not known.
  const expectation* expected(const key_digest& key) const;

  /// Whether a lookup has ever found it.
  bool was_found(const key_digest& key) const;
  bool was_stored(const key_digest& key, std::uint32_t worker) const;
  /// Whether it is held and so not evicted.
  bool is_held(const key_digest& key) const;
  bool was_killed() const noexcept { return node_ > 0; }

  std::size_t tasks_under_way() const noexcept { return tasks_under_way_; }
  /// Leases that the client knows of, has not given back, and that have not run out.
  std::size_t leases_known() const noexcept { return leases_known_; }
  bool quiet() const noexcept { return events_.empty(); }

private:
  enum class phase : std::uint8_t { begin, copy_first, copy_second, write, commit, read, answer };
  enum class what : std::uint8_t { lookup, lookup_answer, lease_end, task, cancel };
  enum class page_state : std::uint8_t { none, reserved, live };

  struct event {
    timestamp at;
    std::uint64_t order = 0;
    what kind = what::task;
    std::uint32_t index = 0;
  };
  struct page {
    page_state state = page_state::none;
    bool corrupt = false;
    bool ever_live = false;
    std::uint32_t reserved_by = 0;
    std::vector<engine::content> held;
  };
  struct entry {
    key_digest key;
    expectation right;
    std::vector<engine::content> contents;
    std::vector<page> pages;
    /// Leases of lookups and tasks.
    std::uint32_t holds = 0;
    bool found = false;
    std::uint64_t used = 0;
  };
  struct lookup {
    std::uint64_t id = 0;
    lookup_task work;
    result<lookup_result> answer;
    bool lost = false;
  };
  struct lease {
    std::vector<std::uint32_t> keys;
    bool over = false;
    bool known = false;
  };
  struct task {
    bool load = false;
    std::uint32_t worker = 0;
    connector::task_tag tag = 0;
    transfer_task work;
    phase next = phase::begin;
    std::vector<std::uint32_t> entries;
    std::vector<errc> results;
    std::vector<engine::content> held;
    std::uint32_t node = 0;
    /// When its copy may begin, once it has been requested.
    std::optional<timestamp> ready_at;
    bool marked = false;
    bool cancelled = false;
    bool copied = false;
    bool pinned = false;
    bool over = false;
  };
  struct cancellation {
    std::uint32_t worker = 0;
    std::vector<connector::task_tag> tags;
  };

  void plan_event(what kind, std::size_t index, duration after);
  duration delay(dice kind, std::uint64_t a, std::uint64_t b) const;
  void happen(const event& e);
  void find_keys(std::uint32_t index);
  void answer_lookup(std::uint32_t index);
  void end_lease(std::uint32_t index, bool returned);
  void finish_cancel(std::uint32_t index);

  void step_task(std::uint32_t index);
  bool step_save(task& t, std::uint32_t index);
  bool step_load(task& t);
  bool reserve(task& t, std::uint32_t index);
  void gather(task& t, bool first_half);
  void commit(task& t, std::uint32_t index);
  bool locate(task& t);
  void read(task& t);
  void scatter(task& t, bool first_half);
  void end_copy(task& t);
  void abandon(task& t, std::uint32_t index, errc why);
  void answer_task(task& t);

  std::uint32_t entry_of(const key_digest& key);
  rank_number rank_of(std::uint32_t worker) const noexcept { return worker / world_.p.workers_per_rank; }
  static bool complete(const entry& e);
  void drop(entry& e);
  /// Makes room for one more key.
  bool make_room();
  std::uint32_t stored_keys() const;

  world& world_;
  memory& memory_;
  cache_client* client_ = nullptr;
  std::vector<event> events_;
  std::uint64_t order_ = 0;
  std::vector<entry> entries_;
  std::unordered_map<key_digest, std::uint32_t> by_key_;
  std::vector<lookup> lookups_;
  std::vector<lease> leases_;
  std::vector<task> tasks_;
  std::vector<cancellation> cancellations_;
  std::size_t tasks_under_way_ = 0;
  std::size_t leases_known_ = 0;
  std::uint64_t uses_ = 0;
  std::uint32_t node_ = 0;
  bool down_ = false;
};

} // namespace troupe::engine_simulation
