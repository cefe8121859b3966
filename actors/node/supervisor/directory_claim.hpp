#pragma once

#include "actors/support/node_condition.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"
#include "io/claims/claim_keeper.hpp"
#include "io/claims/claim_record.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Acquires this node's claim on its data directory, for directories that other hosts can reach. Null where the config
/// says that none can, or where the directory does not lie in the shared one. Blocks until the claim is held: for three
/// leases where the previous run has ended without releasing its claim. `busy` where another node has the directory.
result<std::unique_ptr<io::claim_keeper>> claim_data_directory(const config::node_config& options);

/// Reports to the node's condition when the claim on that data directory is lost. Either pointer may be null.
void watch_claim(io::claim_keeper* claim, const std::filesystem::path& data_directory,
                 const std::shared_ptr<node_condition>& condition);

/// The text of that report, with the way out. `who`: the node that has the directory now, if known.
std::string text_of_lost_claim(const std::optional<io::claim_record>& who);

} // namespace troupe
