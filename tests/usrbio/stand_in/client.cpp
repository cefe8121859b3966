#include "io/usrbio/client_interface.hpp"
#include "tests/usrbio/stand_in/layout.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

/// The stand-in for 3FS's client library: the same functions, with the limits and the defects that are known of the
/// real one, over a plain directory and a daemon that is `daemon.cpp`. For tests only.

namespace {

namespace fs = std::filesystem;
using namespace troupe::io::usrbio;
using namespace troupe::test::stand_in;

struct registered_file {
  int descriptor = -1;
  int duplicate = -1;
  std::uint64_t inode = 0;
  int flags = 0;
  /// Which daemon it was registered with.
  std::uint64_t daemon = 0;
};

struct shared_block {
  std::string name;
  void* at = nullptr;
  std::size_t bytes = 0;
};

struct ring_handle {
  ring_view view;
  sem_t* submit = nullptr;
  control* faults = nullptr;
  std::mutex mutex;
  std::vector<std::int32_t> slots;
};

std::uint64_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max;
}

/// As large as the real one's, which has an entry for each descriptor that this process could ever open.
const std::uint64_t table_size = descriptor_limit();
std::mutex files_mutex;
std::map<int, registered_file> files;

std::mutex mounts_mutex;
std::map<std::string, control*> mounts;
std::map<std::string, int> mount_descriptors;

control* control_of(const std::string& mount_point) {
  std::lock_guard guard(mounts_mutex);
  auto& found = mounts[mount_point];
  if (found == nullptr)
    found = map_control(mount_point);
  if (found != nullptr)
    found->descriptor_table = table_size;
  return found;
}

/// Whether a daemon serves it: a daemon holds a lock for as long as it lives.
bool is_served(const fs::path& mount_point) {
  const int opened = ::open((mount_point / alive_name).c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0)
    return false;
  const bool is_free = ::flock(opened, LOCK_SH | LOCK_NB) == 0;
  ::close(opened);
  return !is_free;
}

/// Empty where the path is below no mount point.
fs::path mount_of(fs::path path) {
  std::error_code ignored;
  for (; !path.empty(); path = path.parent_path()) {
    if (fs::exists(path / control_name, ignored))
      return path;
    if (path == path.root_path())
      break;
  }
  return {};
}

fs::path path_of(int descriptor) {
  std::error_code failed;
  auto out = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
  return failed ? fs::path{} : out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::array<std::uint8_t, 16> random_id() {
  std::random_device random;
  std::array<std::uint8_t, 16> out{};
  for (auto& b : out)
    b = static_cast<std::uint8_t>(random());
  return out;
}

void* map_new(const std::string& name, std::size_t bytes) {
  const int made = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made < 0)
    return nullptr;
  void* at = MAP_FAILED;
  if (::ftruncate(made, static_cast<off_t>(bytes)) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
  ::close(made);
  return at == MAP_FAILED ? nullptr : at;
}

std::string link_of(const iov& x, const std::string& rest) {
  return std::string(x.mount_point) + "/3fs-virt/iovs/" + to_text(reinterpret_cast<const std::uint8_t*>(x.id)) +
         (x.block_size != 0 ? ".b" + std::to_string(x.block_size) : "") + rest;
}

// The real one keeps it open for as long as the process lives, whatever becomes of the mount.
int hold_mount(const char* mount_point) {
  if (!is_served(mount_point))
    return -ENOTCONN;
  std::lock_guard guard(mounts_mutex);
  if (mount_descriptors.count(mount_point) != 0)
    return 0;
  const int opened = ::open((std::string(mount_point) + "/3fs-virt/iovs").c_str(), O_DIRECTORY | O_CLOEXEC);
  if (opened < 0)
    return -errno;
  mount_descriptors[mount_point] = opened;
  return 0;
}

int make_iov(iov* out, const char* mount_point, std::size_t size, std::size_t block_size, int numa,
             const std::string& rest) {
  if (out == nullptr || mount_point == nullptr || *mount_point == 0 || std::strlen(mount_point) >= 256)
    return -EINVAL;
  if (const int held = hold_mount(mount_point); held < 0)
    return held;
  const auto id = random_id();
  *out = {};
  std::memcpy(out->id, id.data(), id.size());
  std::strcpy(out->mount_point, mount_point);
  out->size = size;
  out->block_size = block_size;
  out->numa = numa;
  auto* const block = new shared_block{"/hf3fs-iov-" + to_text(id.data()), nullptr, size};
  block->at = map_new(block->name, size);
  if (block->at == nullptr) {
    delete block;
    return -EIO;
  }
  if (::symlink(("/dev/shm" + block->name).c_str(), link_of(*out, rest).c_str()) != 0) {
    const int code = errno;
    ::munmap(block->at, size);
    ::shm_unlink(block->name.c_str());
    delete block;
    return -code;
  }
  out->base = static_cast<std::uint8_t*>(block->at);
  out->handle = block;
  return 0;
}

void end_iov(iov* what, const std::string& rest) {
  auto* const block = static_cast<shared_block*>(what->handle);
  ::unlink(link_of(*what, rest).c_str());
  ::shm_unlink(block->name.c_str());
  ::munmap(block->at, block->bytes);
  delete block;
  what->handle = nullptr;
}

std::string ring_suffix(bool for_read, int io_depth, int priority, int timeout, const std::string& flags) {
  return std::string(for_read ? ".r" : ".w") + std::to_string(io_depth) + suffix_of(priority) + ".t" +
         std::to_string(timeout) + (flags.empty() ? "" : ".f" + flags);
}

int make_ring(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int priority, int timeout,
              int numa, std::uint64_t flags) {
  if (out == nullptr || mount_point == nullptr || entries <= 0 || timeout < 0)
    return -EINVAL;
  auto* const faults = control_of(mount_point);
  if (faults == nullptr)
    return -ENOENT;
  ++faults->rings_asked;
  if (io_depth != 0 || timeout != 0)
    ++faults->odd_rings;
  if (faults->refuse_rings != 0)
    return -EACCES;
  // The semaphore first: a link to a file of /dev/shm.
  std::error_code failed;
  const auto target =
      fs::read_symlink(std::string(mount_point) + "/3fs-virt/iovs/submit-ios" + suffix_of(priority), failed);
  if (failed)
    return is_served(mount_point) ? -failed.value() : -ENOTCONN;
  *out = {};
  const auto count = static_cast<std::uint64_t>(entries);
  const auto suffix = ring_suffix(for_read, io_depth, priority, timeout, flags == 0 ? "" : in_binary(flags));
  // Written before the daemon may look at it, as its name is linked last.
  const auto made = make_iov(&out->memory, mount_point, ring_view::bytes(count), 0, numa, ".making");
  if (made < 0)
    return made;
  auto* const header = static_cast<ring_header*>(static_cast<void*>(out->memory.base));
  header->entries = static_cast<std::uint32_t>(entries);
  header->for_read = for_read ? 1 : 0;
  header->io_depth = io_depth;
  header->priority = priority;
  header->timeout = timeout;
  header->flags = flags;
  header->process = ::getpid();
  ::sem_init(&header->completed, 1, 0);
  const auto& block = *static_cast<shared_block*>(out->memory.handle);
  ::unlink(link_of(out->memory, ".making").c_str());
  if (::symlink(("/dev/shm" + block.name).c_str(), link_of(out->memory, suffix).c_str()) != 0) {
    const int code = errno;
    end_iov(&out->memory, suffix);
    return -code;
  }
  for (int i = 0; i < 60'000 && header->attached == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (header->attached == 0) {
    end_iov(&out->memory, suffix);
    return -EIO;
  }
  ::shm_unlink(block.name.c_str()); // the daemon has it
  auto* const handle = new ring_handle;
  handle->view.header = header;
  handle->faults = faults;
  handle->submit = ::sem_open(("/" + target.filename().string().substr(4)).c_str(), 0);
  if (handle->submit == SEM_FAILED) {
    const int code = errno;
    delete handle;
    end_iov(&out->memory, suffix);
    return -code;
  }
  for (auto i = entries; i-- > 0;)
    handle->slots.push_back(i);
  out->handle = handle;
  std::strcpy(out->mount_point, mount_point);
  out->for_read = for_read;
  out->io_depth = io_depth;
  out->priority = priority;
  out->timeout = timeout;
  out->flags = flags;
  return 0;
}

} // namespace

#define STAND_IN extern "C" [[gnu::visibility("default")]]

STAND_IN bool hf3fs_is_hf3fs(int descriptor) {
  const auto path = path_of(descriptor);
  if (path.empty() || ends_with(path.string(), " (deleted)"))
    return false;
  const auto place = mount_of(path);
  if (place.empty() || !is_served(place))
    return false;
  const auto* const faults = control_of(place);
  if (faults == nullptr || faults->lose_descriptors == 0)
    return true;
  std::lock_guard guard(files_mutex);
  const auto found = files.find(descriptor);
  return found == files.end() || found->second.daemon == faults->daemons;
}

STAND_IN int hf3fs_extract_mount_point(char* out, int size, const char* path) {
  std::error_code failed;
  const auto place = mount_of(fs::canonical(path, failed));
  if (failed || place.empty() || !is_served(place))
    return -1;
  const auto text = place.string();
  if (static_cast<int>(text.size()) < size)
    std::strcpy(out, text.c_str());
  return static_cast<int>(text.size()) + 1;
}

STAND_IN int hf3fs_iovcreate(iov* out, const char* mount_point, std::size_t size, std::size_t block_size, int numa) {
  auto* const faults = control_of(mount_point);
  if (faults == nullptr)
    return -ENOENT;
  if (faults->refuse_iovs != 0)
    return -ENOMEM;
  const auto made = make_iov(out, mount_point, size, block_size, numa, "");
  if (made == 0)
    ++faults->iovs_created;
  return made;
}

STAND_IN int hf3fs_iovopen(iov* out, const std::uint8_t* id, const char* mount_point, std::size_t size,
                           std::size_t block_size, int numa) {
  *out = {};
  std::memcpy(out->id, id, 16);
  std::strcpy(out->mount_point, mount_point);
  out->size = size;
  out->block_size = block_size;
  out->numa = numa;
  std::error_code failed;
  const auto target = fs::canonical(link_of(*out, ""), failed);
  if (failed)
    return -failed.value();
  if (target.parent_path() != "/dev/shm")
    return -EINVAL;
  const auto name = "/" + target.filename().string();
  const int opened = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (opened < 0)
    return -errno;
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  ::close(opened);
  if (at == MAP_FAILED)
    return -EIO;
  out->base = static_cast<std::uint8_t*>(at);
  out->handle = new shared_block{name, at, size};
  return 0;
}

STAND_IN void hf3fs_iovunlink(iov* what) {
  if (what != nullptr && what->handle != nullptr)
    ::shm_unlink(static_cast<shared_block*>(what->handle)->name.c_str());
}

STAND_IN void hf3fs_iovdestroy(iov* what) {
  if (what != nullptr && what->handle != nullptr) // one that was wrapped is not ours
    end_iov(what, "");
}

STAND_IN int hf3fs_iovwrap(iov* out, void* base, const std::uint8_t* id, const char* mount_point, std::size_t size,
                           std::size_t block_size, int numa) {
  if (out == nullptr || std::strlen(mount_point) >= 256)
    return -EINVAL;
  auto* const faults = control_of(mount_point);
  if (faults != nullptr && faults->refuse_iovs != 0)
    return -ENOMEM;
  *out = {};
  out->base = static_cast<std::uint8_t*>(base);
  std::memcpy(out->id, id, 16);
  std::strcpy(out->mount_point, mount_point);
  out->size = size;
  out->block_size = block_size;
  out->numa = numa;
  if (faults != nullptr)
    ++faults->iovs_wrapped;
  return 0;
}

STAND_IN std::size_t hf3fs_ior_size(int entries) {
  return ring_view::bytes(static_cast<std::uint64_t>(entries));
}

STAND_IN int hf3fs_iorcreate(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int numa) {
  return make_ring(out, mount_point, entries, for_read, io_depth, 0, 0, numa, 0);
}

STAND_IN int hf3fs_iorcreate2(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int priority,
                              int numa) {
  return make_ring(out, mount_point, entries, for_read, io_depth, priority, 0, numa, 0);
}

STAND_IN int hf3fs_iorcreate3(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int priority,
                              int timeout, int numa) {
  return make_ring(out, mount_point, entries, for_read, io_depth, priority, timeout, numa, 0);
}

STAND_IN int hf3fs_iorcreate4(ior* out, const char* mount_point, int entries, bool for_read, int io_depth, int timeout,
                              int numa, std::uint64_t flags) {
  return make_ring(out, mount_point, entries, for_read, io_depth, 0, timeout, numa, flags);
}

STAND_IN void hf3fs_iordestroy(ior* what) {
  if (what == nullptr || what->handle == nullptr)
    return;
  auto* const handle = static_cast<ring_handle*>(what->handle);
  ::sem_close(handle->submit);
  delete handle;
  what->handle = nullptr;
  // With the flags in decimal, like the real library: a ring with flags 2 keeps its name.
  end_iov(&what->memory, ring_suffix(what->for_read, what->io_depth, what->priority, what->timeout,
                                     what->flags == 0 ? "" : std::to_string(what->flags)));
}

STAND_IN int hf3fs_io_entries(const ior* ring) {
  return static_cast<int>(static_cast<ring_handle*>(ring->handle)->view.header->entries);
}

STAND_IN int hf3fs_reg_fd(int descriptor, std::uint64_t) {
  if (!hf3fs_is_hf3fs(descriptor) || static_cast<std::uint64_t>(descriptor) >= table_size)
    return EBADF;
  std::lock_guard guard(files_mutex);
  if (files.count(descriptor) != 0)
    return EINVAL;
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return errno;
  const auto path = path_of(descriptor);
  const auto place = mount_of(path);
  const auto link = place / files_name / std::to_string(status.st_ino);
  ::unlink(link.c_str());
  if (::symlink(path.c_str(), link.c_str()) != 0 && errno != EEXIST)
    return errno;
  const int duplicate = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0)
    return errno;
  const registered_file made{descriptor, duplicate, status.st_ino, ::fcntl(descriptor, F_GETFL),
                             control_of(place) == nullptr ? 0 : control_of(place)->daemons.load()};
  files[descriptor] = made;
  files[duplicate] = made;
  if (auto* const faults = control_of(place))
    ++faults->registered;
  return -duplicate;
}

STAND_IN void hf3fs_dereg_fd(int descriptor) {
  if (!hf3fs_is_hf3fs(descriptor)) // closed, or its daemon has ended: nothing happens
    return;
  const auto place = mount_of(path_of(descriptor));
  std::lock_guard guard(files_mutex);
  const auto found = files.find(descriptor);
  if (found == files.end())
    return;
  const auto known = found->second;
  files.erase(known.duplicate);
  files.erase(known.descriptor);
  ::close(known.duplicate);
  if (auto* const faults = control_of(place))
    ++faults->deregistered;
}

STAND_IN int hf3fs_prep_io(const ior* ring, const iov* memory, bool read, void* data, int descriptor,
                           std::size_t offset, std::uint64_t length, const void* userdata) {
  if (ring == nullptr || ring->handle == nullptr || memory == nullptr || data == nullptr || length == 0 ||
      read != ring->for_read)
    return -EINVAL;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory->base);
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (at < begin || at - begin > memory->size || length > memory->size - (at - begin))
    return -EINVAL;
  registered_file file;
  {
    std::lock_guard guard(files_mutex);
    const auto found = files.find(std::abs(descriptor));
    if (found == files.end())
      return -EBADF;
    file = found->second;
  }
  const auto mode = file.flags & O_ACCMODE;
  if ((read && mode == O_WRONLY) || (!read && mode == O_RDONLY))
    return -EACCES;
  auto& handle = *static_cast<ring_handle*>(ring->handle);
  if (handle.faults->ring_full != 0)
    return -EAGAIN;
  std::int32_t index = -1;
  {
    std::lock_guard guard(handle.mutex);
    if (handle.slots.empty())
      return -EAGAIN;
    index = handle.slots.back();
    handle.slots.pop_back();
  }
  auto& args = handle.view.args()[index];
  std::memcpy(args.memory.data(), memory->id, args.memory.size());
  args.memory_offset = at - begin;
  args.file = file.inode;
  args.file_offset = offset;
  args.length = length;
  auto& header = *handle.view.header;
  const auto head = header.submission_head.load(std::memory_order_relaxed);
  handle.view.submissions()[head % handle.view.places()] = {index, userdata};
  header.submission_head.store(head + 1, std::memory_order_release);
  handle.faults->prepared.fetch_add(1, std::memory_order_relaxed);
  return index;
}

STAND_IN int hf3fs_submit_ios(const ior* ring) {
  if (ring == nullptr || ring->handle == nullptr)
    return -EINVAL;
  auto& handle = *static_cast<ring_handle*>(ring->handle);
  handle.faults->submits.fetch_add(1, std::memory_order_relaxed);
  ::sem_post(handle.submit);
  return 0;
}

STAND_IN int hf3fs_wait_for_ios(const ior* ring, cqe* out, int most, int least, const timespec* until) {
  if (ring == nullptr || ring->handle == nullptr || most <= 0)
    return -EINVAL;
  auto& handle = *static_cast<ring_handle*>(ring->handle);
  auto& header = *handle.view.header;
  least = std::min(least, most);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto is_over = [&] {
    return until != nullptr &&
           (until->tv_sec < now.tv_sec || (until->tv_sec == now.tv_sec && until->tv_nsec <= now.tv_nsec));
  };
  if (least > 0 && !is_over())
    ++handle.faults->blocking_waits;
  int filled = 0;
  while (filled < most) {
    auto tail = header.completion_tail.load(std::memory_order_relaxed);
    const auto head = header.completion_head.load(std::memory_order_acquire);
    for (; tail != head && filled < most; ++tail) {
      const auto& done = handle.view.completions()[tail % handle.view.completion_places()];
      out[filled++] = {done.index, 0, done.result, done.userdata};
      if (done.index < 0)
        continue;
      std::lock_guard guard(handle.mutex);
      handle.slots.push_back(done.index);
    }
    header.completion_tail.store(tail, std::memory_order_release);
    if (filled >= least)
      break;
    ::clock_gettime(CLOCK_REALTIME, &now);
    if (is_over())
      break;
    timespec next = now;
    next.tv_nsec += 1'000'000;
    if (next.tv_nsec >= 1'000'000'000) {
      next.tv_nsec -= 1'000'000'000;
      ++next.tv_sec;
    }
    ::sem_timedwait(&header.completed, &next);
  }
  return filled;
}

STAND_IN int hf3fs_hardlink(const char* target, const char* link_name) {
  return ::link(target, link_name) == 0 ? 0 : errno;
}

STAND_IN int hf3fs_punchhole(int descriptor, int count, const std::size_t* start, const std::size_t* end, std::size_t) {
  if (count > 1000)
    return EINVAL;
  for (int i = 0; i < count; ++i)
    if (::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start[i]),
                    static_cast<off_t>(end[i] - start[i])) != 0)
      return errno;
  return 0;
}
