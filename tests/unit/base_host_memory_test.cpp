#include "base/host_memory.hpp"
#include "tests/catch.hpp"

namespace base_host_memory_test {

using namespace troupe;

TEST_CASE("What a host has of memory is read from the kernel's text", "[base]") {
  CHECK(available_of_meminfo("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:     512 kB\nBuffers: 3 kB\n") ==
        512 * 1024);
  CHECK_FALSE(available_of_meminfo("MemTotal:  1000 kB\n"));
  CHECK_FALSE(available_of_meminfo("MemAvailable: much\n"));
  CHECK_FALSE(available_of_meminfo(""));
  CHECK(available_of_meminfo("MemAvailable: 7") == 7 * 1024);
}

TEST_CASE("What a control group leaves is its limit without what is used", "[base]") {
  CHECK(left_of_group("4096\n", "1024\n") == 3072);
  CHECK(left_of_group("4096\n", "8192\n") == 0);
  CHECK(left_of_group("4096\n", "") == 4096);
  CHECK_FALSE(left_of_group("max\n", "1024\n"));
  CHECK_FALSE(left_of_group("", ""));
}

TEST_CASE("This host says that it has some memory", "[base]") {
  CHECK(available_memory() > 0);
}

} // namespace base_host_memory_test
