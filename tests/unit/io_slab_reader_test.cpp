#include "io/page.hpp"
#include "io/slab/slab_growth.hpp"
#include "io/slab/slab_reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <vector>

namespace io_slab_reader_test {

using namespace troupe;
using namespace troupe::io;
using test::scratch_directory;

namespace {

slab_spec eight_slots(const scratch_directory& scratch) {
  return {.path = scratch / "a.slab", .ns = {1, 2}, .namespace_name = "a", .rank = 3, .slot_bytes = 8192, .slots = 8};
}

} // namespace

TEST_CASE("slab reader: a slab that is not in use can be read and stays unchanged", "[io]") {
  const scratch_directory scratch;
  const auto spec = eight_slots(scratch);
  test::aligned_buffer page(spec.slot_bytes);
  seal_page(page.bytes(), {spec.ns, {5, 6}, 3, {7, 1}, 4096});
  {
    const auto made = slab_file::open(spec, false).value();
    REQUIRE(::pwrite(made.descriptor(), page.data(), page.size(), 7 * 8192) == 8192);
  }
  const auto before = std::filesystem::last_write_time(spec.path);
  {
    const auto file = slab_reader::open(spec.path).value();
    CHECK(file.spec().ns == spec.ns);
    CHECK(file.spec().rank == 3);
    CHECK(file.spec().incarnation != 0);
    CHECK(file.slots() == 8);
    std::vector<std::byte> read(spec.slot_bytes);
    CHECK(file.read(7, read) == errc::ok);
    CHECK(verify_page(read, {spec.ns, {5, 6}, 3, {7, 1}, 4096}) == errc::ok);
    CHECK(file.read(8, read) == errc::out_of_range);
    CHECK(file.read(0, std::span(read).first(4096)) == errc::out_of_range);
    // A reader does not lock out other readers, and it locks out nodes.
    CHECK(slab_reader::open(spec.path));
    CHECK(slab_file::open(spec, false).error().code == errc::busy);
  }
  CHECK(std::filesystem::last_write_time(spec.path) == before);
  CHECK(slab_file::open(spec, false));
}

TEST_CASE("slab reader: a slab that is in use and a file that is not a slab are refused", "[io]") {
  const scratch_directory scratch;
  const auto spec = eight_slots(scratch);
  CHECK(slab_reader::open(spec.path).error().code == errc::not_found);
  {
    const auto node = slab_file::open(spec, false).value();
    CHECK(slab_reader::open(spec.path).error().code == errc::busy);
  }
  std::filesystem::resize_file(spec.path, 3 * 8192);
  CHECK(slab_reader::open(spec.path).error().code == errc::slab_damaged);
  std::filesystem::resize_file(spec.path, 100);
  CHECK(slab_reader::open(spec.path).error().code == errc::slab_damaged);
}

TEST_CASE("slab reader: of a growing slab the slots with disk space can be read", "[io]") {
  const scratch_directory scratch;
  auto spec = eight_slots(scratch);
  spec.grows = true;
  spec.first_slots = 2;
  REQUIRE(slab_file::open(spec, false));
  CHECK(slab_reader::open(spec.path)->slots() == 2);
  {
    const auto node = slab_file::open(spec, false).value();
    REQUIRE(node.growth()->grow(5));
  }
  const auto file = slab_reader::open(spec.path).value();
  CHECK(file.slots() == 5);
  std::vector<std::byte> read(spec.slot_bytes);
  CHECK(file.read(4, read) == errc::ok);
  CHECK(file.read(5, read) == errc::out_of_range);
}

} // namespace io_slab_reader_test
