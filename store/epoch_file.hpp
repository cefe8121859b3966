#pragma once

#include "base/error.hpp"
#include "base/incarnation.hpp"
#include "base/write_gate.hpp"

#include <filesystem>
#include <optional>

/// The number of the last run of a data directory. It is kept beside the index, not in it, because a run may disable
/// the index while engines go on writing. Each start writes a new number before it serves. An index that has recorded
/// the number is up to date; any other is not trusted. docs/decisions/0005 has the reasons.

namespace troupe::store {

/// The epoch of the directory; nothing where the file is missing or incomplete. Error: `io_error`.
result<std::optional<incarnation_number>> read_epoch(const std::filesystem::path& data_directory);

/// Replaces the epoch durably; after a crash the directory has the old or the new one. `gate` says whether the
/// directory may be written. Errors: `io_error`, also for a closed gate; `no_space`.
result<void> write_epoch(const std::filesystem::path& data_directory, incarnation_number epoch,
                         const write_gate& gate = *write_gate::always_open());

/// Whether an index that recorded `epoch` and `next` was kept by the last run of the directory.
constexpr bool continues_epoch(incarnation_number epoch, incarnation_number next,
                               const std::optional<incarnation_number>& found) noexcept {
  return found && *found != 0 && (*found == epoch || *found == next);
}

} // namespace troupe::store
