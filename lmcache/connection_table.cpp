#include "lmcache/connection_table.hpp"

#include <utility>

namespace troupe::lmcache {

std::optional<client_number> connection_table::begun(int descriptor) {
  auto before = ended(descriptor);
  auto& made = connections_[descriptor];
  made.descriptor = descriptor;
  made.began = ++now_;
  return before;
}

std::optional<client_number> connection_table::ended(int descriptor) {
  ++now_;
  const auto node = connections_.extract(descriptor);
  if (node.empty() || node.mapped().number == 0)
    return std::nullopt;
  descriptors_.erase(node.mapped().number);
  return node.mapped().number;
}

connection* connection_table::find(int descriptor, connection_moment admitted) {
  const auto i = connections_.find(descriptor);
  return i == connections_.end() || i->second.began > admitted ? nullptr : &i->second;
}

connection* connection_table::find_begun(int descriptor, connection_moment began) {
  const auto i = connections_.find(descriptor);
  return i == connections_.end() || i->second.began != began ? nullptr : &i->second;
}

std::vector<int> connection_table::descriptors() const {
  std::vector<int> out;
  out.reserve(connections_.size());
  for (const auto& [descriptor, x] : connections_)
    out.push_back(descriptor);
  return out;
}

bool connection_table::is_flooding(connection& x, std::uint64_t received, std::uint64_t limit) noexcept {
  if (std::exchange(x.delivered, false) || received < x.received)
    x.received = received;
  return received - x.received > limit;
}

void connection_table::enroll(connection& x, std::string name) {
  x.number = ++last_client_;
  descriptors_[x.number] = x.descriptor;
  x.name = std::move(name);
}

connection* connection_table::find_client(client_number client) {
  const auto i = descriptors_.find(client);
  return i == descriptors_.end() ? nullptr : &connections_.at(i->second);
}

} // namespace troupe::lmcache
