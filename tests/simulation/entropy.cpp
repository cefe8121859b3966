#include "tests/simulation/entropy.hpp"

#include "tests/simulation/random.hpp"

#include <random>

namespace {

thread_local troupe::simulation::random_source seeded{0};

} // namespace

namespace troupe::simulation {

std::uint64_t seed_entropy(std::uint64_t seed) noexcept {
  seeded = random_source(seed);
  return seed;
}

} // namespace troupe::simulation

// Replaces the function of libstdc++: a symbol of the program takes precedence over one of a shared library. Where it
// does not, a seed takes another course each time, and the test that runs seeds twice fails.
std::random_device::result_type std::random_device::_M_getval() {
  return static_cast<result_type>(seeded.next());
}
