#pragma once

#include "base/error.hpp"
#include "base/node_condition.hpp"
#include "config/node_config.hpp"
#include "io/claim_keeper.hpp"
#include "io/claim_record.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// This node's claim on its data directory, which other hosts can reach; null where none can, as the config says, or as
/// it does not lie in the directory that all share. Blocks until it is held: for three leases where the run before has
/// ended without giving its claim back. `busy` where another node has the directory.
result<std::unique_ptr<io::claim_keeper>> claim_data_directory(const config::node_config& options);

/// Has the node's condition say so when the claim on that data directory is lost. Either pointer may be null.
void watch_claim(io::claim_keeper* claim, const std::filesystem::path& data_directory,
                 const std::shared_ptr<node_condition>& condition);

/// What is said then, with the way out. `who` has the directory now, as far as is known.
std::string text_of_lost_claim(const std::optional<io::claim_record>& who);

} // namespace troupe
