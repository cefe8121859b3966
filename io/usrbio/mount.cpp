#include "io/usrbio/mount.hpp"

#include "base/log.hpp"
#include "base/same_file.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace troupe::io::usrbio {

namespace {

using clock = std::chrono::steady_clock;

// The longest time until a dead daemon is noticed; a probe costs one call.
constexpr auto probe_interval = std::chrono::milliseconds(200);
constexpr auto shortest_pause = std::chrono::milliseconds(100);
constexpr auto longest_pause = std::chrono::seconds(5);

using id_bytes = std::array<std::uint8_t, 16>;

/// The identifier in 3FS's format: 8-4-4-4-12 digits.
std::string text_of(const std::uint8_t* id) {
  std::string out;
  for (int i = 0; i < 16; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned>(id[i]));
    out += digits.data();
    if (i == 3 || i == 5 || i == 7 || i == 9)
      out += '-';
  }
  return out;
}

id_bytes random_id() {
  id_bytes out{};
  while (::getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) {
  }
  // Marks it as a version 4 UUID.
  out[6] = static_cast<std::uint8_t>((out[6] & 0x0fU) | 0x40U);
  out[8] = static_cast<std::uint8_t>((out[8] & 0x3fU) | 0x80U);
  return out;
}

std::string without_dashes(std::string text) {
  std::erase(text, '-');
  return text;
}

tl::unexpected<error> not_here(const std::string& path) {
  return fail(errc::unsupported, "'" + path +
                                     "' is not on 3FS, or 3FS's daemon does not respond there; give a directory of "
                                     "a 3FS mount, or set io.engine to \"auto\"");
}

result<std::string> find_place(const client_functions& client, const usrbio_options& options) {
  const auto wanted = options.mount_point.empty() ? options.directory.string() : options.mount_point;
  if (wanted.empty())
    return fail(errc::invalid_argument, "the io engine usrbio needs a directory or storage.mount_point");
  // Checked first, since the library ends the process where the file is missing.
  if (::access("/proc/self/mountinfo", R_OK) != 0)
    return tl::unexpected(system_error(errno, "cannot read /proc/self/mountinfo"));
  if (::access(wanted.c_str(), F_OK) != 0)
    return not_here(wanted);
  std::array<char, sizeof(iov::mount_point)> text{};
  const auto length = client.extract_mount_point(text.data(), static_cast<int>(text.size()), wanted.c_str());
  if (length <= 0)
    return not_here(wanted);
  if (static_cast<std::size_t>(length) > text.size())
    return fail(errc::unsupported, "the mount point of '" + wanted +
                                       "' has a path of more than 255 characters, "
                                       "which 3FS's client library does not support");
  return std::string(text.data());
}

} // namespace

shared_region::~shared_region() {
  if (!link_.empty())
    ::unlink(link_.c_str());
}

mount::mount(std::shared_ptr<const client_library> library, std::string place)
    : library_(std::move(library)), place_(std::move(place)) {}

result<std::shared_ptr<mount>> mount::open(const usrbio_options& options) {
  static std::mutex opening;
  static std::map<std::pair<const client_library*, std::string>, std::weak_ptr<mount>> known;
  auto library = client_library::load(options.library);
  if (!library)
    return tl::unexpected(std::move(library.error()));
  auto place = find_place((*library)->functions(), options);
  if (!place)
    return tl::unexpected(std::move(place.error()));
  std::lock_guard guard(opening);
  auto& found = known[{library->get(), *place}];
  if (auto there = found.lock())
    return there;
  const std::shared_ptr<mount> made(new mount(*library, *place));
  if (!made->begin_session())
    return not_here(*place);
  try {
    made->thread_ = std::thread(named(thread_name("troupe-3fs"), [self = made.get()] { self->keep_watch(); }));
  } catch (const std::system_error& e) {
    return tl::unexpected(no_thread("a thread that watches 3FS", e.code().value()));
  }
  found = made;
  return made;
}

mount::~mount() {
  {
    std::lock_guard guard(mutex_);
    ending_ = true;
    woken_.notify_one();
  }
  if (thread_.joinable())
    thread_.join();
}

std::uint64_t mount::watch(std::function<void()> changed) {
  std::lock_guard guard(watchers_mutex_);
  const auto out = next_watcher_++;
  watchers_.emplace(out, std::move(changed));
  return out;
}

void mount::unwatch(std::uint64_t watcher) {
  std::lock_guard guard(watchers_mutex_);
  watchers_.erase(watcher);
}

void mount::look() {
  std::lock_guard guard(mutex_);
  asked_ = true;
  woken_.notify_one();
}

result<std::shared_ptr<const shared_region>> mount::share(const shared_mapping& memory, std::uint64_t block_bytes,
                                                          session_number session) {
  std::lock_guard guard(regions_mutex_);
  auto& known = regions_[{memory.device, memory.inode}];
  if (auto there = known.second.lock(); there && known.first == session && there->memory().block_size == block_bytes)
    return there;
  const auto id = random_id();
  const std::shared_ptr<shared_region> made(new shared_region);
  const auto code =
      client().iovwrap(&made->memory_, memory.base, id.data(), place_.c_str(), memory.bytes, block_bytes, -1);
  if (code < 0)
    return tl::unexpected(system_error(-code, "3FS refuses " + memory.path + " as transfer memory"));
  const auto link = virtual_directory() + "/" + text_of(id.data()) +
                    (block_bytes != 0 ? ".b" + std::to_string(block_bytes) : std::string());
  if (::symlink(memory.path.c_str(), link.c_str()) != 0)
    return tl::unexpected(
        system_error(errno, "3FS's daemon refuses " + memory.path + " as transfer memory (" + link + ")"));
  made->link_ = link;
  known = {session, made};
  return std::shared_ptr<const shared_region>(made);
}

void mount::unlink_names(const iov& memory) const noexcept {
  const auto wanted = without_dashes(text_of(reinterpret_cast<const std::uint8_t*>(memory.id)));
  auto* const directory = ::opendir(virtual_directory().c_str());
  if (directory == nullptr)
    return;
  std::vector<std::string> found;
  while (const auto* const entry = ::readdir(directory))
    if (without_dashes(entry->d_name).starts_with(wanted))
      found.emplace_back(entry->d_name);
  for (const auto& name : found)
    ::unlinkat(::dirfd(directory), name.c_str(), 0);
  ::closedir(directory);
}

// -- the thread --

bool mount::begin_session() {
  unique_descriptor opened(::open(virtual_directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || !client().is_hf3fs(opened.get()))
    return false;
  held_ = std::move(opened);
  set_session(++last_session_);
  return true;
}

bool mount::probe() {
  struct stat held {};
  struct stat named {};
  return client().is_hf3fs(held_.get()) && ::fstat(held_.get(), &held) == 0 &&
         ::stat(virtual_directory().c_str(), &named) == 0 && is_same_file(held, named);
}

void mount::set_session(session_number session) {
  session_.store(session, std::memory_order_release);
  std::lock_guard guard(watchers_mutex_);
  for (const auto& [id, changed] : watchers_)
    changed();
}

void mount::keep_watch() {
  auto pause = std::chrono::duration_cast<clock::duration>(probe_interval);
  std::unique_lock held(mutex_);
  while (!ending_) {
    woken_.wait_for(held, pause, [this] { return ending_ || asked_; });
    asked_ = false;
    if (ending_)
      return;
    held.unlock();
    if (session() != 0) {
      pause = probe_interval;
      if (!probe()) {
        log::get("io")->error("3FS daemon lost: {}; its pages are unavailable until it returns", place_);
        set_session(0);
        pause = shortest_pause;
      }
    } else if (begin_session()) {
      log::get("io")->info("3FS daemon returned: {}", place_);
      pause = probe_interval;
    } else {
      pause = std::min<clock::duration>(pause * 2, longest_pause);
    }
    held.lock();
  }
}

} // namespace troupe::io::usrbio
