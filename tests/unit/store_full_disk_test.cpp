#include "tests/catch.hpp"
#include "tests/live_copy.hpp"
#include "tests/unit/store_support.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <sys/mount.h>
#include <sys/resource.h>

namespace store_full_disk_test {

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// Files of this process cannot become longer, as on a disk that is full in a moment.
class file_size_limit {
public:
  explicit file_size_limit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int);
};

/// The directory of a store whose process was killed, with this many pages in its log.
void leave_behind(const fs::path& from, const fs::path& to, std::uint64_t pages) {
  const auto store = open_store(options_for(from, durability::relaxed));
  write_batch batch;
  for (std::uint64_t n = 0; n < pages; ++n)
    batch.put(page_number(n, 0, {static_cast<slot_number>(n), 1}));
  REQUIRE(commit_now(*store, std::move(batch)));
  copy_live(from, to);
}

} // namespace

TEST_CASE("store full disk: a store needs no file besides those that hold its data", "[store][rocksdb][full]") {
  scratch_directory directory;
  for (int round = 0; round < 2; ++round) {
    // This is enough for some pages, and too little for the options file of RocksDB.
    const file_size_limit full(8192);
    const auto store = open_store(directory.path() / "index");
    write_batch batch;
    batch.put(page_number(1));
    REQUIRE(commit_now(*store, std::move(batch)));
    CHECK(store->close());
  }
  CHECK_FALSE(fs::exists(directory.path() / "index/LOG"));
}

TEST_CASE("store full disk: a store on a full disk opens or reports it, and nothing is lost",
          "[store][rocksdb][full]") {
  constexpr std::uint64_t pages = 3000;
  scratch_directory scratch;
  leave_behind(scratch / "before", scratch / "killed", pages);
  std::uint64_t bytes = 0;
  for (const auto& x : fs::directory_iterator(scratch / "killed"))
    bytes += (x.file_size() + 4095) / 4096 * 4096;
  const auto disk = scratch / "disk";
  fs::create_directory(disk);
  std::size_t refused = 0;
  std::size_t opened = 0;
  for (std::uint64_t room = 0; room <= 240; room += 8) {
    INFO(room << " KiB of room");
    const auto size = "size=" + std::to_string(bytes / 1024 + room);
    if (::mount("troupe-test", disk.c_str(), "tmpfs", 0, (size + "k").c_str()) != 0) {
      WARN("not run: mounting a small file system needs root");
      return;
    }
    fs::copy(scratch / "killed", disk / "index");
    for (int round = 0; round < 2; ++round) {
      const auto store = rocksdb_store::open(options_for(disk / "index"));
      if (store) {
        ++opened;
        loaded found;
        load_all(**store, found);
        CHECK(found.pages.size() == pages);
        (void)(*store)->close();
        continue;
      }
      ++refused;
      CHECK(store.error().code == errc::no_space);
      CHECK(store.error().text.find((disk / "index").string()) != std::string::npos);
      // The data is good, so the sentence does not advise to delete it.
      CHECK(store.error().text.find("delete the directory") == std::string::npos);
    }
    // With space again it has all its data.
    REQUIRE(::mount("troupe-test", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0);
    {
      const auto store = open_store(disk / "index");
      loaded found;
      load_all(*store, found);
      CHECK(found.pages.size() == pages);
    }
    CHECK(::umount(disk.c_str()) == 0);
  }
  CHECK(refused > 0);
  CHECK(opened > 0);
}

TEST_CASE("store full disk: a store whose disk fills up continues when there is room, repeatedly",
          "[store][rocksdb][full]") {
  scratch_directory scratch;
  const auto disk = scratch / "disk";
  fs::create_directory(disk);
  std::uint64_t kibibytes = 256;
  const auto mount = [&](unsigned long flags) {
    const auto size = "size=" + std::to_string(kibibytes) + "k";
    return ::mount("troupe-test", disk.c_str(), "tmpfs", flags, size.c_str()) == 0;
  };
  if (!mount(0)) {
    WARN("not run: mounting a small file system needs root");
    return;
  }
  std::uint64_t pages = 0;
  {
    answer_log answers;
    auto options = options_for(disk / "index", durability::relaxed);
    options.first_pause = std::chrono::milliseconds(2);
    const auto store = open_store(options);
    std::uint64_t batches = 0;
    for (int round = 0; round < 6; ++round) {
      INFO("round " << round << ", " << pages << " pages");
      // One at a time, so that the disk is full in the middle of a write of any size.
      while (!store->stats().no_room) {
        write_batch batch;
        for (int i = 0; i < 97; ++i, ++pages)
          batch.put(page_number(pages, 0, {static_cast<slot_number>(pages), 1}));
        REQUIRE(store->commit(std::move(batch), answers.expect(batches)));
        ++batches;
        REQUIRE(eventually([&] { return store->stats().queued_batches == 0 || store->stats().no_room; }));
      }
      CHECK(answers.all().size() == batches - 1);
      kibibytes *= 2; // to open the files takes about as much as the log has, and compaction more
      REQUIRE(mount(MS_REMOUNT));
      const auto all = answers.wait_for(batches);
      CHECK(std::ranges::all_of(all, [](const auto& x) { return x.second == errc::ok; }));
      loaded found;
      load_all(*store, found);
      CHECK(found.pages.size() == pages);
    }
    kibibytes *= 2;
    REQUIRE(mount(MS_REMOUNT));
    CHECK(store->close());
  }
  {
    loaded found;
    load_all(*open_store(disk / "index"), found);
    CHECK(found.pages.size() == pages);
  }
  CHECK(::umount(disk.c_str()) == 0);
}

} // namespace store_full_disk_test
