#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// What parts of a file occupy on the disk, as its file system says. Blocking; for one thread at a time.

namespace troupe::io {

/// Whether the file system of this empty, open file can free parts of it and say which parts occupy the disk. Writes
/// to the file, and leaves it empty.
bool can_be_sparse(int descriptor);

/// The bytes that each of the first `slots` slots occupies, each of `slot_bytes`: allocated blocks, whether they were
/// written or not. Nothing where the file system does not say it.
std::optional<std::vector<std::uint64_t>> occupied_slots(int descriptor, std::uint64_t slots, std::uint64_t slot_bytes);

} // namespace troupe::io
