#pragma once

#include "tests/catch.hpp"
#include "tests/integration/capi_engine.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

/// An engine with several groups of layers that knows libtroupe.so and nothing else.

namespace troupe::test::hybrid {

inline constexpr std::uint32_t page_tokens = 32;
inline constexpr std::uint32_t blocks_in_pool = 64;
inline constexpr std::uint32_t tables = 4;

/// One group: full attention (table 0), a window of 48 tokens in tables 1 and 2, or states (table 3).
struct shape_of_group {
  std::uint32_t kind = TROUPE_GROUP_FULL;
  std::uint32_t tokens = 0;
  std::uint32_t block_tokens = page_tokens;
  std::vector<std::uint32_t> tables{0};
  std::uint32_t layers = 2;
  std::uint32_t block_bytes = 512;
  std::string name = "model.full";
  /// Pipeline stage, from 1 on.
  std::uint32_t stage = 0;

  std::uint32_t blocks_per_page() const {
    return static_cast<std::uint32_t>(tables.size()) * (page_tokens / block_tokens);
  }
};

inline std::vector<shape_of_group> three_groups() {
  return {{},
          {TROUPE_GROUP_WINDOW, 48, 16, {1, 2}, 1, 256, "model.window-48", 0},
          {TROUPE_GROUP_STATE, 0, page_tokens, {3}, 1, 320, "model.state", 0}};
}

/// The structs of the interface for these groups; they point at each other.
class group_terms {
public:
  explicit group_terms(const std::vector<shape_of_group>& shapes) : shapes_(shapes) {
    geometries_.resize(shapes_.size());
    namespaces_.resize(shapes_.size());
    for (std::size_t g = 0; g < shapes_.size(); ++g) {
      const auto& its = shapes_[g];
      geometries_[g] = sized<troupe_geometry>();
      geometries_[g].layers = its.layers;
      geometries_[g].page_tokens = its.blocks_per_page();
      geometries_[g].opaque_block_bytes = its.block_bytes;
      namespaces_[g] = sized<troupe_namespace>();
      namespaces_[g].name = its.name.c_str();
      namespaces_[g].model = "test/hybrid";
      namespaces_[g].dtype = "bfloat16";
      namespaces_[g].layout = its.name.c_str();
      namespaces_[g].geometry = &geometries_[g];
      auto group = sized<troupe_group>();
      group.kind = its.kind;
      group.tokens = its.tokens;
      group.block_tokens = its.block_tokens;
      group.table_count = static_cast<std::uint32_t>(its.tables.size());
      group.tables = its.tables.data();
      group.ns = &namespaces_[g];
      group.stage = its.stage;
      groups_.push_back(group);
    }
    all = sized<troupe_groups>();
    all.page_tokens = page_tokens;
    all.groups = groups_.data();
    all.count = groups_.size();
    engine = sized<troupe_engine>();
    engine.keys = TROUPE_KEYS_ROLLING;
  }
  group_terms(const group_terms&) = delete;
  group_terms& operator=(const group_terms&) = delete;

  troupe_groups all{};
  troupe_engine engine{};

private:
  std::vector<shape_of_group> shapes_;
  std::vector<troupe_geometry> geometries_;
  std::vector<troupe_namespace> namespaces_;
  std::vector<troupe_group> groups_;
};

/// A request's block tables.
using table_list = std::array<std::vector<std::uint32_t>, tables>;

/// An engine whose blocks belong to one table at a time, as block numbers of vLLM do; each group has memory of its own.
class hybrid_engine {
public:
  hybrid_engine(troupe_connection* connection, const std::vector<shape_of_group>& shapes) : shapes_(shapes) {
    const group_terms terms(shapes_);
    troupe_scheduler* scheduler = nullptr;
    call(troupe_scheduler_create_groups, connection, &terms.all, &terms.engine, &scheduler);
    scheduler_.reset(scheduler);
    troupe_worker* worker = nullptr;
    call(troupe_worker_create_groups, connection, &terms.all, &terms.engine, 0U, -1, &worker);
    worker_.reset(worker);
    std::vector<troupe_layer> layers;
    for (const auto& its : shapes_)
      for (std::uint32_t layer = 0; layer < its.layers; ++layer) {
        auto& bytes = memory_.emplace_back(std::size_t{its.block_bytes} * blocks_in_pool, std::uint8_t{0xEE});
        layers.push_back({bytes.data(), bytes.size(), its.block_bytes, 0, 0, 0});
      }
    call(troupe_worker_register, worker_.get(), layers.data(), layers.size(), blocks_in_pool);
  }

  /// What the last lookup of the request had from other nodes.
  troupe_fetched_pages fetched_for(const std::string& id) const {
    auto out = sized<troupe_fetched_pages>();
    call(troupe_scheduler_fetched_pages, scheduler_.get(), id.c_str(), &out);
    return out;
  }

  /// Tokens that are in the cache; waits until it is known.
  std::uint32_t matched(const std::string& id, const std::vector<std::uint32_t>& prompt, std::uint32_t computed = 0) {
    auto request = sized<troupe_request>();
    request.id = id.c_str();
    request.tokens = prompt.data();
    request.token_count = static_cast<std::uint32_t>(prompt.size());
    auto out = sized<troupe_matched>();
    REQUIRE(eventually([&] {
      call(troupe_scheduler_matched, scheduler_.get(), &request, computed, &out);
      return out.known == 1;
    }));
    return out.tokens;
  }

  void allocated(const std::string& id, const table_list& blocks, std::uint32_t tokens) {
    std::vector<std::uint32_t> all;
    std::vector<std::uint32_t> ends;
    for (const auto& table : blocks) {
      all.insert(all.end(), table.begin(), table.end());
      ends.push_back(static_cast<std::uint32_t>(all.size()));
    }
    call(troupe_scheduler_allocated_tables, scheduler_.get(), id.c_str(), all.data(), all.size(), ends.data(),
         ends.size(), tokens);
  }

  /// A step that computes the prompt, or one in which nothing runs.
  void step(const std::string& id = {}, const std::vector<std::uint32_t>& prompt = {}, const table_list& blocks = {},
            const std::vector<troupe_state>& states = {}) {
    auto x = sized<troupe_step>();
    const auto tokens = static_cast<std::uint32_t>(prompt.size());
    const std::uint32_t computed = 0;
    const std::string ids = id + '\0';
    std::vector<std::uint32_t> all;
    std::vector<std::uint32_t> ends;
    const auto state_end = static_cast<std::uint32_t>(states.size());
    if (!id.empty()) {
      for (const auto& table : blocks) {
        all.insert(all.end(), table.begin(), table.end());
        ends.push_back(static_cast<std::uint32_t>(all.size()));
      }
      x.new_requests = 1;
      x.requests = {ids.data(), ids.size(), 1};
      x.computed_tokens = &computed;
      x.scheduled_tokens = &tokens;
      x.tables = tables;
      x.block_ends = ends.data();
      x.blocks = {all.data(), all.size()};
      x.state_ends = &state_end;
      x.states = states.data();
      x.state_count = states.size();
    }
    troupe_bytes meta{};
    call(troupe_scheduler_build_meta, scheduler_.get(), &x, &meta);
    take_holds();
    call(troupe_worker_handle_preemptions, worker_.get(), meta.data, meta.length);
    call(troupe_worker_bind, worker_.get(), meta.data, meta.length);
    compute(prompt, blocks);
    void* no_event = nullptr;
    call(troupe_worker_start_load, worker_.get(), no_event);
    call(troupe_worker_save, worker_.get(), no_event);
    report();
    call(troupe_worker_clear, worker_.get());
  }

  /// The content of a block: what a table keeps of these tokens.
  static std::uint8_t content(const std::vector<std::uint32_t>& prompt, std::uint32_t table, std::size_t index) {
    return static_cast<std::uint8_t>(prompt.front() * 31 + table * 7 + index + 1);
  }

  void compute(const std::vector<std::uint32_t>& prompt, const table_list& blocks) {
    for (std::uint32_t t = 0; t < tables; ++t)
      for (std::size_t i = 0; i < blocks[t].size(); ++i)
        if (blocks[t][i] != TROUPE_NULL_BLOCK)
          fill(t, blocks[t][i], content(prompt, t, i));
  }

  /// Whether the block holds this byte throughout, in all layers of its table.
  bool holds(std::uint32_t table, std::uint32_t block, std::uint8_t byte) const {
    bool out = true;
    each_place(table, block, [&](const std::uint8_t* at, std::size_t bytes) {
      out = out && std::all_of(at, at + bytes, [&](std::uint8_t x) { return x == byte; });
    });
    return out;
  }

  void fill(std::uint32_t table, std::uint32_t block, std::uint8_t byte) {
    each_place(table, block, [&](const std::uint8_t* at, std::size_t bytes) {
      std::fill_n(const_cast<std::uint8_t*>(at), bytes, byte);
    });
  }

  bool finish(const std::string& id) {
    std::int32_t keep = 0;
    call(troupe_scheduler_finished, scheduler_.get(), id.c_str(), &keep);
    return keep != 0;
  }

  void until(const std::function<bool()>& f) {
    REQUIRE(eventually([&] {
      step();
      return f();
    }));
  }

  std::size_t held() const {
    std::size_t out = 0;
    for (const auto& [block, count] : holds_)
      out += count;
    return out;
  }
  bool is_held(std::uint32_t block) const { return holds_.contains(block); }
  bool received(const std::string& id) const { return received_.contains(id); }
  bool failed(const std::string& id) const { return failed_.contains(id); }

private:
  template <class F>
  void each_place(std::uint32_t table, std::uint32_t block, F f) const {
    std::size_t layer = 0;
    for (const auto& its : shapes_)
      for (std::uint32_t i = 0; i < its.layers; ++i, ++layer)
        if (std::find(its.tables.begin(), its.tables.end(), table) != its.tables.end())
          f(memory_[layer].data() + std::size_t{its.block_bytes} * block, its.block_bytes);
  }

  void take_holds() {
    troupe_blocks hold{};
    troupe_blocks release{};
    call(troupe_scheduler_take_holds, scheduler_.get(), &hold, &release);
    for (std::size_t i = 0; i < hold.count; ++i)
      ++holds_[hold.data[i]];
    for (std::size_t i = 0; i < release.count; ++i)
      if (--holds_.at(release.data[i]) == 0)
        holds_.erase(release.data[i]);
  }

  void report() {
    auto finished = sized<troupe_finished>();
    const troupe_ids* none = nullptr;
    call(troupe_worker_get_finished, worker_.get(), none, &finished);
    for (const auto& id : ids_of(finished.received))
      received_.insert(id);
    for (const auto& id : ids_of(finished.failed))
      failed_.insert(id);
    troupe_blocks errors{};
    call(troupe_worker_load_errors, worker_.get(), &errors);
    CHECK(errors.count == 0);
    troupe_bytes meta{};
    call(troupe_worker_meta, worker_.get(), &meta);
    auto output = sized<troupe_worker_output>();
    output.received = finished.received;
    output.failed = finished.failed;
    output.worker_meta = &meta;
    output.worker_meta_count = 1;
    call(troupe_scheduler_worker_output, scheduler_.get(), &output);
    take_holds();
  }

  std::vector<shape_of_group> shapes_;
  /// Of each layer, groups in their order.
  std::vector<std::vector<std::uint8_t>> memory_;
  capi_handle<troupe_scheduler> scheduler_;
  capi_handle<troupe_worker> worker_;
  std::map<std::uint32_t, std::size_t> holds_;
  std::set<std::string> received_;
  std::set<std::string> failed_;
};

inline std::vector<std::uint32_t> prompt_from(std::uint32_t first, std::size_t tokens = 100) {
  std::vector<std::uint32_t> out(tokens);
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline constexpr auto none = TROUPE_NULL_BLOCK;

/// Computes and saves a prompt of 100 tokens: three pages; the state after `state_tokens` tokens is offered.
inline void save(hybrid_engine& engine, const std::vector<std::uint32_t>& prompt, std::uint32_t state_tokens = 96) {
  const auto state_page = state_tokens / page_tokens;
  table_list blocks{{{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11}, {12, 13, 14, 15, 16, 17, 18}, {}}};
  blocks[3].assign(state_page, none);
  blocks[3].back() = 20;
  CHECK(engine.matched("save", prompt) == 0);
  engine.allocated("save", blocks, 0);
  engine.step("save", prompt, blocks, {{3, 20, state_tokens}});
  // 3 pages of one block, 3 of four blocks, one state; the rest is not full. Some may be saved already.
  CHECK(engine.held() <= 16);
  CHECK_FALSE(engine.finish("save"));
  engine.until([&] { return engine.held() == 0; });
  // Other requests have them now.
  for (std::uint32_t t = 0; t < tables; ++t)
    for (const auto block : blocks[t])
      if (block != none)
        engine.fill(t, block, 0xDD);
}

} // namespace troupe::test::hybrid
