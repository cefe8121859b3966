#include "connector/parallel.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace connector_parallel_test {

using namespace troupe;
using namespace troupe::connector;

namespace {

parallel_layout mla(std::uint32_t tensor, std::uint32_t pipeline, std::uint32_t context = 1) {
  return {tensor, pipeline, context, true};
}

std::string text_of(const parallel_layout& x) {
  return "TP" + std::to_string(x.tensor_parallel) + " PP" + std::to_string(x.pipeline_parallel) + " DCP" +
         std::to_string(x.context_parallel) + (x.kv_replicated ? " replicated" : "");
}

std::vector<rank_number> kv_ranks(const parallel_layout& layout) {
  std::vector<rank_number> ranks;
  for (std::uint32_t worker = 0; worker < worker_count(layout); ++worker)
    ranks.push_back(kv_rank(layout, worker));
  return ranks;
}

/// The readers of a page as LMCache infers them: one, and more where tensor parallelism exceeds the world size.
std::uint32_t inferred_readers(const parallel_layout& layout) {
  const auto world_size = kv_world_size(layout);
  const auto tensor_parallel = layout.tensor_parallel <= 1 ? world_size : layout.tensor_parallel;
  return 1 + (tensor_parallel > world_size ? tensor_parallel - 1 : 0);
}

template <class Check>
void for_all_layouts(Check check) {
  for (std::uint32_t tensor = 1; tensor <= 16; ++tensor)
    for (std::uint32_t pipeline = 1; pipeline <= 16; ++pipeline)
      for (std::uint32_t context = 1; context <= tensor; ++context)
        if (tensor % context == 0)
          for (const bool replicated : {false, true})
            check(parallel_layout{tensor, pipeline, context, replicated});
}

} // namespace

TEST_CASE("connector parallel: ranks of engines whose tensor-parallel workers hold the same KV", "[connector]") {
  using ranks = std::vector<rank_number>;
  CHECK(kv_world_size(mla(4, 2)) == 2);
  CHECK(kv_ranks(mla(4, 2)) == ranks{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(kv_world_size(mla(8, 1)) == 1);
  CHECK(kv_ranks(mla(8, 1)) == ranks{0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(kv_world_size(mla(2, 4)) == 4);
  CHECK(kv_ranks(mla(2, 4)) == ranks{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(kv_world_size(mla(1, 1)) == 1);
  // Tokens of a block are spread over neighbours.
  CHECK(kv_world_size(mla(8, 2, 4)) == 8);
  CHECK(kv_ranks(mla(8, 2, 4)) == ranks{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7});
  CHECK(kv_ranks(mla(4, 2, 4)) == ranks{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("connector parallel: ranks of engines whose heads are split are their workers", "[connector]") {
  const parallel_layout layout{4, 2, 2, false};
  CHECK(kv_world_size(layout) == 8);
  CHECK(kv_writer_count(layout) == 8);
  CHECK(readers_per_page(layout) == 1);
  CHECK(kv_ranks(layout) == std::vector<rank_number>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("connector parallel: each page has the expected readers", "[connector]") {
  CHECK(readers_per_page(mla(4, 1)) == 4);
  CHECK(readers_per_page(mla(8, 1)) == 8);
  CHECK(readers_per_page(mla(4, 2)) == 4);
  CHECK(readers_per_page({8, 1, 1, false}) == 1);
  CHECK(readers_per_page(mla(8, 2, 4)) == 2);
  for (const auto& layout : {mla(4, 1), mla(8, 1), mla(4, 2), parallel_layout{8, 1, 1, false}})
    CHECK(readers_per_page(layout) == inferred_readers(layout));

  // Where there are as many stages as tensor-parallel ranks, comparing the two does not show replication.
  for (const auto& layout : {mla(2, 2), mla(2, 4)}) {
    INFO(text_of(layout));
    CHECK(readers_per_page(layout) == 2);
    CHECK(inferred_readers(layout) == 1);
  }
}

TEST_CASE("connector parallel: every rank has one writer and its readers, in all layouts", "[connector]") {
  for_all_layouts([](const parallel_layout& layout) {
    INFO(text_of(layout));
    REQUIRE(validate(layout));
    const auto workers = layout.tensor_parallel * layout.pipeline_parallel;
    CHECK(worker_count(layout) == workers);

    // The contents of a page of a worker: layers of a stage, heads (of one worker or all), a share of the tokens.
    using content = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
    std::map<content, std::vector<std::uint32_t>> holders;
    for (std::uint32_t worker = 0; worker < workers; ++worker) {
      const auto tensor_rank = worker % layout.tensor_parallel;
      holders[{worker / layout.tensor_parallel, layout.kv_replicated ? 0 : tensor_rank,
               tensor_rank % layout.context_parallel}]
          .push_back(worker);
    }
    REQUIRE(kv_world_size(layout) == holders.size());
    CHECK(kv_writer_count(layout) == holders.size());

    std::vector<bool> covered(holders.size());
    for (const auto& [_, same] : holders) {
      const auto rank = kv_rank(layout, same.front());
      REQUIRE(rank < covered.size());
      CHECK_FALSE(covered[rank]);
      covered[rank] = true;
      CHECK(same.size() == readers_per_page(layout));
      for (const auto worker : same) {
        CHECK(kv_rank(layout, worker) == rank);
        CHECK(is_kv_writer(layout, worker) == (worker == same.front()));
      }
    }
  });
}

TEST_CASE("connector parallel: invalid layouts are refused", "[connector]") {
  for (const auto& layout :
       {parallel_layout{0, 1, 1, false}, parallel_layout{1, 0, 1, false}, parallel_layout{1, 1, 0, false},
        parallel_layout{4, 1, 3, false}, parallel_layout{4, 1, 8, true}, parallel_layout{256, 256, 1, false},
        parallel_layout{65536, 65536, 1, true}}) {
    INFO(text_of(layout));
    const auto valid = validate(layout);
    REQUIRE_FALSE(valid);
    CHECK(valid.error().code == errc::invalid_argument);
    CHECK_FALSE(valid.error().text.empty());
  }
  CHECK(connector::validate({}));
  CHECK(connector::validate({65535, 1, 1, false}));
  CHECK(connector::validate({257, 255, 257, true}));
}

TEST_CASE("connector parallel: a scheduler block has as many tensor blocks as there are context-parallel workers",
          "[connector]") {
  CHECK(scheduler_block_tokens({}, 16) == 16);
  CHECK(scheduler_block_tokens({8, 2, 1, true}, 64) == 64);
  CHECK(scheduler_block_tokens({8, 2, 4, true}, 64) == 256);
  CHECK(scheduler_block_tokens({8, 2, 2, false}, 16) == 32);
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  CHECK(scheduler_block_tokens({2, 1, 2, true}, most) == most);
}

} // namespace connector_parallel_test
