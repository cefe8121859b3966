#include "store/epoch_file.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store_support.hpp"

#include <fstream>
#include <sys/stat.h>

namespace store_epoch_test {

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;
namespace fs = std::filesystem;

TEST_CASE("store epoch: an epoch is read back, and the next one replaces it", "[store][epoch]") {
  scratch_directory directory;
  CHECK(read_epoch(directory.path()).value() == std::nullopt);
  for (const incarnation_number epoch : {incarnation_number{1}, ~incarnation_number{0}, incarnation_number{1} << 63U}) {
    REQUIRE(write_epoch(directory.path(), epoch));
    CHECK(read_epoch(directory.path()).value() == epoch);
  }
  CHECK(fs::exists(directory.path() / "epoch"));
  CHECK_FALSE(fs::exists(directory.path() / "epoch.new"));
  struct stat status {};
  REQUIRE(::stat((directory.path() / "epoch").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0600U);
}

TEST_CASE("store epoch: an incomplete epoch is ignored", "[store][epoch]") {
  scratch_directory directory;
  REQUIRE(write_epoch(directory.path(), 0x1234));
  const auto path = directory.path() / "epoch";
  std::ifstream in(path, std::ios::binary);
  const std::string sound{std::istreambuf_iterator<char>(in), {}};
  CHECK(sound == "troupe epoch\n0000000000001234\n");
  for (auto damaged : {std::string(), sound.substr(0, sound.size() - 1), sound + "\n", "x" + sound.substr(1),
                       std::string("troupe epoch\n00000000000012g4\n"), std::string("troupe epoch\n0000000000000000\n"),
                       std::string(sound.size(), '\0')}) {
    INFO(damaged);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK(read_epoch(directory.path()).value() == std::nullopt);
  }
  // A crash in the middle of writing leaves the one before.
  REQUIRE(write_epoch(directory.path(), 7));
  std::ofstream(directory.path() / "epoch.new") << "troupe epo";
  CHECK(read_epoch(directory.path()).value() == 7);
  REQUIRE(write_epoch(directory.path(), 8));
  CHECK(read_epoch(directory.path()).value() == 8);
}

TEST_CASE("store epoch: an epoch that cannot be read or written is an error that names the file", "[store][epoch]") {
  scratch_directory directory;
  fs::create_directory(directory.path() / "epoch");
  const auto read = read_epoch(directory.path());
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().code == errc::io_error);
  CHECK(read.error().text.find((directory.path() / "epoch").string()) != std::string::npos);
  const auto written = write_epoch(directory.path(), 3);
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().text.find((directory.path() / "epoch").string()) != std::string::npos);
}

TEST_CASE("store epoch: an index belongs to the last run only if it recorded its epoch", "[store][epoch]") {
  CHECK(continues_epoch(5, 0, 5));
  CHECK(continues_epoch(5, 6, 5)); // the next run died before it began
  CHECK(continues_epoch(5, 6, 6)); // or before it could note that it had begun
  CHECK_FALSE(continues_epoch(5, 6, 7));
  CHECK_FALSE(continues_epoch(0, 6, 5)); // an index that was rejected once stays rejected
  CHECK_FALSE(continues_epoch(5, 6, std::nullopt));
  CHECK_FALSE(continues_epoch(0, 0, std::nullopt)); // an index of before there were epochs
  CHECK_FALSE(continues_epoch(0, 0, 0));
}

TEST_CASE("store epoch: a store keeps the epochs of its index from run to run until new ones are recorded",
          "[store][epoch]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    CHECK(store->identity().epoch == 0);
    auto identity = store->identity();
    identity.epoch = 11;
    identity.next_epoch = 12;
    write_batch batch;
    batch.put(identity);
    REQUIRE(commit_now(*store, std::move(batch)));
  }
  for (int i = 0; i < 2; ++i) {
    const auto store = open_store(directory.path());
    CHECK(store->identity().epoch == 11);
    CHECK(store->identity().next_epoch == 12);
  }
}

} // namespace store_epoch_test
