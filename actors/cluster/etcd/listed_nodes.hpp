#pragma once

#include "actors/cluster/etcd/etcd_protocol.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::cluster {

/// The nodes in etcd's list, by address, as entries and removals arrive. A key is that of a node or that of an invalid
/// entry, never both. The numbers of nodes, of remembered invalid keys and of remembered warnings are bounded, since
/// anyone with write access to etcd can add keys.
///
/// Each problem is reported once for as long as it lasts: an entry that is skipped, another node with this node's name,
/// and another node at this node's address.
class listed_nodes {
public:
  /// `prefix`: that of all keys; the address of a node follows it. `own`: this node, at `own_address`.
  listed_nodes(std::string prefix, std::string own_address, listed_node own)
      : prefix_(std::move(prefix)), own_address_(std::move(own_address)), own_(std::move(own)) {}

  /// Takes over an entry or its removal. Returns true if the nodes have changed.
  bool take(const etcd_entry& x);
  /// Takes over the whole list. Returns true if the nodes have changed.
  bool replace(const std::vector<etcd_entry>& all);

  /// Whether the entry is that of this node, by its address.
  bool is_own(const etcd_entry& x) const { return x.key == prefix_ + own_address_; }

  /// What is in the place of this node's entry.
  enum class own_entry { right, invalid, of_another_node };
  /// Judges the value of this node's entry, and reports another node at this address.
  own_entry judge_own(std::string_view value);

  std::vector<std::string> addresses() const;
  std::size_t size() const noexcept { return nodes_.size(); }
  /// The number of invalid entries that are in the list.
  std::size_t invalid() const noexcept { return invalid_.size(); }

  /// Warnings for the log since the last call.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

private:
  /// Adds the warning unless there was one about `subject`, a key or an address.
  void warn_once(const std::string& subject, std::string text);
  void report_name(const std::string& address, const listed_node& x);

  const std::string prefix_;
  const std::string own_address_;
  const listed_node own_;
  std::map<std::string, listed_node> nodes_;
  /// Keys of invalid entries.
  std::set<std::string> invalid_;
  /// Keys and addresses with a warning.
  std::set<std::string> warned_;
  std::vector<std::string> warnings_;
};

} // namespace troupe::cluster
