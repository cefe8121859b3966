#include "config/units.hpp"
#include "tests/catch.hpp"

#include <limits>
#include <random>

namespace config_units_test {

using namespace troupe;
using namespace troupe::config;
using namespace std::chrono_literals;

TEST_CASE("config units: sizes are parsed with their units", "[config]") {
  CHECK(parse_size("0 B") == 0U);
  CHECK(parse_size("4096 B") == 4096U);
  CHECK(parse_size("4 KiB") == 4096U);
  CHECK(parse_size("4KiB") == 4096U);
  CHECK(parse_size("4 MiB") == std::uint64_t{4} << 20);
  CHECK(parse_size("3 GiB") == std::uint64_t{3} << 30);
  CHECK(parse_size("2 TiB") == std::uint64_t{2} << 40);
  CHECK(parse_size("1 KB") == 1000U);
  CHECK(parse_size("1 MB") == 1'000'000U);
  CHECK(parse_size("7 GB") == 7'000'000'000U);
  CHECK(parse_size("7 TB") == 7'000'000'000'000U);
  CHECK(parse_size("1.5 GiB") == std::uint64_t{3} << 29);
  CHECK(parse_size("0.001 KB") == 1U);
  CHECK(parse_size("1.0 B") == 1U);
  CHECK(parse_size("0.000000001 GB") == 1U);
}

TEST_CASE("config units: text that is not a whole number of bytes is not a size", "[config]") {
  const auto* text = GENERATE("", " ", "4", "MiB", " 4 MiB", "4 MiB ", "4  MiB", "4\tMiB", "4 MiBB", "4 mib", "4 M",
                              "4 Mib", "-4 MiB", "+4 MiB", "4. MiB", ".5 MiB", "4,5 MiB", "0x4 MiB", "1e3 B", "1.5 B",
                              "0.0001 KB", "0.1 KiB", "1.0000000001 GB", "1.5.5 GB", "4 MiB 2 KiB", "NaN B", "inf B");
  INFO("'" << text << "'");
  CHECK_FALSE(parse_size(text));
}

TEST_CASE("config units: sizes in the notation of other programs are recognized for advice", "[config]") {
  CHECK(suggest_size("1G") == R"("1 GiB" or "1 GB")");
  CHECK(suggest_size("64gb") == R"("64 GiB" or "64 GB")");
  CHECK(suggest_size("64Gi") == R"("64 GiB")");
  CHECK(suggest_size("1.5 tib") == R"("1.5 TiB")");
  CHECK(suggest_size("100k") == R"("100 KiB" or "100 KB")");
  for (const char* text : {"", "4", "G", "MiB", "4 MiBB", "4 s", "x4G", "4 Gx"}) {
    INFO("'" << text << "'");
    CHECK(suggest_size(text).empty());
  }
}

TEST_CASE("config units: a size that does not fit is refused and never wraps around", "[config]") {
  CHECK(parse_size("18446744073709551615 B") == std::numeric_limits<std::uint64_t>::max());
  CHECK_FALSE(parse_size("18446744073709551616 B"));
  CHECK_FALSE(parse_size("99999999999999999999999999999999999999 B"));
  CHECK(parse_size("16777215 TiB") == std::uint64_t{16777215} << 40);
  CHECK_FALSE(parse_size("16777216 TiB"));
  CHECK_FALSE(parse_size("18014398509481984 KiB"));
}

TEST_CASE("config units: times are parsed with their units", "[config]") {
  CHECK(parse_time("0 s") == 0s);
  CHECK(parse_time("5 ns") == 5ns);
  CHECK(parse_time("5 us") == 5us);
  CHECK(parse_time("100 ms") == 100ms);
  CHECK(parse_time("30 s") == 30s);
  CHECK(parse_time("30s") == 30s);
  CHECK(parse_time("2 min") == 2min);
  CHECK(parse_time("24 h") == 24h);
  CHECK(parse_time("0.5 s") == 500ms);
  CHECK(parse_time("1.5 h") == 90min);
  CHECK(parse_time("0.000000001 s") == 1ns);
  CHECK(parse_time("9223372036854775807 ns") == duration::max());
}

TEST_CASE("config units: text that is not a whole number of nanoseconds is not a time", "[config]") {
  const auto* text =
      GENERATE("", "30", "s", "30 sec", "30 S", "-1 s", "30 m", "1 d", "1.5 ns", "0.0001 us", "1 h 30 min",
               "9223372036854775808 ns", "9223372037 s", "2562048 h", "18446744073709551616 ns");
  INFO("'" << text << "'");
  CHECK_FALSE(parse_time(text));
}

TEST_CASE("config units: sizes and times are written in the largest unit that is exact", "[config]") {
  CHECK(format_size(0) == "0 B");
  CHECK(format_size(1000) == "1000 B");
  CHECK(format_size(4096) == "4 KiB");
  CHECK(format_size((std::uint64_t{1} << 30) + 4096) == "1048580 KiB");
  CHECK(format_size(std::uint64_t{3} << 40) == "3 TiB");
  CHECK(format_size(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615 B");
  CHECK(format_time(0s) == "0 s");
  CHECK(format_time(1500ms) == "1500 ms");
  CHECK(format_time(90s) == "90 s");
  CHECK(format_time(120s) == "2 min");
  CHECK(format_time(24h) == "24 h");
  CHECK(format_time(1ns) == "1 ns");
}

TEST_CASE("config units: sizes and times read back unchanged", "[config]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  for (int i = 0; i < 10'000; ++i) {
    const auto x = random() >> (random() % 64);
    CHECK(parse_size(format_size(x)) == x);
    const duration t{static_cast<std::int64_t>(x >> 1)};
    CHECK(parse_time(format_time(t)) == t);
  }
}

} // namespace config_units_test
