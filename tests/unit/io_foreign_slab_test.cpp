#include "io/foreign/foreign_slab.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <sys/stat.h>

namespace io_foreign_slab_test {

using namespace troupe;
using namespace troupe::io;
using test::scratch_directory;

namespace {

slab_spec four_slots(const scratch_directory& scratch) {
  return {.path = scratch / "a.slab", .ns = {1, 2}, .namespace_name = "a", .rank = 3, .slot_bytes = 8192, .slots = 4};
}

page_identity page_at(const slab_spec& spec, slot_number slot, generation_number generation = 1) {
  return {spec.ns, {5, slot}, spec.rank, {slot, generation}, 4096};
}

void write_page(const slab_file& file, const page_identity& page, std::uint8_t fill = 7) {
  test::aligned_buffer slot(file.spec().slot_bytes);
  std::fill_n(slot.data() + page_header_bytes, page.payload_bytes, std::byte{fill});
  seal_page(slot.bytes(), page);
  REQUIRE(::pwrite(file.descriptor(), slot.data(), slot.size(), static_cast<off_t>(page.where.slot * slot.size())) ==
          static_cast<ssize_t>(slot.size()));
}

} // namespace

TEST_CASE("foreign slab: pages of a slab that a node has open are read and verified by another process",
          "[io][foreign_slab]") {
  const scratch_directory scratch;
  const bool direct = GENERATE(true, false);
  const auto owner = slab_file::open(four_slots(scratch), direct).value();
  const auto& spec = owner.spec();
  write_page(owner, page_at(spec, 2));
  const auto file = foreign_slab::open(spec.path, spec, direct).value();
  CHECK((direct || !file.direct()));
  CHECK(file.spec().slots == 4);
  test::aligned_buffer slot(spec.slot_bytes);
  CHECK(file.read_page(page_at(spec, 2), slot.bytes()) == errc::ok);
  CHECK(slot.bytes()[page_header_bytes] == std::byte{7});
  // Later writes of the owner are visible.
  write_page(owner, page_at(spec, 2, 2), 9);
  CHECK(file.read_page(page_at(spec, 2, 2), slot.bytes()) == errc::ok);
  CHECK(slot.bytes()[page_header_bytes] == std::byte{9});
  // Another generation, another key, another rank: a page of something else.
  CHECK(file.read_page(page_at(spec, 2), slot.bytes()) == errc::identity_mismatch);
  auto other = page_at(spec, 2, 2);
  other.key = {5, 77};
  CHECK(file.read_page(other, slot.bytes()) == errc::identity_mismatch);
  // A page that was never written, or that is torn, is refused.
  CHECK(file.read_page(page_at(spec, 0), slot.bytes()) == errc::corrupt);
  const char torn = 1;
  unique_descriptor by_others(::open(spec.path.c_str(), O_WRONLY));
  REQUIRE(::pwrite(by_others.get(), &torn, 1, static_cast<off_t>(2 * spec.slot_bytes + page_header_bytes + 100)) == 1);
  CHECK(file.read_page(page_at(spec, 2, 2), slot.bytes()) == errc::corrupt);
  CHECK(file.read_page(page_at(spec, 4), slot.bytes()) == errc::out_of_range);
  CHECK(file.read_page(page_at(spec, 1), slot.bytes().first(4096)) == errc::out_of_range);
  CHECK(owner.health() == errc::ok);
  std::filesystem::resize_file(spec.path, 4096);
  CHECK(file.read_page(page_at(spec, 2, 2), slot.bytes()) == errc::slab_damaged);
}

TEST_CASE("foreign slab: another file under the same name is not taken for the named slab", "[io][foreign_slab]") {
  const scratch_directory scratch;
  auto wanted = four_slots(scratch);
  CHECK(foreign_slab::open(wanted.path, wanted).error().code == errc::not_found);
  wanted.incarnation = slab_file::open(wanted, false).value().spec().incarnation;
  CHECK(foreign_slab::open(wanted.path, wanted));
  const auto refused = [&](slab_spec x) { return foreign_slab::open(wanted.path, x).error().code; };
  auto other = wanted;
  other.rank = 4;
  CHECK(refused(other) == errc::identity_mismatch);
  other = wanted;
  other.ns = {9, 9};
  CHECK(refused(other) == errc::identity_mismatch);
  other = wanted;
  other.slot_bytes = 12288;
  CHECK(refused(other) == errc::identity_mismatch);
  // The slab is created again with the same name, shape and contents.
  std::filesystem::remove(wanted.path);
  static_cast<void>(slab_file::open(four_slots(scratch), false).value());
  CHECK(refused(wanted) == errc::identity_mismatch);
  other = wanted;
  other.incarnation = 0;
  CHECK(foreign_slab::open(wanted.path, other));
  std::filesystem::resize_file(wanted.path, 8192);
  CHECK(refused(other) == errc::slab_damaged);
  std::filesystem::remove(wanted.path);
  std::filesystem::create_directory(wanted.path);
  CHECK_FALSE(foreign_slab::open(wanted.path, other));
  std::filesystem::remove(wanted.path);
  REQUIRE(::mkfifo(wanted.path.c_str(), 0600) == 0);
  CHECK_FALSE(foreign_slab::open(wanted.path, other));
}

} // namespace io_foreign_slab_test
