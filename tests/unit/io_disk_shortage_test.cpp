#include "io/slab/disk_shortage.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>

namespace io_disk_shortage_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

TEST_CASE("disk shortage: a full disk and an exhausted quota have different errors", "[io][slab_file]") {
  disk_shortage x{"'slab'", std::uint64_t{2} << 40U, ENOSPC, 53 * (std::uint64_t{1} << 30U), 0, "take a smaller one"};
  auto e = lack_of_disk(x);
  CHECK(e.code == errc::no_space);
  CHECK(e.text == "'slab' needs 2 TiB of disk space, and 53 GiB are free; free some, or take a smaller one");
  x.spare_bytes = 256U << 20U;
  CHECK(missing(lack_of_disk(x).text, {"of which 256 MiB are to stay free (storage.spare_bytes)"}) == "");
  x.free_bytes.reset();
  CHECK(missing(lack_of_disk(x).text, {"too little free space"}) == "");
  x.free_bytes = std::uint64_t{40} << 30U;
  x.code = EDQUOT;
  e = lack_of_disk(x);
  CHECK(e.code == errc::no_space);
  CHECK(missing(e.text, {"the quota of this user", "although the disk has 40 GiB left", "raise the quota",
                         "take a smaller one"}) == "");
  CHECK(e.text.find("are free") == std::string::npos);
}

} // namespace io_disk_shortage_test
