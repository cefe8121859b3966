#include "connector/groups/grouped_worker_half.hpp"
#include "tests/catch.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace connector_grouped_worker_test {

using namespace troupe;
using namespace troupe::connector;

namespace {

/// The half of one group, which notes what it gets and reports what the test has set.
class noted_half final : public worker_half {
public:
  result<void> register_kv_caches(const kv_cache_view&) override {
    registered = refuses ? 0 : 1;
    return refuses ? result<void>(fail(errc::invalid_argument, "no room")) : result<void>{};
  }
  result<void> register_groups(const std::vector<kv_cache_view>&) override { return {}; }
  result<void> unregister_kv_caches() override {
    registered = 0;
    return {};
  }
  result<void> attached() const override { return {}; }
  void bind_connector_metadata(connector_metadata metadata) override { bound = std::move(metadata); }
  void clear_connector_metadata() override {}
  void handle_preemptions(const connector_metadata&) override {}
  void start_load_kv(void*) override {}
  void wait_for_layer_load(std::string_view) override {}
  void save_kv_layer(std::string_view) override {}
  void wait_for_save(void*) override {}
  finished_requests get_finished(std::span<const std::string_view>) override { return std::exchange(finished, {}); }
  std::vector<block_id> get_block_ids_with_load_errors() override { return {}; }
  std::vector<store_outcome> build_connector_worker_meta() override { return {}; }
  connector_stats get_kv_connector_stats() override {
    connector_stats out;
    out.hit_tokens = 3;
    return out;
  }
  void shutdown() override {}

  bool refuses = false;
  int registered = 0;
  connector_metadata bound;
  finished_requests finished;
};

struct worker {
  /// `own`: whether this worker has each of the groups.
  explicit worker(const std::vector<bool>& own, const grouped_worker_half::token_count& counts = {}) {
    std::vector<std::unique_ptr<worker_half>> all(own.size());
    for (std::size_t g = 0; g < own.size(); ++g) {
      groups.push_back(nullptr);
      if (!own[g])
        continue;
      auto made = std::make_unique<noted_half>();
      groups.back() = made.get();
      all[g] = std::move(made);
    }
    half = std::make_unique<grouped_worker_half>(std::move(all), counts);
  }

  std::vector<noted_half*> groups;
  std::unique_ptr<grouped_worker_half> half;
};

load_op load(const std::string& request, std::uint32_t group) {
  load_op out;
  out.request = request;
  out.group = group;
  return out;
}

store_op store(std::uint32_t group) {
  store_op out;
  out.group = group;
  return out;
}

using names = std::vector<std::string>;

} // namespace

TEST_CASE("connector grouped worker: a request is received when the loads of all groups of a worker have ended",
          "[connector][groups]") {
  worker x({true, true});
  x.half->bind_connector_metadata({.loads = {load("a", 0), load("a", 1)}, .stores = {store(1)}});
  CHECK(x.groups[0]->bound.loads.size() == 1);
  CHECK(x.groups[0]->bound.stores.empty());
  CHECK(x.groups[1]->bound.stores.size() == 1);
  CHECK(x.half->get_finished({}).received.empty());
  x.groups[1]->finished = {{}, {"a"}, {"a"}};
  CHECK(x.half->get_finished({}).received.empty());
  x.groups[0]->finished = {{}, {"a"}, {}};
  const auto said = x.half->get_finished({});
  CHECK(said.received == names{"a"});
  CHECK(said.failed == names{"a"});
}

TEST_CASE("connector grouped worker: a worker of one stage has its groups alone, and names loads of others as received",
          "[connector][groups]") {
  worker x({false, true, false}, {.group = 1, .per_block = 4});
  x.half->bind_connector_metadata({.loads = {load("a", 0), load("a", 1), load("b", 0), load("b", 2), load("c", 7)},
                                   .stores = {store(0), store(1), store(9)}});
  CHECK(x.groups[1]->bound.loads.size() == 1);
  CHECK(x.groups[1]->bound.stores.size() == 1);
  // Nothing of b is of this stage. A group that there is not has no worker that would load it.
  CHECK(x.half->get_finished({}).received == names{"b"});
  CHECK(x.half->get_finished({}).received.empty());
  x.groups[1]->finished = {{}, {"a"}, {}};
  CHECK(x.half->get_finished({}).received == names{"a"});
  CHECK(x.half->get_kv_connector_stats().hit_tokens == 12);
}

TEST_CASE("connector grouped worker: a worker registers a cache for each of its groups, or none",
          "[connector][groups]") {
  worker x({true, false, true});
  CHECK(x.half->register_groups(std::vector<kv_cache_view>(3)).error().text.find("3 KV caches for 2") !=
        std::string::npos);
  REQUIRE(x.half->register_groups(std::vector<kv_cache_view>(2)));
  CHECK(x.groups[2]->registered == 1);
  x.groups[2]->refuses = true;
  CHECK(x.half->register_groups(std::vector<kv_cache_view>(2)).error().text == "no room");
  CHECK(x.groups[0]->registered == 0);
}

} // namespace connector_grouped_worker_test
