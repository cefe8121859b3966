#include "io/memory/handed_memory.hpp"

#include "base/same_file.hpp"

#include <optional>
#include <sys/stat.h>
#include <utility>

namespace troupe::io {

namespace {

std::optional<struct stat> status_of(const unique_descriptor& x) {
  struct stat out {};
  if (!x || ::fstat(x.get(), &out) != 0)
    return std::nullopt;
  return out;
}

} // namespace

handed_memory::connection::~connection() {
  const std::lock_guard guard(all_->mutex_);
  all_->leave(number_);
}

void handed_memory::leave(std::uint64_t number) {
  const auto found = pairs_.find(number);
  if (found == pairs_.end())
    return;
  found->second.left = true;
  // Read before the walk, which may erase the entry.
  const auto left = status_of(found->second.memory);
  const auto is_over = [&](const auto& x) {
    const auto& y = x.second;
    if (!y.left)
      return false;
    if (!y.memory || !y.proof || !y.node || y.node->gone())
      return true;
    // The newer entry wins.
    const auto kept = x.first == number || !left ? std::nullopt : status_of(y.memory);
    return kept && is_same_file(*kept, *left);
  };
  std::erase_if(pairs_, is_over);
}

void handed_memory::connection::got(std::vector<unique_descriptor> descriptors, bool cut_off) {
  pair now;
  now.cut_off = cut_off;
  if (descriptors.size() == 2) {
    now.memory = std::move(descriptors[0]);
    now.proof = std::move(descriptors[1]);
  }
  const std::lock_guard guard(all_->mutex_);
  auto& kept = all_->pairs_[number_];
  // The earlier descriptors are of the same node, and stay valid if these are incomplete.
  if (now.memory || !kept.memory) {
    now.node = std::move(kept.node);
    kept = std::move(now);
  }
}

std::unique_ptr<handed_memory::connection> handed_memory::connect(std::unique_ptr<watched_process> node) {
  const std::lock_guard guard(mutex_);
  pairs_[++last_].node = std::move(node);
  return std::make_unique<connection>(shared_from_this(), last_);
}

result<std::shared_ptr<arena>> handed_memory::map(const arena_name& name, std::uint64_t bytes) const {
  bool cut_off = false;
  const std::lock_guard guard(mutex_);
  std::erase_if(pairs_, [](const auto& x) { return x.second.left && x.second.node->gone(); });
  for (const auto& [number, x] : pairs_) {
    cut_off = cut_off || x.cut_off;
    if (!x.memory || !x.proof)
      continue;
    auto mapped = arena::map(x.memory.get(), x.proof.get(), name, bytes);
    // The pair may be of another node.
    if (mapped || mapped.error().code != errc::identity_mismatch)
      return mapped;
  }
  if (cut_off)
    return fail(errc::unreachable, "this process could not receive the descriptors of the node's memory: it has too "
                                   "many open files (ulimit -n), or a security module (SELinux, AppArmor) "
                                   "forbids it");
  return fail(errc::unreachable, "no node has sent the descriptors of that memory to this process");
}

} // namespace troupe::io
