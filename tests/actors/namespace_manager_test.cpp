#include "actors/node/namespaces/namespace_manager.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"

/// Serving namespaces of clients where a part of one cannot be opened.

namespace namespace_manager_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Ranks in memory only, of which the last one fails as long as the test wants.
class refusing_files final : public namespace_files {
public:
  std::vector<std::string> list() const override { return {}; }
  std::uint64_t bytes_of(const std::string&) const override { return 0; }
  bool has(const std::string&) const override { return false; }
  void remove(const std::string&) override {}

  result<rank_parts> open(const namespace_spec& ns, rank_number rank, std::uint64_t) override {
    if (refuse && rank + 1 == ns.world_size)
      return fail(errc::io_error, "the test says so");
    rank_parts out{0, rank, 16, 1, std::make_shared<io_worker_parts>()};
    auto& parts = *out.worker;
    parts.name = {ns.id(), ns.name, rank};
    parts.page_bytes = ns.geometry.page_bytes();
    parts.extents = extents;
    parts.options.memory_only = true;
    parts.options.slots = out.slots;
    parts.options.slot_bytes = io::slot_bytes(parts.page_bytes);
    parts.options.deadline_max = std::chrono::seconds(10);
    parts.options.pinned_bytes_max = 8 * parts.options.slot_bytes;
    return out;
  }

  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(4U, 1U << 20U);
  bool refuse = true;
};

struct keeper_world : sim {
  keeper_world() {
    namespace_manager_options how;
    how.config = std::make_shared<troupe::config::node_config>();
    how.files = files;
    how.disk = std::make_shared<io::disk_budget>(0);
    how.condition = std::make_shared<node_condition>();
    how.residence = residence;
    how.broker = broker.as<memory_broker_actor>();
    keeper = spawn<namespace_manager>(how);
  }

  errc open() { return ask(keeper, open_namespace_request{ns, false}).code(); }

  /// The number of ranks that a lookup may ask whether their pages are in memory.
  std::size_t resident() const {
    std::size_t out = 0;
    for (rank_number rank = 0; rank < ns.world_size; ++rank)
      out += residence->find(ns.id(), rank) ? 1 : 0;
    return out;
  }

  namespace_spec ns = small_namespace(3);
  probe broker{system()};
  std::shared_ptr<refusing_files> files = std::make_shared<refusing_files>();
  std::shared_ptr<page_residence> residence = std::make_shared<page_residence>();
  namespace_manager_actor keeper;
};

} // namespace

TEST_CASE_METHOD(keeper_world, "namespace files: a failed open leaves nothing behind and can be retried",
                 "[namespace_manager]") {
  CHECK(open() == errc::io_error);
  CHECK(resident() == 0);
  files->refuse = false;
  CHECK(open() == errc::ok);
  CHECK(resident() == 3);
  CHECK(ask(keeper, close_namespace_request{ns.id()}).code() == errc::ok);
  CHECK(resident() == 0);
  end(keeper);
}

} // namespace namespace_manager_test
