#include "tests/usrbio/stand_in/layout.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

/// The stand-in for 3FS's daemon: serves rings from a plain directory. `troupe-usrbio-daemon DIRECTORY`; prints
/// "ready". It ends by a signal. For tests only.

namespace {

namespace fs = std::filesystem;
using namespace troupe::test::stand_in;

constexpr std::uint64_t batch_most = 32;
constexpr int worker_count = 4;
constexpr std::uint64_t forbid_holes = 2;

control* faults = nullptr;
fs::path root;

struct ring {
  std::string name;
  ring_view view;
  std::size_t bytes = 0;
  std::mutex posting;
  std::int32_t process = 0;

  ~ring() { ::munmap(view.header, bytes); }
};

struct memory {
  std::byte* at = nullptr;
  std::size_t size = 0;
  std::uint64_t block_bytes = 0;

  ~memory() { ::munmap(at, size); }
};

struct transfer {
  ring_args args;
  ring_submission submission;
};

struct job {
  std::shared_ptr<ring> of;
  std::vector<transfer> transfers;
};

/// Maps a file of shared memory as it is.
std::pair<void*, std::size_t> map_file(const fs::path& path) {
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (opened < 0 || ::fstat(opened, &status) != 0)
    return {nullptr, 0};
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  ::close(opened);
  return {at == MAP_FAILED ? nullptr : at, bytes};
}

/// The objects with names below 3fs-virt/iovs.
class registry {
public:
  void scan() {
    std::error_code ignored;
    std::set<std::string> seen;
    for (const auto& x : fs::directory_iterator(root / "3fs-virt/iovs", ignored)) {
      const auto name = x.path().filename().string();
      seen.insert(name);
      if (name.find(".r") == std::string::npos && name.find(".w") == std::string::npos)
        continue;
      std::lock_guard guard(mutex_);
      if (rings_.count(name) == 0)
        add_ring(name, x.path());
    }
    std::lock_guard guard(mutex_);
    for (auto at = rings_.begin(); at != rings_.end();) {
      // A ring that has no name any more, or whose process has ended.
      const bool gone = ::kill(at->second->process, 0) != 0 && errno == ESRCH;
      if (gone)
        fs::remove(root / "3fs-virt/iovs" / at->first, ignored);
      at = gone || seen.count(at->first) == 0 ? rings_.erase(at) : std::next(at);
    }
    faults->rings_live = rings_.size();
    for (auto at = memories_.begin(); at != memories_.end();) {
      const bool named = std::any_of(seen.begin(), seen.end(),
                                     [&](const auto& name) { return plain(name).compare(0, 32, at->first) == 0; });
      at = named ? std::next(at) : memories_.erase(at);
    }
  }

  std::vector<std::shared_ptr<ring>> rings(int priority) {
    std::lock_guard guard(mutex_);
    std::vector<std::shared_ptr<ring>> out;
    for (const auto& [name, x] : rings_)
      if ((x->view.header->priority > 0) - (x->view.header->priority < 0) == priority)
        out.push_back(x);
    return out;
  }

  std::shared_ptr<memory> find(const std::array<std::uint8_t, 16>& id) {
    const auto wanted = plain(to_text(id.data()));
    std::lock_guard guard(mutex_);
    if (const auto found = memories_.find(wanted); found != memories_.end())
      return found->second;
    std::error_code ignored;
    for (const auto& x : fs::directory_iterator(root / "3fs-virt/iovs", ignored)) {
      const auto name = plain(x.path().filename().string());
      if (name.compare(0, 32, wanted) != 0)
        continue;
      const auto target = fs::canonical(x.path(), ignored);
      if (target.parent_path() != "/dev/shm")
        return nullptr;
      const auto [at, bytes] = map_file(target);
      if (at == nullptr)
        return nullptr;
      auto made = std::make_shared<memory>();
      made->at = static_cast<std::byte*>(at);
      made->size = bytes;
      if (const auto block = name.find(".b"); block != std::string::npos)
        made->block_bytes = std::stoull(name.substr(block + 2));
      memories_[wanted] = made;
      return made;
    }
    return nullptr;
  }

private:
  void add_ring(const std::string& name, const fs::path& link) {
    std::error_code failed;
    const auto [at, bytes] = map_file(fs::read_symlink(link, failed));
    if (at == nullptr)
      return;
    auto made = std::make_shared<ring>();
    made->name = name;
    made->view.header = static_cast<ring_header*>(at);
    made->bytes = bytes;
    made->process = made->view.header->process;
    rings_[name] = made;
    faults->rings_live = rings_.size();
    made->view.header->attached = 1;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ring>> rings_;
  std::map<std::string, std::shared_ptr<memory>> memories_;
};

registry known;

/// Files by their number, opened once. One that is open keeps its number, so none is another one's.
class file_table {
public:
  int find(std::uint64_t inode) {
    std::lock_guard guard(mutex_);
    if (const auto found = open_.find(inode); found != open_.end())
      return found->second;
    const auto path = root / files_name / std::to_string(inode);
    int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (opened < 0)
      opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (opened >= 0 && (::fstat(opened, &status) != 0 || status.st_ino != inode)) {
      ::close(opened);
      return -1;
    }
    if (opened >= 0)
      open_[inode] = opened;
    return opened;
  }

private:
  std::mutex mutex_;
  std::map<std::uint64_t, int> open_;
};

file_table table;

/// Jobs that wait for a worker, as many as the real one lets wait.
class job_queue {
public:
  void put(job x) {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [this] { return jobs_.size() < 1024; });
    jobs_.push_back(std::move(x));
    changed_.notify_all();
  }

  job take() {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [this] { return !jobs_.empty(); });
    auto out = std::move(jobs_.front());
    jobs_.pop_front();
    changed_.notify_all();
    return out;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> jobs_;
};

job_queue waiting;

std::atomic<std::uint64_t> transfer_count{0};

bool every(std::uint32_t n, std::uint64_t number) {
  return n != 0 && number % n == 0;
}

bool has_hole(int file, std::uint64_t offset, std::uint64_t length) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || offset >= static_cast<std::uint64_t>(status.st_size))
    return false;
  const auto end = std::min(offset + length, static_cast<std::uint64_t>(status.st_size));
  const auto hole = ::lseek(file, static_cast<off_t>(offset), SEEK_HOLE);
  return hole >= 0 && static_cast<std::uint64_t>(hole) < end;
}

bool overlap(const ring_args& a, const ring_args& b) {
  return a.memory == b.memory && a.memory_offset < b.memory_offset + b.length &&
         b.memory_offset < a.memory_offset + a.length;
}

std::int64_t carry_out(const job& x, std::size_t which, std::shared_ptr<memory>& last, const ring_args*& last_args) {
  const auto& header = *x.of->view.header;
  const auto& args = x.transfers[which].args;
  const bool reads = header.for_read != 0;
  const auto number = ++transfer_count;
  if (every(faults->fail_every, number))
    return -faults->fail_with.load();
  if (last_args == nullptr || last_args->memory != args.memory) {
    last = known.find(args.memory);
    last_args = &args;
  }
  if (!last)
    return -ENOENT;
  if (args.memory_offset > last->size || args.length > last->size - args.memory_offset) {
    ++faults->out_of_bounds;
    return -EINVAL;
  }
  if (last->block_bytes != 0 &&
      args.memory_offset / last->block_bytes != (args.memory_offset + args.length - 1) / last->block_bytes) {
    ++faults->across_blocks;
    return -EINVAL;
  }
  if (reads)
    for (std::size_t i = 0; i < which; ++i)
      if (overlap(x.transfers[i].args, args))
        return -EINVAL;
  const auto file = table.find(args.file);
  if (file < 0)
    return -ENOENT;
  if (const auto pause = faults->delay_microseconds.load(); pause != 0)
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
  auto* const data = last->at + args.memory_offset;
  auto length = args.length;
  if (every(faults->short_every, number) && length > 1)
    length = length / 2;
  const auto at = static_cast<off_t>(args.file_offset);
  if (reads && (header.flags & forbid_holes) == 0)
    ++faults->reads_of_holes_allowed;
  if (reads && (header.flags & forbid_holes) != 0 && has_hole(file, args.file_offset, length))
    return -EIO;
  std::int64_t done = 0;
  while (done < static_cast<std::int64_t>(length)) {
    const auto left = length - static_cast<std::uint64_t>(done);
    const auto moved =
        reads ? ::pread(file, data + done, left, at + done) : ::pwrite(file, data + done, left, at + done);
    if (moved < 0)
      return done != 0 ? done : -errno;
    if (moved == 0)
      break;
    done += moved;
  }
  (reads ? faults->reads : faults->writes).fetch_add(1, std::memory_order_relaxed);
  faults->copied_bytes.fetch_add(static_cast<std::uint64_t>(done), std::memory_order_relaxed);
  return done;
}

void post(ring& of, const ring_completion& what) {
  std::lock_guard guard(of.posting);
  auto& header = *of.view.header;
  const auto head = header.completion_head.load(std::memory_order_relaxed);
  of.view.completions()[head % of.view.completion_places()] = what;
  header.completion_head.store(head + 1, std::memory_order_release);
  ::sem_post(&header.completed);
}

void work() {
  std::mt19937 random(std::random_device{}());
  for (;;) {
    auto x = waiting.take();
    const bool reorders = faults->reorder != 0;
    if (reorders && random() % 2 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    while (faults->stalled != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<ring_completion> results;
    std::shared_ptr<memory> last;
    const ring_args* last_args = nullptr;
    for (std::size_t i = 0; i < x.transfers.size(); ++i) {
      const auto& submission = x.transfers[i].submission;
      results.push_back({submission.index, carry_out(x, i, last, last_args), submission.userdata});
    }
    if (reorders)
      std::shuffle(results.begin(), results.end(), random);
    for (const auto& result : results) {
      const auto& header = *x.of->view.header;
      const bool has_room = header.completion_head - header.completion_tail < x.of->view.places();
      if (has_room && every(faults->stray_every, transfer_count + static_cast<std::uint64_t>(result.index)))
        post(*x.of, {-1, 4096, reinterpret_cast<const void*>(~std::uintptr_t{0} >> 2U)});
      post(*x.of, result);
    }
  }
}

/// Takes what lies in a ring; false if that is nothing, or too little for its depth.
bool cut(const std::shared_ptr<ring>& of) {
  auto& header = *of->view.header;
  const auto tail = header.submission_tail.load(std::memory_order_relaxed);
  const auto there = header.submission_head.load(std::memory_order_acquire) - tail;
  if (there == 0)
    return false;
  auto count = std::min(there, batch_most);
  if (header.io_depth > 0) {
    if (there < static_cast<std::uint64_t>(header.io_depth))
      return false;
    count = static_cast<std::uint64_t>(header.io_depth);
  } else if (header.io_depth < 0) {
    const auto most = static_cast<std::uint64_t>(-header.io_depth);
    if (header.timeout > 0 && there < most)
      return false; // its time never comes: the real one looks at the clock anew each time
    count = std::min(count, most);
  }
  job out{of, {}};
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto& submission = of->view.submissions()[(tail + i) % of->view.places()];
    out.transfers.push_back({of->view.args()[submission.index], submission});
  }
  header.submission_tail.store(tail + count, std::memory_order_release);
  ++faults->batches;
  if (faults->largest_batch < count)
    faults->largest_batch = count;
  waiting.put(std::move(out));
  return true;
}

void watch(sem_t* submitted, int priority) {
  for (;;) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1'000'000;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    if (::sem_timedwait(submitted, &until) != 0)
      continue; // no ring is read without a notification
    for (bool more = true; more;) {
      more = false;
      for (const auto& x : known.rings(priority))
        more = cut(x) || more;
    }
  }
}

bool become_the_one() {
  const int opened = ::open((root / alive_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  return opened >= 0 && ::flock(opened, LOCK_EX | LOCK_NB) == 0; // kept until the process ends
}

bool prepare() {
  std::error_code ignored;
  fs::create_directories(root / files_name, ignored);
  const auto control_path = root / control_name;
  if (!fs::exists(control_path)) {
    const auto making = root / ".control.new";
    const int made = ::open(making.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0 || ::ftruncate(made, sizeof(control)) != 0)
      return false;
    ::close(made);
    fs::rename(making, control_path);
  }
  faults = map_control(root);
  if (faults == nullptr)
    return false;
  ++faults->daemons;
  faults->rings_live = 0;
  // The state of an earlier daemon is lost, as its mount is.
  for (int priority = -1; priority <= 1; ++priority)
    fs::remove(fs::read_symlink(root / "3fs-virt/iovs" / (std::string("submit-ios") + suffix_of(priority)), ignored),
               ignored);
  const auto old = root / (".old-" + std::to_string(::getpid()));
  fs::rename(root / "3fs-virt", old, ignored);
  fs::remove_all(old, ignored);
  fs::create_directories(root / ".virt-new/iovs");
  return true;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: troupe-usrbio-daemon DIRECTORY\n";
    return 2;
  }
  root = fs::canonical(argv[1]);
  ::signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (!become_the_one() || !prepare()) {
    std::cerr << "troupe-usrbio-daemon: cannot serve " << root << '\n';
    return 1;
  }
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  for (int priority = -1; priority <= 1; ++priority) {
    const auto name = "usrbio-" + std::to_string(::getpid()) + suffix_of(priority);
    ::sem_unlink(("/" + name).c_str()); // left by a daemon that was killed, whose number this process has now
    sem_t* const submitted = ::sem_open(("/" + name).c_str(), O_CREAT | O_EXCL, 0600, 0);
    if (submitted == SEM_FAILED) {
      std::cerr << "troupe-usrbio-daemon: cannot make the semaphore " << name << ": " << std::strerror(errno) << '\n';
      return 1;
    }
    fs::create_symlink("/dev/shm/sem." + name,
                       root / ".virt-new/iovs" / (std::string("submit-ios") + suffix_of(priority)));
    std::thread(watch, submitted, priority).detach();
  }
  for (int i = 0; i < worker_count; ++i)
    std::thread(work).detach();
  fs::rename(root / ".virt-new", root / "3fs-virt");
  std::thread([] {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      known.scan();
  }).detach();
  std::cout << "ready" << std::endl;
  int got = 0;
  ::sigwait(&ending, &got);
  for (int priority = -1; priority <= 1; ++priority)
    ::sem_unlink(("/usrbio-" + std::to_string(::getpid()) + suffix_of(priority)).c_str());
  ::_exit(0);
}
