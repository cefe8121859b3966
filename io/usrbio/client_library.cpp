#include "io/usrbio/client_library.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <semaphore.h>

namespace troupe::io::usrbio {

namespace {

// The library signals a semaphore that cannot be opened by a null pointer, which is SEM_FAILED on this system.
static_assert(SEM_FAILED == nullptr);

/// Resolves functions of the library, and keeps the name of the first missing one.
class symbols {
public:
  explicit symbols(void* library) : library_(library) {}

  template <class Function>
  void find(Function*& out, const char* name) {
    void* const at = ::dlsym(library_, name);
    if (at == nullptr && missing_.empty())
      missing_ = name;
    out = reinterpret_cast<Function*>(at);
  }

  const std::string& missing() const noexcept { return missing_; }

private:
  void* library_;
  std::string missing_;
};

result<void> cap_descriptors() {
  rlimit found{};
  if (::getrlimit(RLIMIT_NOFILE, &found) != 0)
    return tl::unexpected(system_error(errno, "cannot read the limit of open files"));
  const auto wanted = capped(found);
  if (wanted.rlim_max == found.rlim_max)
    return {};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) != 0)
    return tl::unexpected(system_error(errno, "cannot lower the limit of open files"));
  log::get("io")->info("limit of open files lowered to {}: 3FS's client library allocates a table of that size",
                       wanted.rlim_max);
  return {};
}

} // namespace

rlimit capped(rlimit found) noexcept {
  found.rlim_max = std::min(found.rlim_max, most_descriptors);
  found.rlim_cur = std::min(found.rlim_cur, found.rlim_max);
  return found;
}

result<std::shared_ptr<const client_library>> client_library::load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const client_library>> loaded;
  std::lock_guard guard(mutex);
  if (const auto found = loaded.find(path); found != loaded.end())
    return found->second;
  if (auto done = cap_descriptors(); !done)
    return tl::unexpected(std::move(done.error()));
  // It has threads of its own, so it can never be unloaded.
  void* const opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) {
    const char* const why = ::dlerror();
    return fail(errc::unsupported, "3FS's client library cannot be loaded (" +
                                       std::string(why == nullptr ? path : std::string(why)) +
                                       "); install it, or set its path in storage.usrbio_library");
  }
  const std::shared_ptr<client_library> made(new client_library);
  made->path_ = path;
  auto& f = made->functions_;
  symbols from(opened);
  from.find(f.is_hf3fs, "hf3fs_is_hf3fs");
  from.find(f.extract_mount_point, "hf3fs_extract_mount_point");
  from.find(f.iovcreate, "hf3fs_iovcreate");
  from.find(f.iovdestroy, "hf3fs_iovdestroy");
  from.find(f.iovwrap, "hf3fs_iovwrap");
  from.find(f.iorcreate4, "hf3fs_iorcreate4");
  from.find(f.iordestroy, "hf3fs_iordestroy");
  from.find(f.io_entries, "hf3fs_io_entries");
  from.find(f.reg_fd, "hf3fs_reg_fd");
  from.find(f.dereg_fd, "hf3fs_dereg_fd");
  from.find(f.prep_io, "hf3fs_prep_io");
  from.find(f.submit_ios, "hf3fs_submit_ios");
  from.find(f.wait_for_ios, "hf3fs_wait_for_ios");
  if (!from.missing().empty())
    return fail(errc::unsupported, "'" + path + "' is not a client library of 3FS, or too old: it lacks " +
                                       from.missing() +
                                       "; install a newer one, or set its path in "
                                       "storage.usrbio_library");
  loaded.emplace(path, made);
  return std::shared_ptr<const client_library>(made);
}

} // namespace troupe::io::usrbio
