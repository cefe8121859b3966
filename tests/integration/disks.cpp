#include "tests/integration/disks.hpp"

#include "tests/integration/process.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void unavailable(const std::string& what) {
  throw disk_unavailable{what + ": " + std::generic_category().message(errno)};
}

/// From now on this process has mounts of its own.
void leave_mount_namespace() {
  static const int done =
      ::unshare(CLONE_NEWNS) == 0 ? ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) : -1;
  if (done != 0)
    unavailable("cannot mount");
}

} // namespace

small_disk::small_disk(fs::path where, std::uint64_t bytes) : where_(std::move(where)) {
  leave_mount_namespace();
  fs::create_directories(where_);
  const auto size = "size=" + std::to_string(bytes);
  if (::mount("tmpfs", where_.c_str(), "tmpfs", 0, size.c_str()) != 0)
    unavailable("cannot mount a tmpfs");
}

small_disk::~small_disk() {
  ::umount2(where_.c_str(), MNT_DETACH);
}

void small_disk::fill_up() const {
  const int file = ::open((where_ / "filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::vector<char> bytes(4096, 'x');
  while (::write(file, bytes.data(), bytes.size()) > 0) {
  }
  ::close(file);
}

void small_disk::make_room() const {
  fs::remove(where_ / "filler");
}

breakable_disk::breakable_disk(fs::path image, fs::path where, std::uint64_t bytes)
    : image_(std::move(image)), where_(std::move(where)), bytes_(bytes) {
  leave_mount_namespace();
  fs::create_directories(where_);
  const int file = ::open(image_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
    unavailable("cannot make " + image_.string());
  // No journal: it would stop at the first error that it meets.
  launch format;
  format.arguments = {"/sbin/mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image_.string()};
  if (process(format).wait() != 0)
    throw disk_unavailable{"there is no mkfs.ext4"};
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  std::string device;
  // Another process may take the one that was free.
  constexpr int tries = 100;
  for (int i = 0; i < tries && device_ < 0; ++i) {
    const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
    device = "/dev/loop" + std::to_string(number);
    device_ = number < 0 ? -1 : ::open(device.c_str(), O_RDWR | O_CLOEXEC);
    if (device_ < 0)
      break;
    if (::ioctl(device_, LOOP_SET_FD, file) != 0) {
      const int error = errno;
      ::close(std::exchange(device_, -1));
      errno = error;
      if (error != EBUSY)
        break;
    }
  }
  if (device_ < 0)
    unavailable("there is no loop device");
  ::close(control);
  ::close(file);
  loop_info64 how{};
  how.lo_flags = LO_FLAGS_AUTOCLEAR; // is removed with its last user
  ::ioctl(device_, LOOP_SET_STATUS64, &how);
  if (::mount(device.c_str(), where_.c_str(), "ext4", 0, nullptr) != 0)
    unavailable("cannot mount " + device);
}

breakable_disk::~breakable_disk() {
  ::umount2(where_.c_str(), MNT_DETACH);
  ::close(device_);
}

void breakable_disk::keep_only(std::uint64_t bytes) const {
  if (::truncate(image_.c_str(), static_cast<off_t>(bytes)) != 0 || ::ioctl(device_, LOOP_SET_CAPACITY) != 0)
    throw std::system_error(errno, std::generic_category(), "change the size of the disk");
}

} // namespace troupe::test
