#include "io/slab/slab_file.hpp"
#include "io/slab/slab_trailer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cstdio>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace io_slab_sync_test {

// The contents of a new slab on disk after a power loss, as far as they depend on the order of system calls. The system
// calls of this program go through the functions below, which record the remaining state.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// The system calls of this thread.
struct call_log {
  struct rename {
    fs::path to;
    /// The contents of the file and their synced part: after a power loss the name refers to the synced part.
    std::string contents;
    std::string synced;
    /// Whether the directory was synced afterwards.
    bool name_synced = false;
  };

  /// The synced contents by inode.
  std::map<ino_t, std::string> synced;
  std::vector<rename> renames;
};

thread_local call_log* watching = nullptr;

std::string contents_of(int descriptor, std::size_t bytes) {
  std::string out(bytes, '\0');
  // Not at the descriptor's own position, and without its flags.
  const int again = ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC);
  const auto got = again < 0 ? -1 : ::pread(again, out.data(), out.size(), 0);
  if (again >= 0)
    ::close(again);
  out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return out;
}

void note_sync(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return;
  if (S_ISREG(status.st_mode)) {
    watching->synced[status.st_ino] = contents_of(descriptor, static_cast<std::size_t>(status.st_size));
    return;
  }
  for (auto& x : watching->renames) {
    struct stat parent {};
    x.name_synced = x.name_synced || (::stat(x.to.parent_path().c_str(), &parent) == 0 &&
                                      parent.st_ino == status.st_ino && parent.st_dev == status.st_dev);
  }
}

void note_rename(const char* from, const char* to) {
  const int file = ::open(from, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file >= 0 && ::fstat(file, &status) == 0) {
    const auto synced = watching->synced.find(status.st_ino);
    watching->renames.push_back({to, contents_of(file, static_cast<std::size_t>(status.st_size)),
                                 synced == watching->synced.end() ? std::string() : synced->second});
  }
  if (file >= 0)
    ::close(file);
}

} // namespace

extern "C" int fsync(int descriptor) {
  const auto out = static_cast<int>(::syscall(SYS_fsync, descriptor));
  if (watching != nullptr && out == 0)
    note_sync(descriptor);
  return out;
}

extern "C" int renameat2(int from_directory, const char* from, int to_directory, const char* to,
                         unsigned int flags) noexcept {
  if (watching != nullptr)
    note_rename(from, to);
  return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}

TEST_CASE("slab sync: a new slab is renamed to its name after it is fully synced", "[io][slab_file]") {
  scratch_directory scratch;
  const slab_spec spec{.path = scratch / "deeper" / "rank-1.slab",
                       .ns = {0xaaaa, 0xbbbb},
                       .namespace_name = "llama",
                       .rank = 1,
                       .slot_bytes = 2 * page_alignment,
                       .slots = 9};
  call_log calls;
  watching = &calls;
  const auto slab = slab_file::open(spec, GENERATE(true, false));
  watching = nullptr;
  REQUIRE(slab.has_value());
  REQUIRE(calls.renames.size() == 1);
  const auto& renamed = calls.renames.front();
  CHECK(renamed.to == spec.path);
  // A name for a file that is empty or full of holes would be refused at the next start, and need a person.
  REQUIRE(renamed.synced.size() == slab_file_bytes(spec));
  CHECK(renamed.synced == renamed.contents);
  const auto trailer = read_slab_trailer(std::as_bytes(std::span(renamed.synced)).last(slab_trailer_bytes));
  REQUIRE(trailer.has_value());
  CHECK(trailer->ns == spec.ns);
  CHECK(trailer->rank == spec.rank);
  CHECK(renamed.name_synced);
}

} // namespace io_slab_sync_test
