#include "io/slab/slab_trailer.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace troupe::io {

namespace {

static_assert(std::endian::native == std::endian::little,
              "trailers are little-endian and written as they are in memory");

constexpr std::uint64_t trailer_magic = 0x3142414c53505254ULL; // "TRPSLAB1"

struct slab_trailer {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t rank;
  std::uint64_t namespace_hi;
  std::uint64_t namespace_lo;
  std::uint64_t slot_bytes;
  std::uint64_t slots;
  std::uint32_t name_bytes;
  std::array<char, 255> name;
  std::array<std::byte, 5> padding;
  std::uint64_t incarnation;
  std::array<std::byte, 3768> unused;
  std::uint64_t hash;
};

static_assert(std::is_trivially_copyable_v<slab_trailer> && std::is_standard_layout_v<slab_trailer>);
static_assert(sizeof(slab_trailer) == slab_trailer_bytes);
static_assert(offsetof(slab_trailer, version) == 8);
static_assert(offsetof(slab_trailer, rank) == 12);
static_assert(offsetof(slab_trailer, namespace_hi) == 16);
static_assert(offsetof(slab_trailer, slot_bytes) == 32);
static_assert(offsetof(slab_trailer, slots) == 40);
static_assert(offsetof(slab_trailer, name_bytes) == 48);
static_assert(offsetof(slab_trailer, name) == 52);
static_assert(offsetof(slab_trailer, incarnation) == 312);
static_assert(offsetof(slab_trailer, hash) == 4088);

constexpr std::uint32_t version_of(const slab_spec& spec) noexcept {
  if (!spec.grows)
    return version_of_fixed;
  return spec.sparse ? version_of_sparse : version_of_growing;
}

std::uint64_t hash_of(const slab_trailer& trailer) {
  return XXH3_64bits(&trailer, offsetof(slab_trailer, hash));
}

} // namespace

slab_trailer_block make_slab_trailer(const slab_spec& spec) {
  slab_trailer trailer{};
  trailer.magic = trailer_magic;
  trailer.version = version_of(spec);
  trailer.rank = spec.rank;
  trailer.namespace_hi = spec.ns.hi;
  trailer.namespace_lo = spec.ns.lo;
  trailer.slot_bytes = spec.slot_bytes;
  trailer.slots = spec.slots;
  const auto name_bytes = std::min(spec.namespace_name.size(), trailer.name.size());
  trailer.name_bytes = static_cast<std::uint32_t>(name_bytes);
  std::copy_n(spec.namespace_name.begin(), name_bytes, trailer.name.begin());
  trailer.incarnation = spec.incarnation;
  trailer.hash = hash_of(trailer);
  return std::bit_cast<slab_trailer_block>(trailer);
}

std::optional<slab_spec> read_slab_trailer(std::span<const std::byte> block) {
  if (block.size() < slab_trailer_bytes)
    return std::nullopt;
  slab_trailer trailer;
  std::memcpy(&trailer, block.data(), sizeof trailer);
  if (trailer.magic != trailer_magic || trailer.version < version_of_fixed || trailer.version > version_of_sparse ||
      trailer.hash != hash_of(trailer) || trailer.name_bytes > trailer.name.size())
    return std::nullopt;
  return slab_spec{.path = {},
                   .ns = {trailer.namespace_hi, trailer.namespace_lo},
                   .namespace_name = std::string(trailer.name.data(), trailer.name_bytes),
                   .rank = trailer.rank,
                   .slot_bytes = trailer.slot_bytes,
                   .slots = trailer.slots,
                   .grows = trailer.version != version_of_fixed,
                   .sparse = trailer.version == version_of_sparse,
                   .incarnation = trailer.incarnation};
}

std::string describe_slab(const slab_spec& spec) {
  return "rank " + std::to_string(spec.rank) + " of namespace '" + spec.namespace_name + "' (" + to_string(spec.ns) +
         "), " + (spec.grows ? "growing, at most " : "") + std::to_string(spec.slots) + " slots of " +
         std::to_string(spec.slot_bytes) + " bytes";
}

} // namespace troupe::io
