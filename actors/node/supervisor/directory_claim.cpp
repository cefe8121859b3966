#include "actors/node/supervisor/directory_claim.hpp"

#include "base/incarnation.hpp"
#include "base/log.hpp"
#include "io/claims/claim_files.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace troupe {

namespace {

/// The interval of log lines while the claim is waited for.
constexpr auto notified_every = std::chrono::seconds(5);

/// Whether the data directory itself, with the index, lies where other hosts can reach it.
bool is_reached_by_others(const config::node_config& options) {
  std::error_code failed;
  const auto root = std::filesystem::weakly_canonical(config::shared_directory(options), failed);
  const auto below = std::filesystem::weakly_canonical(options.data_dir, failed).lexically_relative(root);
  return !failed && !below.empty() && *below.begin() != "..";
}

std::string holder_of(const std::optional<io::claim_record>& x) {
  return x ? "node '" + x->holder + "'" : std::string("another node");
}

} // namespace

result<std::unique_ptr<io::claim_keeper>> claim_data_directory(const config::node_config& options) {
  if (!options.storage.shared)
    return nullptr;
  const auto logger = log::get("node");
  const auto where = options.data_dir.string();
  if (!is_reached_by_others(options)) {
    logger->warn(
        "no claim on {}, which is not in {}: other nodes cannot take it over when this node dies, and only file locks "
        "protect its slab files",
        where, config::shared_directory(options).string());
    return nullptr;
  }
  auto begun = io::claim_keeper::begin(std::make_unique<io::claim_directory>(options.data_dir),
                                       {options.node_name, fresh_incarnation(), io::claim_kind::owner,
                                        options.storage.claim_lease, options.cluster.name},
                                       std::make_shared<write_gate>());
  if (!begun)
    return begun;
  auto next_word = std::chrono::steady_clock::now() + notified_every / 10;
  const auto now = (*begun)->wait([&](const io::claim_status& x) {
    const auto time = std::chrono::steady_clock::now();
    if (time >= next_word) {
      next_word = time + notified_every;
      if (!x.trouble.empty())
        logger->warn("no claim on {} yet ({})", where, x.trouble);
      else
        logger->info("waiting for the claim on {}, which {} had last: it must stay unchanged for twice the time for "
                     "which that node "
                     "may write",
                     where, holder_of(x.other));
    }
    return true;
  });
  if (now.state != io::claim_state::holding)
    return fail(errc::busy, where + " is in use by " + holder_of(now.other) +
                                ", which renews its claim on it: stop that node, "
                                "or give this one another data_dir");
  logger->info("claim {} on {} acquired", now.number, where);
  return begun;
}

std::string text_of_lost_claim(const std::optional<io::claim_record>& who) {
  const std::string said = "this node's claim on its data directory is lost to " + holder_of(who) +
                           ", as it was not renewed in time: nothing is written there any more, and nothing can be "
                           "saved; ";
  if (!who)
    return said + "start the node again: it gets its directory back, or says that another node runs on this data_dir";
  if (who->kind == io::claim_kind::adopter)
    return said + "start the node again, and it gets its directory back";
  return said + "another node runs on this data_dir: stop one of the two, or give one of them another data_dir";
}

void watch_claim(io::claim_keeper* claim, const std::filesystem::path& data_directory,
                 const std::shared_ptr<node_condition>& condition) {
  if (claim == nullptr)
    return;
  claim->on_lost([data_directory, condition](const io::claim_status&) {
    // After a long pause the node may find its own claim removed, without knowing by which node.
    const auto now = io::claim_directory(data_directory).look();
    const auto text = text_of_lost_claim(now ? now->record : std::nullopt);
    if (condition && condition->claim_lost(text))
      log::get("node")->critical("{}", text);
  });
}

} // namespace troupe
