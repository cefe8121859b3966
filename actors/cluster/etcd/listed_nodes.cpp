#include "actors/cluster/etcd/listed_nodes.hpp"

#include <optional>

namespace troupe::cluster {

namespace {

/// The most entries that are used. Nodes send requests to all others, so tens of them are expected.
constexpr std::size_t max_listed = 256;
/// The most invalid keys, and the most warnings, that are remembered.
constexpr std::size_t max_remembered = 256;

} // namespace

bool listed_nodes::replace(const std::vector<etcd_entry>& all) {
  const auto known = std::exchange(nodes_, {});
  invalid_.clear();
  for (const auto& x : all)
    take(x);
  std::erase_if(warned_, [&](const std::string& x) { return !nodes_.contains(x) && !invalid_.contains(x); });
  return known != nodes_;
}

bool listed_nodes::take(const etcd_entry& x) {
  // Not part of the list; etcd should not return such a key.
  if (!x.key.starts_with(prefix_))
    return false;
  const auto address = x.key.substr(prefix_.size());
  if (x.removed) {
    invalid_.erase(x.key);
    warned_.erase(x.key);
    return nodes_.erase(address) > 0;
  }
  const auto node = read_listed(x.value);
  // A known node may change its entry even when the list is full.
  const bool has_room = nodes_.size() < max_listed || nodes_.contains(address);
  if (!node || !is_listed_address(address) || !has_room) {
    if (invalid_.size() < max_remembered)
      invalid_.insert(x.key);
    warn_once(x.key, "entry in etcd's list of nodes skipped: " +
                         (!has_room ? "the limit of " + std::to_string(max_listed) + " nodes is reached"
                          : node    ? std::string("its key is not the address of a node")
                                    : node.error().text) +
                         ": " + x.key);
    // The entry may have been valid before.
    return nodes_.erase(address) > 0;
  }
  invalid_.erase(x.key);
  report_name(address, *node);
  const auto [known, is_new] = nodes_.try_emplace(address, *node);
  if (is_new)
    return true;
  const bool changed = known->second != *node;
  known->second = *node;
  return changed;
}

void listed_nodes::warn_once(const std::string& subject, std::string text) {
  if (warned_.size() < max_remembered && warned_.insert(subject).second)
    warnings_.push_back(std::move(text));
}

void listed_nodes::report_name(const std::string& address, const listed_node& x) {
  if (x.node == own_.node && address != own_address_)
    warn_once(address, "duplicate node name: the node at " + address + " is also called '" + x.node +
                           "'; logs and status cannot tell them apart; set a different node_name on each");
}

listed_nodes::own_entry listed_nodes::judge_own(std::string_view value) {
  const auto node = read_listed(value);
  if (!node)
    return own_entry::invalid;
  if (*node == own_)
    return own_entry::right;
  warn_once(own_address_, "duplicate address: node '" + node->node + "' is in etcd's list of nodes at " + own_address_ +
                              ", the address of this node; set a different cluster.advertise on each");
  return own_entry::of_another_node;
}

std::vector<std::string> listed_nodes::addresses() const {
  std::vector<std::string> out;
  for (const auto& [address, node] : nodes_)
    out.push_back(address);
  return out;
}

} // namespace troupe::cluster
