#include "actors/node/metrics/metrics.hpp"
#include "tests/actors/sim.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace metrics_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct world : sim {
  metrics_actor actor = spawn<metrics>("the node");

  void tell(const node_stats& stats) { CHECK(ask(actor, stats).code() == errc::ok); }
  void tell(const latency_batch& batch) { CHECK(ask(actor, batch).code() == errc::ok); }

  std::string page() { return ask(actor, render_atom_v).value<std::string>(); }

  /// The value of the one series that has all of these labels, as in `kind="match"`; none if there is none or several.
  std::optional<double> value(const std::string& name, const std::vector<std::string>& labels = {}) {
    std::istringstream lines(page());
    std::optional<double> out;
    for (std::string line; std::getline(lines, line);) {
      const auto end = line.find_first_of("{ ");
      if (line.starts_with('#') || line.substr(0, end) != name)
        continue;
      bool all = line.find("node=\"the node\"") != std::string::npos;
      for (const auto& x : labels)
        all = all && line.find(x) != std::string::npos;
      if (!all)
        continue;
      if (out)
        return std::nullopt;
      out = std::strtod(line.c_str() + line.rfind(' '), nullptr);
    }
    return out;
  }
};

latency_sample sample(request_kind kind, std::uint32_t items, std::uint64_t nanoseconds) {
  return {static_cast<std::uint32_t>(kind), items, nanoseconds};
}

/// Different numbers everywhere.
node_stats some_stats() {
  node_stats out;
  out.clients = 1;
  out.disconnected_clients = 9;
  out.registry = {2, 3, 4, 5, 6, 77, 8, 9, 10, 11};
  out.registry.invalidated_in_memory = 70;
  out.registry.invalidated_on_disk = 5;
  out.registry.evict_first_keys = 33;
  out.remote = {501, 502, 503, 504, 505, 506, 507, 508, 509};
  out.ranks.push_back(
      {{1, 1}, "a", 0, {100, 20, 30, 40, 10, 12}, {13, 14, 15, 16, 17, 18, 19, 21, 100, 7,  700, 630, 90, 34,
                                                   35, 36, 37, 59, 38, 39, 1,  51, 52,  53, 54,  55,  57, 56}});
  out.ranks.push_back(
      {{1, 1}, "a", 1, {200, 50, 60, 70, 20, 23}, {24, 25, 26, 27, 28, 29, 31, 32, 200, 7,  1400, 840, 120, 44, 45, 46,
                                                   47, 43, 48, 49, 2,  61, 62, 63, 64,  65, 58,   66,  67,  68, 69}});
  out.ranks.back().io.memory_pages = 3;
  return out;
}

} // namespace

TEST_CASE_METHOD(world, "metrics actor: each counter of the node is exposed under its own name", "[metrics]") {
  CHECK_FALSE(value("troupe_clients"));
  tell(some_stats());
  const std::pair<const char*, double> of_node[] = {
      {"troupe_clients", 1},
      {"troupe_disconnected_clients", 9},
      {"troupe_keys", 2},
      {"troupe_complete_keys", 3},
      {"troupe_leases", 4},
      {"troupe_reservations", 5},
      {"troupe_evicted_keys_total", 6},
      {"troupe_expired_leases_total", 8},
      {"troupe_expired_reservations_total", 9},
      {"troupe_refused_requests_total", 10},
      {"troupe_registry_bytes", 11},
      {"troupe_evict_first_keys", 33},
      {"troupe_remote_lost_clients_total", 507},
      {"troupe_remote_connections_lost_total", 508},
      {"troupe_remote_connections_reopened_total", 509},
  };
  for (const auto& [name, expected] : of_node) {
    INFO(name);
    CHECK(value(name) == expected);
  }
  const std::vector<std::string> there{"direction=\"to_client\""};
  const std::vector<std::string> back{"direction=\"from_client\""};
  CHECK(value("troupe_remote_pages_total", there) == 501);
  CHECK(value("troupe_remote_pages_total", back) == 502);
  CHECK(value("troupe_remote_bytes_total", there) == 503);
  CHECK(value("troupe_remote_bytes_total", back) == 504);
  CHECK(value("troupe_remote_failed_pages_total", there) == 505);
  CHECK(value("troupe_remote_failed_pages_total", back) == 506);
  CHECK(value("troupe_invalidated_pages_total", {"tier=\"memory\""}) == 70);
  CHECK(value("troupe_invalidated_pages_total", {"tier=\"disk\""}) == 5);
  CHECK(value("troupe_invalidated_pages_total", {"tier=\"unknown\""}) == 2);
  const std::vector<std::string> first{"namespace=\"a\"", "rank=\"0\""};
  const std::vector<std::string> second{"namespace=\"a\"", "rank=\"1\""};
  const auto with_state = [](std::vector<std::string> labels, const std::string& state) {
    labels.push_back("state=\"" + state + "\"");
    return labels;
  };
  CHECK(value("troupe_slots", with_state(first, "free")) == 20);
  CHECK(value("troupe_slots", with_state(first, "reserved")) == 30);
  CHECK(value("troupe_slots", with_state(first, "live")) == 40);
  CHECK(value("troupe_slots", with_state(first, "quarantined")) == 10);
  CHECK(value("troupe_slots", with_state(second, "live")) == 70);
  CHECK(value("troupe_refused_slots_total", second) == 23);
  CHECK(value("troupe_read_bytes_total", first) == 15);
  CHECK(value("troupe_written_bytes_total", first) == 16);
  CHECK(value("troupe_failed_transfers_total", first) == 17);
  CHECK(value("troupe_late_transfers_total", first) == 18);
  CHECK(value("troupe_fenced_transfers_total", first) == 19);
  CHECK(value("troupe_transfers_in_flight", first) == 21);
  CHECK(value("troupe_memory_bytes", first) == 700);
  CHECK(value("troupe_memory_bytes", second) == 1400);
  CHECK(value("troupe_memory_extents", first) == 55);
  CHECK(value("troupe_memory_extents_returned_total", second) == 66);
  CHECK(value("troupe_memory_encoded_extents", first) == 57);
  CHECK(value("troupe_memory_encoded_extents", second) == 58);
  CHECK(value("troupe_memory_frames", with_state(first, "clean")) == 56);
  CHECK(value("troupe_memory_frames", with_state(first, "dirty")) == 34);
  CHECK(value("troupe_memory_frames", with_state(second, "memory_only")) == 3);
  CHECK(value("troupe_memory_frames", with_state(second, "orphaned")) == 46);
  CHECK(value("troupe_memory_pinned_frames", first) == 35);
  CHECK(value("troupe_memory_dirty_bytes", first) == 238);
  CHECK(value("troupe_memory_hits_total", first) == 37);
  CHECK(value("troupe_memory_loads_total", first) == 59);
  CHECK(value("troupe_promoted_pages_total", first) == 13);
  CHECK(value("troupe_demoted_pages_total", second) == 48);
  CHECK(value("troupe_written_back_pages_total", first) == 14);
  CHECK(value("troupe_damaged_memory_pages_total", second) == 49);
  CHECK(value("troupe_memory_unasked_bytes", first) == 7);
  CHECK(value("troupe_dropped_pages_total", second) == 61);
  CHECK(value("troupe_prefetched_pages_total", first) == 52);
  CHECK(value("troupe_prefetch_hits_total", first) == 53);
  CHECK(value("troupe_prefetches_cancelled_total", second) == 64);
  CHECK(value("troupe_scrubbed_pages_total", second) == 67);
  CHECK(value("troupe_scrub_unsound_pages_total", second) == 68);
  CHECK(value("troupe_scrub_passes_total", second) == 69);
}

TEST_CASE_METHOD(world, "metrics actor: newer counters replace older ones", "[metrics]") {
  tell(some_stats());
  auto later_stats = some_stats();
  later_stats.clients = 0;
  later_stats.ranks[1].slots.live = 69;
  later_stats.ranks.erase(later_stats.ranks.begin());
  tell(later_stats);
  CHECK(value("troupe_clients") == 0);
  CHECK(value("troupe_slots", {"rank=\"1\"", "state=\"live\""}) == 69);
}

TEST_CASE_METHOD(world, "metrics actor: samples are counted and timed by kind and unknown kinds are counted separately",
                 "[metrics]") {
  for (std::uint32_t i = 0; i < request_kind_count; ++i)
    tell(latency_batch{std::vector(i + 1, sample(static_cast<request_kind>(i), 10, 1'500'000))});
  tell(latency_batch{});
  for (std::uint32_t i = 0; i < request_kind_count; ++i) {
    const std::vector kind{"kind=\"" + std::string(to_string(static_cast<request_kind>(i))) + "\""};
    INFO(kind.front());
    CHECK(value("troupe_request_seconds_count", kind) == i + 1.0);
    CHECK(value("troupe_request_items_total", kind) == 10 * (i + 1.0));
    const auto sum = value("troupe_request_seconds_sum", kind);
    REQUIRE(sum);
    CHECK(std::abs(*sum - 0.0015 * (i + 1)) < 1e-9);
  }
  CHECK(value("troupe_unknown_samples_total") == 0);
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  tell(latency_batch{std::vector<latency_sample>{{request_kind_count, 1, 1}, {most, most, ~std::uint64_t{0}}}});
  CHECK(value("troupe_unknown_samples_total") == 2);
  CHECK(value("troupe_request_items_total", {"kind=\"read_disk\""}) == 10.0 * request_kind_count);
  const latency_batch many{std::vector(latency_samples_max + 1, sample(request_kind::read, 1, 1))};
  CHECK(ask(actor, many).code() == errc::limit_exceeded);
  CHECK(value("troupe_request_seconds_count", {"kind=\"read\""}) == 1.0 + static_cast<double>(request_kind::read));
}

TEST_CASE_METHOD(world, "metrics actor: extreme numbers and unusual names are handled", "[metrics]") {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  tell(latency_batch{std::vector{sample(request_kind::read, ~0U, most), sample(request_kind::read, 0, 0)}});
  CHECK(value("troupe_request_seconds_count", {"kind=\"read\""}) == 2);
  node_stats strange;
  strange.registry.keys = most;
  for (const auto& name : {std::string(), std::string("a\"b\\c\nd"), std::string("\0\xff\xfe", 3), std::string("a")})
    strange.ranks.push_back({{}, name, ~0U, {most, most, most, most, most, most}, {}});
  tell(strange);
  CHECK(value("troupe_keys").value_or(0) > 1.8e19);
  CHECK(value("troupe_refused_slots_total", {"namespace=\"a\"", "rank=\"4294967295\""}).value_or(0) > 1.8e19);
}

TEST_CASE_METHOD(world, "metrics actor: series of a rank that is no longer served are removed", "[metrics]") {
  auto stats = some_stats();
  tell(stats);
  CHECK(value("troupe_slots", {"rank=\"1\"", "state=\"free\""}) == 50);
  const auto gone = stats.ranks.back();
  stats.ranks.pop_back();
  tell(stats);
  CHECK(page().find("rank=\"1\"") == std::string::npos);
  CHECK(value("troupe_slots", {"rank=\"0\"", "state=\"free\""}) == 20);
  // One that is made anew under its name counts anew.
  stats.ranks.push_back(gone);
  stats.ranks.back().io.read_bytes = 1;
  tell(stats);
  CHECK(value("troupe_read_bytes_total", {"rank=\"1\""}) == 1);
}

} // namespace metrics_test
