#pragma once

#include "base/error.hpp"
#include "base/incarnation.hpp"
#include "base/write_gate.hpp"

#include <filesystem>
#include <optional>

/// Which run a data directory has seen last, kept beside the index and not in it, because a run may leave the index
/// aside while engines go on writing. Each start writes a number that never was before it serves anybody. An index that
/// has noted the number knows all that has happened; any other is not to be believed. docs/decisions/0005 has the
/// reasons.

namespace troupe::store {

/// The epoch of the directory; nothing where there is no such file, or one that is not whole. io_error.
result<std::optional<incarnation_number>> read_epoch(const std::filesystem::path& data_directory);

/// Replaces the epoch: durable when this returns, and after a crash either the one or the other. `gate`: whether the
/// directory may be written; null where nobody else could take it over. io_error, also where it may not, no_space.
result<void> write_epoch(const std::filesystem::path& data_directory, incarnation_number epoch,
                         const write_gate* gate = nullptr);

/// Whether an index that noted `epoch` and `next` was kept by the last run of the directory.
constexpr bool continues_epoch(incarnation_number epoch, incarnation_number next,
                               const std::optional<incarnation_number>& found) noexcept {
  return found && *found != 0 && (*found == epoch || *found == next);
}

} // namespace troupe::store
