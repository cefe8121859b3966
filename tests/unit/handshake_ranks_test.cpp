#include "handshake/tensor_ranks.hpp"
#include "tests/catch.hpp"

#include <array>
#include <map>
#include <set>

namespace handshake_ranks_test {

using namespace troupe;
using namespace troupe::handshake;

namespace {

using numbers = std::vector<std::uint32_t>;

tensor_ranks plan(std::uint32_t local_size, std::uint32_t rank, std::uint32_t remote_size, std::uint32_t heads,
                  bool is_replicated = false) {
  return tensor_ranks_of({local_size, rank, remote_size, heads, is_replicated}).value();
}

} // namespace

TEST_CASE("handshake ranks: with equal sizes each rank transfers with the same rank", "[handshake]") {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const auto x = plan(4, rank, 4, 8);
    CHECK(x.ratio == 1);
    CHECK(x.meet == numbers{rank});
    CHECK(x.read == std::vector<remote_part>{{rank, 0, 0, 2}});
    CHECK(x.notify.empty());
    CHECK(x.notes == 1);
  }
}

TEST_CASE("handshake ranks: several local ranks read parts of one remote rank", "[handshake]") {
  // One from rank local / ratio, its own part at local % ratio.
  const auto x = plan(8, 5, 2, 8);
  CHECK(x.ratio == 4);
  CHECK(x.meet == numbers{1});
  CHECK(x.read == std::vector<remote_part>{{1, 1, 0, 1}});
  CHECK(x.notes == 4);
}

TEST_CASE("handshake ranks: one local rank reads several remote ranks", "[handshake]") {
  // Ranks are numbered from local · |ratio| + i, with the local block in |ratio| parts.
  const auto x = plan(2, 1, 8, 8);
  CHECK(x.ratio == -4);
  CHECK(x.meet == numbers{4, 5, 6, 7});
  CHECK(x.read == std::vector<remote_part>{{4, 0, 0, 1}, {5, 0, 1, 1}, {6, 0, 2, 1}, {7, 0, 3, 1}});
  CHECK(x.notify.empty());
  CHECK(x.notes == 1);
}

TEST_CASE("handshake ranks: a cache without heads is read from one rank, and the others are notified", "[handshake]") {
  const auto wide = plan(2, 1, 8, 1, true);
  CHECK(wide.meet == numbers{4, 5, 6, 7});
  CHECK(wide.read == std::vector<remote_part>{{4, 0, 0, 1}});
  CHECK(wide.notify == numbers{5, 6, 7});
  const auto narrow = plan(8, 5, 2, 1, true);
  CHECK(narrow.meet == numbers{1});
  CHECK(narrow.read == std::vector<remote_part>{{1, 0, 0, 1}});
}

TEST_CASE("handshake ranks: of ranks with the same head the first is read", "[handshake]") {
  // Four heads on eight remote ranks: pairs of them have the same one.
  const auto x = plan(2, 1, 8, 4);
  CHECK(x.meet == numbers{4, 5, 6, 7});
  CHECK(x.read == std::vector<remote_part>{{4, 0, 0, 1}, {6, 0, 1, 1}});
  CHECK(x.notify == numbers{5, 7});
  // Locally more ranks than heads.
  CHECK(plan(8, 5, 4, 2).read == std::vector<remote_part>{{2, 0, 0, 1}});
  // With as many ranks as heads nothing is there twice.
  CHECK(plan(1, 0, 4, 4).notify.empty());
}

TEST_CASE("handshake ranks: the ranks to transfer with depend only on the sizes", "[handshake]") {
  CHECK(ranks_to_meet(5, 8, 2).value() == rank_range{1, 1});
  CHECK(ranks_to_meet(1, 2, 8).value() == rank_range{4, 4});
  CHECK(ranks_to_meet(3, 4, 4).value() == rank_range{3, 1});
  for (const auto& [own, size, other] :
       {std::array{0U, 2U, 3U}, {0U, 3U, 2U}, {0U, 0U, 2U}, {2U, 2U, 2U}, {0U, 2U, 0U}})
    CHECK(ranks_to_meet(own, size, other).error().code == errc::invalid_argument);
  CHECK(rank_range{4, 4}.contains(4));
  CHECK(rank_range{4, 4}.contains(7));
  CHECK_FALSE(rank_range{4, 4}.contains(8));
  CHECK_FALSE(rank_range{4, 4}.contains(3));
}

TEST_CASE("handshake ranks: sizes that do not divide each other are refused", "[handshake]") {
  CHECK(tensor_ranks_of({3, 0, 2, 6, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({2, 0, 3, 6, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({4, 0, 2, 6, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({0, 0, 2, 6, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({2, 2, 2, 2, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({2, 0, 2, 0, false}).error().code == errc::invalid_argument);
  CHECK(tensor_ranks_of({2, 1, 2, 5, true}).has_value());
}

TEST_CASE(
    "handshake ranks: for all sizes each rank reads all of its heads once, and each peer is notified by all it expects",
    "[handshake]") {
  for (const std::uint32_t heads : {1U, 2U, 4U, 8U, 16U})
    for (const std::uint32_t local : {1U, 2U, 4U, 8U, 16U, 32U})
      for (const std::uint32_t remote : {1U, 2U, 4U, 8U, 16U, 32U}) {
        INFO(heads << " heads, " << local << " here, " << remote << " there");
        std::map<std::uint32_t, std::uint32_t> notes;
        for (std::uint32_t rank = 0; rank < local; ++rank) {
          const auto x = plan(local, rank, remote, heads);
          std::set<std::uint32_t> got;
          for (const auto& part : x.read)
            for (std::uint32_t i = 0; i < part.heads; ++i) {
              CHECK(part.remote_head + i < heads_per_rank(heads, remote));
              // Both sides have the same head of the model.
              CHECK(part.rank * heads / remote + part.remote_head + i == rank * heads / local + part.local_head + i);
              CHECK(got.insert(part.local_head + i).second);
            }
          CHECK(got.size() == heads_per_rank(heads, local));
          CHECK(x.read.size() + x.notify.size() == x.meet.size());
          for (const auto peer : x.meet)
            ++notes[peer];
        }
        CHECK(notes.size() == remote);
        for (const auto& [peer, count] : notes)
          CHECK(count == plan(local, 0, remote, heads).notes);
      }
}

} // namespace handshake_ranks_test
