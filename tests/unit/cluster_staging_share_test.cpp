#include "actors/cluster/pages/fetching.hpp"
#include "tests/catch.hpp"
#include "tests/unit/transfer_support.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace cluster_staging_share_test {

using namespace troupe;
using namespace troupe::cluster;
using test::key;
using test::ms;
using test::t0;
using test::test_namespace;

namespace {

constexpr std::uint32_t blocks = 16;

/// Peers that have everything, and the blocks that each of them holds.
struct staging_share {
  explicit staging_share(std::vector<peer_number> all) : peers(std::move(all)), state(options()), effects(state) {
    state.add_namespace(test_namespace, 4096, 1, blocks);
  }

  fetching_options options() {
    fetching_options out{50 * ms, 200 * ms, 1000 * ms, 4, 8, 16, {}};
    out.peers = [this](const namespace_id&) { return peers; };
    return out;
  }

  /// Has `from` send keys from `first` on; the others have nothing.
  void want(peer_number from, std::uint64_t first, std::uint32_t count) {
    prefix_fetch_request wanted{test_namespace, key(first - 1), {}};
    for (std::uint32_t i = 0; i < count; ++i)
      wanted.keys.items.push_back(key(first + i));
    state.wanted_prefix(wanted, t0);
    for (const auto& x : effects.take<fetch_ask>()) {
      const auto has = x.peer == from ? count : 0;
      state.on_found(x.call, lookup_result{has, has > 0 ? ticket{9, x.call} : ticket{}, {}}, t0);
    }
    collect();
  }
  void collect() {
    for (auto& x : effects.take<fetch_move>()) {
      held[x.peer] += x.work.blocks.size();
      open.push_back(std::move(x));
    }
  }
  /// Ends the oldest transfer of the peer. False if it has none.
  bool arrive(peer_number from) {
    const auto found = std::ranges::find_if(open, [&](const fetch_move& x) { return x.peer == from; });
    if (found == open.end())
      return false;
    const auto x = *found;
    open.erase(found);
    held[from] -= x.work.blocks.size();
    transfer_result done;
    done.results.items.assign(x.work.keys.size(), static_cast<std::uint8_t>(errc::ok));
    state.on_moved(x.call, done, {}, t0);
    collect();
    return true;
  }
  std::size_t free() const {
    std::size_t out = blocks;
    for (const auto& [peer, count] : held)
      out -= count;
    return out;
  }

  std::vector<peer_number> peers;
  fetching state;
  test::effects_of<fetching, fetch_effect> effects;
  std::map<peer_number, std::size_t> held;
  std::vector<fetch_move> open;
};

} // namespace

TEST_CASE("fetching: a peer that sends nothing leaves a quarter of the staging buffer to others", "[cluster]") {
  staging_share x({0, 1});
  x.want(0, 100, 64);
  CHECK(x.held[0] == 12);
  x.want(1, 500, 40);
  CHECK(x.held[1] > 0);
  std::size_t answers = 0;
  while (x.arrive(1))
    ++answers;
  CHECK(answers > 0);
  CHECK(x.held[0] == 12);
  CHECK(x.state.counts(1).pages == 40);
}

TEST_CASE("fetching: a single peer gets the whole staging buffer", "[cluster]") {
  staging_share x({0});
  x.want(0, 100, 64);
  CHECK(x.held[0] == blocks);
}

TEST_CASE("fetching: whichever peers are slow, one without blocks gets some, and all pages arrive", "[cluster]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    staging_share x({0, 1, 2});
    for (std::uint64_t i = 0; i < 8; ++i) {
      const peer_number from = random() % 3;
      x.want(from, 100 * (i + 1), static_cast<std::uint32_t>(1 + random() % 40));
      CHECK((x.held[from] > 0 || x.free() == 0));
      CHECK(x.held[from] <= 13);
      if (random() % 2 == 0)
        x.arrive(random() % 3);
    }
    while (x.arrive(0) || x.arrive(1) || x.arrive(2)) {
    }
    CHECK(x.state.blocks_in_use() == 0);
    CHECK(x.open.empty());
  }
}

} // namespace cluster_staging_share_test
