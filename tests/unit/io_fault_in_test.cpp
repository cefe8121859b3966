#include "base/unique_descriptor.hpp"
#include "io/memory/fault_in.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace troupe;

namespace {

constexpr std::size_t page = 4096;

/// Shared memory of this size that was never touched.
class untouched {
public:
  explicit untouched(std::size_t bytes, int protection = PROT_READ | PROT_WRITE)
      : file_(::memfd_create("troupe-fault-in", MFD_CLOEXEC)), bytes_(bytes) {
    REQUIRE(::ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0);
    at_ = ::mmap(nullptr, bytes, protection, MAP_SHARED, file_.get(), 0);
    REQUIRE(at_ != MAP_FAILED);
  }
  ~untouched() { ::munmap(at_, bytes_); }
  untouched(const untouched&) = delete;
  untouched& operator=(const untouched&) = delete;

  std::span<std::byte> span() const { return {static_cast<std::byte*>(at_), bytes_}; }

  std::size_t resident_pages() const {
    std::vector<unsigned char> there(bytes_ / page);
    REQUIRE(::mincore(at_, bytes_, there.data()) == 0);
    return static_cast<std::size_t>(std::count_if(there.begin(), there.end(), [](auto x) { return (x & 1U) != 0; }));
  }

private:
  unique_descriptor file_;
  std::size_t bytes_;
  void* at_ = nullptr;
};

} // namespace

TEST_CASE("fault in: all pages of faulted-in memory are resident, even beyond the last whole step", "[io]") {
  for (const std::size_t pages : {std::size_t{1}, std::size_t{512}, std::size_t{3 * 512 + 7}}) {
    const untouched memory(pages * page);
    REQUIRE(memory.resident_pages() == 0);
    io::fault_in(memory.span());
    if (memory.resident_pages() == 0) {
      WARN("skipped: this kernel provides no pages ahead");
      return;
    }
    CHECK(memory.resident_pages() == pages);
  }
}

TEST_CASE("fault in: memory of a file is allocated where any process has used it", "[io]") {
  const untouched memory(4 * page);
  CHECK_FALSE(io::is_allocated(memory.span()));
  memory.span()[0] = std::byte{1};
  CHECK_FALSE(io::is_allocated(memory.span()));
  memory.span()[4 * page - 1] = std::byte{1};
  CHECK(io::is_allocated(memory.span()));
  CHECK(io::is_allocated(memory.span().first(page)));
  CHECK_FALSE(io::is_allocated(memory.span().subspan(page, 2 * page)));
  CHECK(io::is_allocated({}));
  CHECK_FALSE(io::is_allocated({static_cast<const std::byte*>(nullptr), page}));
}

TEST_CASE("fault in: memory that cannot be faulted in stays unchanged", "[io]") {
  io::fault_in({});
  const untouched memory(page, PROT_READ);
  io::fault_in(memory.span());
  CHECK(memory.span().front() == std::byte{0});
}
