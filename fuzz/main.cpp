#include "fuzz/foreign_bodies.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  troupe::fuzz::read_foreign_bodies({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
