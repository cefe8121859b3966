#include <cstddef>
#include <cstdint>
#include <string_view>

/// Each fuzzer is compiled with the name of its header and of the function in it.
#include TROUPE_FUZZ_HEADER

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  troupe::fuzz::TROUPE_FUZZ_READ(std::string_view{reinterpret_cast<const char*>(bytes), size});
  return 0;
}
