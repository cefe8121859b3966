#include "base/error.hpp"
#include "tests/catch.hpp"

#include <cerrno>
#include <set>
#include <string>

namespace base_error_test {

using namespace troupe;

TEST_CASE("error: the numbers of error codes never change", "[base][error]") {
  // They are part of the protocol: a code inserted in the middle breaks nodes of another version.
  CHECK(static_cast<int>(errc::ok) == 0);
  CHECK(static_cast<int>(errc::not_found) == 1);
  CHECK(static_cast<int>(errc::exists) == 2);
  CHECK(static_cast<int>(errc::busy) == 3);
  CHECK(static_cast<int>(errc::full) == 4);
  CHECK(static_cast<int>(errc::expired) == 5);
  CHECK(static_cast<int>(errc::not_owner) == 6);
  CHECK(static_cast<int>(errc::stale) == 7);
  CHECK(static_cast<int>(errc::out_of_range) == 8);
  CHECK(static_cast<int>(errc::invalid_argument) == 9);
  CHECK(static_cast<int>(errc::unknown_namespace) == 10);
  CHECK(static_cast<int>(errc::identity_mismatch) == 11);
  CHECK(static_cast<int>(errc::corrupt) == 12);
  CHECK(static_cast<int>(errc::io_error) == 13);
  CHECK(static_cast<int>(errc::no_space) == 14);
  CHECK(static_cast<int>(errc::timeout) == 15);
  CHECK(static_cast<int>(errc::cancelled) == 16);
  CHECK(static_cast<int>(errc::unreachable) == 17);
  CHECK(static_cast<int>(errc::shutting_down) == 18);
  CHECK(static_cast<int>(errc::limit_exceeded) == 19);
  CHECK(static_cast<int>(errc::unsupported) == 20);
  CHECK(static_cast<int>(errc::slab_damaged) == 21);
  CHECK(static_cast<int>(errc::internal) == 22);
  CHECK(static_cast<int>(errc::device_error) == 23);
  CHECK(static_cast<int>(errc::no_memory) == 24);
  CHECK(errc_count == 25);
}

TEST_CASE("error: every error code has a name of its own", "[base][error]") {
  std::set<std::string> names;
  for (int code = 0; code < errc_count; ++code) {
    const std::string name(to_string(static_cast<errc>(code)));
    INFO("code " << code << " is called " << name);
    CHECK(name != "unknown");
    CHECK_FALSE(name.empty());
    CHECK(names.insert(name).second);
  }
}

TEST_CASE("error: an unknown code has a name that says so", "[base][error]") {
  CHECK(to_string(static_cast<errc>(errc_count)) == "unknown");
  // A message may hold any number.
  CHECK(errc_from_wire(0) == errc::ok);
  CHECK(errc_from_wire(24) == errc::no_memory);
  CHECK(errc_from_wire(errc_count) == errc::internal);
  CHECK(errc_from_wire(std::uint64_t{1} << 40U) == errc::internal);
  CHECK(to_string(static_cast<errc>(255)) == "unknown");
}

TEST_CASE("error: an error prints its code and its sentence", "[base][error]") {
  CHECK(to_string(error{errc::full, "no slot is free"}) == "full: no slot is free");
  CHECK(to_string(error{errc::full, ""}) == "full");
}

TEST_CASE("error: a default-constructed error is an internal error, not a success", "[base][error]") {
  CHECK(error{}.code == errc::internal);
}

TEST_CASE("error: a result is a value or an error", "[base][error]") {
  const result<int> good = 7;
  REQUIRE(good.has_value());
  CHECK(*good == 7);

  const result<int> bad = fail(errc::timeout, "no answer came");
  REQUIRE_FALSE(bad.has_value());
  CHECK(bad.error().code == errc::timeout);
  CHECK(bad.error().text == "no answer came");

  const result<void> failed = fail(errc::busy, "");
  CHECK_FALSE(failed.has_value());
}

TEST_CASE("error: a system error keeps the operation and the cause", "[base][error]") {
  const auto denied = system_error(EACCES, "open /data/slab-0");
  CHECK(denied.code == errc::io_error);
  CHECK(denied.text == "open /data/slab-0: Permission denied");
}

TEST_CASE("error: a full disk is distinguished from other errors", "[base][error]") {
  CHECK(system_error(ENOSPC, "fallocate").code == errc::no_space);
  CHECK(system_error(ENOMEM, "mmap").code == errc::no_memory);
  CHECK(system_error(EIO, "write").code == errc::io_error);
}

TEST_CASE("error: a system error names the exceeded limit and its owner", "[base][error]") {
  const auto quota = system_error(EDQUOT, "cannot write to 'slab'");
  CHECK(quota.code == errc::no_space);
  CHECK(quota.text.find("quota of this user") != std::string::npos);
  const auto large = system_error(EFBIG, "cannot write to 'slab'");
  CHECK(large.code == errc::io_error);
  CHECK(large.text.find("ulimit -f") != std::string::npos);
}

} // namespace base_error_test
