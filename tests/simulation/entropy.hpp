#pragma once

#include <cstdint>

namespace troupe::simulation {

/// All of `std::random_device` in this program and this thread comes from this seed, from now on: owner ids and first
/// generations are the same in every run of a seed, without a change to the product. Returns the seed.
std::uint64_t seed_entropy(std::uint64_t seed) noexcept;

} // namespace troupe::simulation
