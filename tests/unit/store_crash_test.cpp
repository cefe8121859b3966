#include "store/rocksdb_store.hpp"
#include "tests/catch.hpp"
#include "tests/live_copy.hpp"
#include "tests/unit/store_faults.hpp"
#include "tests/unit/store_support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <spawn.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace store_crash_test {

// The contents of a store after the loss of its process, power or disk at any moment.

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// The workload: step n puts three pages and erases the three of step n - `kept`, in one batch. The contents show
/// exactly which steps are in the store and whether a step was torn.
constexpr std::uint64_t pages_per_step = 3;
constexpr std::uint64_t kept = 16;

bool erases(std::uint64_t step) {
  return step > kept;
}

write_batch step_batch(std::uint64_t step) {
  write_batch batch;
  for (std::uint64_t i = 0; i < pages_per_step; ++i) {
    batch.put(page_number(step * pages_per_step + i, 0, {static_cast<slot_number>(step), 1}));
    if (erases(step))
      batch.erase_page(namespace_number(1), key_number((step - kept) * pages_per_step + i), 0);
  }
  return batch;
}

/// The last step that is in the store; steps count from 1. Ends the test if the pages are not those of all steps up
/// to there and of no other.
std::uint64_t last_step(metadata_store& store) {
  loaded found;
  load_all(store, found);
  std::uint64_t last = 0;
  for (const auto& page : found.pages)
    last = std::max(last, page.key.lo / pages_per_step);
  const auto first = erases(last) ? last - kept + 1 : 1;
  REQUIRE(found.pages.size() == (last == 0 ? 0 : (last - first + 1) * pages_per_step));
  for (const auto& page : found.pages) {
    const auto step = page.key.lo / pages_per_step;
    REQUIRE(step >= first);
    REQUIRE(page == page_number(page.key.lo, 0, {static_cast<slot_number>(step), 1}));
  }
  return last;
}

/// Commits the steps from `next` on and notes the last one that was answered. Has to outlive the store.
class stepper {
public:
  /// Batches before `next` count as answered.
  explicit stepper(std::uint64_t next) : next_(next), answered_(next - 1) {}

  /// False if the store refuses.
  bool commit(metadata_store& store) {
    auto taken = store.commit(step_batch(next_), [this, n = next_](result<void> answer) {
      if (!answer)
        return;
      answered_ = n;
      if (erases(n))
        answered_erase_ = n;
    });
    next_ += taken ? 1 : 0;
    return taken.has_value();
  }

  std::uint64_t committed() const { return next_ - 1; }
  std::uint64_t answered() const { return answered_; }
  std::uint64_t answered_erase() const { return answered_erase_; }

private:
  std::uint64_t next_;
  std::atomic<std::uint64_t> answered_;
  std::atomic<std::uint64_t> answered_erase_ = 0;
};

void barrier(metadata_store& store) {
  REQUIRE(commit_now(store, {}));
}

fs::path only_log(const fs::path& directory) {
  std::vector<fs::path> logs;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".log")
      logs.push_back(entry.path());
  REQUIRE(logs.size() == 1);
  return logs.front();
}

constexpr const char* child_directory = "TROUPE_TEST_STORE_DIRECTORY";
constexpr const char* child_level = "TROUPE_TEST_STORE_LEVEL";
constexpr const char* child_next = "TROUPE_TEST_STORE_NEXT";
constexpr int child_report = 3;

/// This program once more, which runs the hidden test below.
class child {
public:
  child(const fs::path& directory, durability level, std::uint64_t next) {
    auto ends = make_pipe();
    std::vector<std::string> variables{std::string(child_directory) + "=" + directory.string(),
                                       std::string(child_level) + "=" + (level == durability::strict ? "s" : "r"),
                                       std::string(child_next) + "=" + std::to_string(next)};
    std::vector<char*> environment;
    for (auto** at = environ; *at != nullptr; ++at)
      environment.push_back(*at);
    for (auto& variable : variables)
      environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string tag = "[.store-child]";
    std::array<char*, 3> arguments{program.data(), tag.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends.write_end.get(), child_report);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const auto failed = ::posix_spawn(&id_, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(failed == 0);
    report_ = std::move(ends.read_end);
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    if (id_ > 0)
      kill();
  }

  /// The next step that was answered, or nothing if there are no more.
  std::optional<std::uint64_t> next_answer() {
    std::uint64_t step = 0;
    const auto got = ::read(report_.get(), &step, sizeof step);
    return got == static_cast<ssize_t>(sizeof step) ? std::optional(step) : std::nullopt;
  }

  void kill() {
    ::kill(id_, SIGKILL);
    int status = 0;
    ::waitpid(std::exchange(id_, -1), &status, 0);
  }

private:
  pid_t id_ = -1;
  unique_descriptor report_;
};

} // namespace

// The child process that the other test kills. It ends by itself if it is not killed.
TEST_CASE("store crash: the store that is killed", "[.store-child]") {
  const auto* const directory = std::getenv(child_directory);
  if (directory == nullptr)
    return;
  auto options = options_for(directory);
  options.level = *std::getenv(child_level) == 's' ? durability::strict : durability::relaxed;
  options.sync_interval = std::chrono::milliseconds(1);
  const auto store = open_store(options);
  const auto next = std::strtoull(std::getenv(child_next), nullptr, 10);
  for (std::uint64_t step = next; step < next + 100'000; ++step) {
    auto batch = step_batch(step);
    const auto report = [step](result<void> answer) {
      if (answer && ::write(child_report, &step, sizeof step) != static_cast<ssize_t>(sizeof step))
        std::_Exit(1); // the parent has died
    };
    while (!store->commit(std::move(batch), report))
      std::this_thread::yield();
  }
}

TEST_CASE("store crash: kill -9 at any moment loses no acknowledged batch and tears none", "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  scratch_directory directory;
  std::uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    INFO("round " << round);
    const auto level = round % 2 == 0 ? durability::strict : durability::relaxed;
    std::uint64_t answered = last;
    {
      child writer(directory.path(), level, last + 1);
      const auto enough = random() % (level == durability::strict ? 40 : 300);
      for (std::uint64_t i = 0; i < enough; ++i) {
        const auto step = writer.next_answer();
        REQUIRE(step == answered + 1);
        answered = *step;
      }
      writer.kill();
      // Answers before its death count.
      while (const auto step = writer.next_answer())
        answered = *step;
    }
    const auto store = open_store(options_for(directory.path(), level));
    last = last_step(*store);
    CHECK(last >= answered);
    // There is one run for each start of the child that came so far, and for each start here.
    CHECK(store->identity().run >= static_cast<std::uint64_t>(round + 1));
  }
}

TEST_CASE("store crash: a power loss reverts nothing that strict has acknowledged", "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  scratch_directory directory;
  std::uint64_t last = 0;
  auto current = directory / "0";
  for (int round = 1; round <= 20; ++round) {
    INFO("round " << round);
    faulty_environment faults;
    auto options = options_for(current);
    options.env = faults.env();
    stepper steps(last + 1);
    const auto store = open_store(options);
    CHECK(last_step(*store) == last);
    const auto enough = last + random() % 40;
    while (steps.committed() < enough || steps.answered() + 3 < enough)
      if (steps.committed() >= enough || !steps.commit(*store))
        std::this_thread::yield();
    const auto answered = steps.answered();
    const auto next = directory / std::to_string(round);
    faults.files().copy_as_after_power_loss(current, next, random);
    const auto after = open_store(options_for(next));
    last = last_step(*after);
    CHECK(last >= answered);
    CHECK(last <= steps.committed());
    current = next;
  }
}

TEST_CASE("store crash: a power loss reverts only the newest batches of relaxed, and no acknowledged erase",
          "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  bool lost_any = false;
  for (int round = 0; round < 20; ++round) {
    INFO("round " << round);
    scratch_directory directory;
    faulty_environment faults;
    auto options = options_for(directory / "live", durability::relaxed);
    options.sync_interval = std::chrono::hours(1);
    options.env = faults.env();
    stepper steps(1);
    const auto store = open_store(options);
    const auto enough = 1 + random() % (2 * kept);
    while (steps.committed() < enough)
      REQUIRE(steps.commit(*store));
    barrier(*store);
    CHECK(steps.answered() == enough);
    faults.files().copy_as_after_power_loss(directory / "live", directory / "after", random);
    const auto after = open_store(options_for(directory / "after"));
    // It may be any earlier state, as long as no page comes back whose slot was reassigned.
    const auto last = last_step(*after);
    CHECK(last >= steps.answered_erase());
    CHECK(last <= enough);
    lost_any = lost_any || last < enough;
  }
  CHECK(lost_any); // or the loss was none, and nothing was tested
}

TEST_CASE("store crash: strict syncs before it answers, and relaxed only on request", "[store][crash]") {
  scratch_directory directory;
  faulty_environment faults;
  auto options = options_for(directory.path(), GENERATE(durability::strict, durability::relaxed));
  options.sync_interval = std::chrono::hours(1);
  options.env = faults.env();
  const auto store = open_store(options);
  const auto before = faults.files().log_syncs();
  CHECK(before >= 1); // the number of the run
  write_batch batch;
  batch.put(page_number(1));
  REQUIRE(commit_now(*store, std::move(batch)));
  const std::uint64_t first = options.level == durability::strict ? 1 : 0;
  CHECK(faults.files().log_syncs() == before + first);
  batch.erase_page(namespace_number(1), key_number(1), 0);
  REQUIRE(commit_now(*store, std::move(batch)));
  CHECK(faults.files().log_syncs() == before + first + 1);
  CHECK(store->stats().syncs == first + 1);
}

TEST_CASE("store crash: a torn log keeps every batch before the tear whole, and nothing after it", "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  scratch_directory directory;
  constexpr std::uint64_t steps = 60;
  std::vector<std::uintmax_t> size_after{0};
  {
    const auto store = open_store(options_for(directory / "live", durability::relaxed));
    size_after[0] = fs::file_size(only_log(directory / "live"));
    for (std::uint64_t n = 1; n <= steps; ++n) {
      REQUIRE(commit_now(*store, step_batch(n)));
      size_after.push_back(fs::file_size(only_log(directory / "live")));
    }
    copy_live(directory / "live", directory / "image");
  }
  for (int round = 0; round < 40; ++round) {
    const auto torn = directory / "torn";
    fs::remove_all(torn);
    fs::copy(directory / "image", torn);
    const auto log = only_log(torn);
    const auto cut = size_after[0] + random() % (size_after.back() - size_after[0] + 1);
    const bool garbage = random() % 2 == 0;
    INFO("round " << round << ", cut at " << cut << (garbage ? ", then garbage" : ""));
    fs::resize_file(log, cut);
    if (garbage) {
      std::ofstream out(log, std::ios::binary | std::ios::app);
      for (auto n = 1 + random() % 5000; n > 0; --n)
        out.put(static_cast<char>(random()));
    }
    const auto whole = std::ranges::upper_bound(size_after, cut) - size_after.begin() - 1;
    const auto store = open_store(torn);
    CHECK(last_step(*store) == static_cast<std::uint64_t>(whole));
    // The store continues from there.
    REQUIRE(commit_now(*store, step_batch(static_cast<std::uint64_t>(whole) + 1)));
    CHECK(last_step(*store) == static_cast<std::uint64_t>(whole) + 1);
  }
}

TEST_CASE("store crash: a full disk is waited for, and a batch torn by it is neither read nor in the way",
          "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  faulty_environment faults;
  stepper steps(1);
  auto options = options_for(directory.path(), level);
  options.env = faults.env();
  options.first_pause = std::chrono::milliseconds(1);
  auto store = open_store(options);
  for (int round = 0; round < 8; ++round) {
    for (auto more = 1 + random() % 20; more > 0; --more)
      REQUIRE(steps.commit(*store));
    // There is none where the barrier would be alone in the log: then no data is in memory that could be written again.
    if (random() % 4 != 0)
      barrier(*store);
    faults.files().fail_log_writes(rocksdb::IOStatus::NoSpace("injected"), random() % 200);
    REQUIRE(steps.commit(*store));
    REQUIRE(eventually([&] { return store->stats().no_room.has_value(); }));
    faults.files().heal();
    barrier(*store);
    CHECK(steps.answered() == steps.committed());
    CHECK_FALSE(store->stats().no_room.has_value());
    CHECK(last_step(*store) == steps.committed());
  }
  CHECK_FALSE(store->stats().failure.has_value());
  REQUIRE(store->close());
  store.reset();
  CHECK(last_step(*open_store(directory.path())) == steps.committed());
}

TEST_CASE("store crash: a store that ends while its disk is full reports it and has what it acknowledged",
          "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const bool killed = GENERATE(false, true);
  scratch_directory directory;
  scratch_directory copies;
  const auto left = killed ? copies.path() / "killed" : directory.path();
  faulty_environment faults;
  stepper steps(1);
  {
    auto options = options_for(directory.path());
    options.env = faults.env();
    options.first_pause = std::chrono::hours(1);
    const auto store = open_store(options);
    REQUIRE(steps.commit(*store));
    barrier(*store);
    faults.files().fail_log_writes(rocksdb::IOStatus::NoSpace("injected"), random() % 200);
    REQUIRE(steps.commit(*store));
    REQUIRE(eventually([&] { return store->stats().no_room.has_value(); }));
    if (killed)
      copy_live(directory.path(), left);
    const auto closed = store->close();
    REQUIRE_FALSE(closed);
    CHECK(closed.error().code == errc::no_space);
    CHECK(steps.answered() == 1);
  }
  faults.files().heal();
  const auto last = last_step(*open_store(left));
  CHECK(last >= 1);
  CHECK(last <= 2);
}

TEST_CASE("store crash: a broken disk stops the store, and acknowledged batches are still there", "[store][crash]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto fault = GENERATE(range(1, 3));
  scratch_directory directory;
  faulty_environment faults;
  std::uint64_t answered = 0;
  std::uint64_t committed = 0;
  {
    auto options = options_for(directory.path(), fault == 2 ? durability::strict : durability::relaxed);
    options.env = faults.env();
    stepper steps(1);
    const auto store = open_store(options);
    while (steps.committed() < 30)
      REQUIRE(steps.commit(*store));
    barrier(*store);
    if (fault == 1)
      faults.files().fail_log_writes(rocksdb::IOStatus::IOError("injected"), random() % 200);
    else
      faults.files().fail_log_syncs(rocksdb::IOStatus::IOError("injected"));
    const auto failed = commit_now(*store, step_batch(31));
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == errc::io_error);
    CHECK(missing(failed.error().text, {directory.path().string(), "opened anew"}).empty());
    // The disk is well again. A batch that it takes now would come after a gap.
    faults.files().heal();
    const auto later = commit_now(*store, step_batch(32));
    REQUIRE_FALSE(later);
    CHECK(later.error().text == failed.error().text);
    REQUIRE(store->stats().failure.has_value());
    answered = steps.answered();
    committed = 31;
    CHECK(answered == 30);
    CHECK_FALSE(store->close());
    CHECK_FALSE(store->close());
  }
  const auto store = open_store(directory.path());
  const auto last = last_step(*store);
  CHECK(last >= answered);
  CHECK(last <= committed);
  REQUIRE(commit_now(*store, step_batch(last + 1)));
}

} // namespace store_crash_test
