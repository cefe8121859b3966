#include "actors/node/io_worker/free_frames.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace free_frames_test {

using namespace troupe;

TEST_CASE("free frames: they are taken in ascending order, wrapping around at the end", "[free_frames]") {
  free_frames free;
  CHECK(free.empty());
  for (frame_number f = 0; f < 200; ++f)
    free.insert(f);
  for (frame_number f = 0; f < 150; ++f)
    CHECK(free.take() == f);
  // Frames freed in the worst order are taken in the best one, after those that were free before.
  for (frame_number f = 100; f-- > 40;)
    free.insert(f);
  for (frame_number f = 150; f < 200; ++f)
    CHECK(free.take() == f);
  for (frame_number f = 40; f < 100; ++f)
    CHECK(free.take() == f);
  CHECK(free.empty());
}

TEST_CASE("free frames: a distant one is found, whatever lies between", "[free_frames]") {
  constexpr frame_number far = 5'000'000;
  free_frames free;
  free.insert(3);
  free.insert(far);
  CHECK(free.take() == 3);
  CHECK(free.take() == far);
  free.insert(far);
  free.insert(2);
  CHECK(free.take() == 2);
  CHECK(free.contains(far));
  CHECK_FALSE(free.contains(far + 1'000'000));
  free.erase(far);
  CHECK(free.empty());
}

TEST_CASE("free frames: any sequence of calls hands out each frame once", "[free_frames]") {
  const auto seed = GENERATE(take(20, random(1U, 0xffffffffU)));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto most = std::uniform_int_distribution<frame_number>(1, 9000)(random);
  free_frames free;
  std::set<frame_number> model;
  frame_number last = no_frame;
  for (int step = 0; step < 20'000; ++step) {
    const auto f = std::uniform_int_distribution<frame_number>(0, most - 1)(random);
    switch (random() % 4) {
    case 0:
    case 1:
      if (model.insert(f).second)
        free.insert(f);
      break;
    case 2:
      if (model.erase(f) == 1)
        free.erase(f);
      break;
    default:
      if (model.empty())
        break;
      const auto behind = last == no_frame ? model.begin() : model.upper_bound(last);
      const auto expected = behind == model.end() ? *model.begin() : *behind;
      last = free.take();
      REQUIRE(last == expected);
      model.erase(last);
    }
    REQUIRE(free.size() == model.size());
    REQUIRE(free.contains(f) == model.contains(f));
  }
}

} // namespace free_frames_test
