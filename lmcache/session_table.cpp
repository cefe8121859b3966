#include "lmcache/session_table.hpp"

#include <algorithm>
#include <limits>

namespace troupe::lmcache {

void session_table::unlock(session& x, std::uint64_t locks) {
  x.locks -= locks;
  locks_ -= locks;
  if (x.locks == 0)
    end_lease(x);
}

void session_table::end_lease(session& x) {
  locks_ -= std::exchange(x.locks, 0);
  x.left.clear();
  if (x.lease)
    ended_.push_back(*std::exchange(x.lease, std::nullopt));
}

session_table::session_map::iterator session_table::erase(session_map::iterator at) {
  end_lease(at->second);
  if (at->second.pending)
    cancelled_.push_back(at->second.order);
  return sessions_.erase(at);
}

std::optional<std::uint64_t> session_table::begin(client_number client, const std::string& request, timestamp now,
                                                  std::optional<std::uint32_t> computed) {
  const session_name name{request, client};
  if (const auto old = sessions_.find(name); old != sessions_.end())
    erase(old);
  if (sessions_.size() >= options_.sessions_max)
    return std::nullopt;
  auto& x = sessions_[name];
  x.order = ++last_order_;
  x.until = later(now, options_.hold);
  x.computed = computed;
  return x.order;
}

bool session_table::found(client_number client, const std::string& request, std::uint64_t lookup, const finding& what,
                          timestamp now) {
  const auto i = sessions_.find({request, client});
  if (i == sessions_.end() || !i->second.pending || i->second.order != lookup)
    return false;
  auto& x = i->second;
  x.pending = false;
  x.chunks = what.chunks;
  x.until = later(now, options_.hold);
  if (what.chunks == 0 || what.workers == 0)
    return true;
  const auto each =
      static_cast<std::uint16_t>(std::clamp<std::uint32_t>(what.readers, 1, std::numeric_limits<std::uint16_t>::max()));
  x.workers = what.workers;
  x.left.assign(std::size_t{what.chunks} * what.workers, each);
  x.locks = std::uint64_t{what.chunks} * what.workers * each;
  locks_ += x.locks;
  x.lease = what.lease;
  return true;
}

session_table::status session_table::take_status(client_number client, const std::string& request) {
  const auto i = sessions_.find({request, client});
  if (i == sessions_.end() || i->second.answered)
    return {};
  if (i->second.pending)
    return {true, 0};
  i->second.answered = true;
  return {false, i->second.chunks};
}

bool session_table::pending(client_number client, const std::string& request) const {
  const auto i = sessions_.find({request, client});
  return i != sessions_.end() && i->second.pending;
}

void session_table::retrieved(const std::string& request, std::uint32_t worker, std::uint32_t begin,
                              std::uint32_t end) {
  session* oldest = nullptr;
  for (auto i = sessions_.lower_bound({request, 0}); i != sessions_.end() && i->first.first == request; ++i) {
    auto& x = i->second;
    if (x.left.empty() || worker >= x.workers || end > x.chunks || begin >= end)
      continue;
    bool has_all = true;
    for (auto chunk = begin; chunk < end && has_all; ++chunk)
      has_all = x.left[std::size_t{chunk} * x.workers + worker] > 0;
    if (has_all && (oldest == nullptr || x.order < oldest->order))
      oldest = &x;
  }
  if (oldest == nullptr)
    return;
  for (auto chunk = begin; chunk < end; ++chunk)
    --oldest->left[std::size_t{chunk} * oldest->workers + worker];
  unlock(*oldest, end - begin);
}

void session_table::freed(client_number client, const std::string& request, std::uint32_t begin, std::uint32_t end) {
  const auto i = sessions_.find({request, client});
  if (i == sessions_.end() || i->second.left.empty())
    return;
  auto& x = i->second;
  std::uint64_t locks = 0;
  for (std::size_t at = std::size_t{std::min(begin, x.chunks)} * x.workers;
       at < std::size_t{std::min(end, x.chunks)} * x.workers; ++at)
    locks += std::exchange(x.left[at], std::uint16_t{0});
  unlock(x, locks);
}

std::optional<std::uint32_t> session_table::computed_from(const std::string& request, std::uint32_t begin) {
  std::optional<std::uint32_t> out;
  for (auto i = sessions_.lower_bound({request, 0}); i != sessions_.end() && i->first.first == request; ++i) {
    auto& x = i->second;
    if (begin < x.chunks)
      x.computed.reset();
    if (!x.computed)
      return std::nullopt;
    out = std::max({out.value_or(0), *x.computed, x.chunks});
  }
  return out;
}

void session_table::ended(client_number client, const std::string& request) {
  if (const auto i = sessions_.find({request, client}); i != sessions_.end())
    erase(i);
}

void session_table::client_disconnected(client_number client) {
  for (auto i = sessions_.begin(); i != sessions_.end();)
    i = i->first.second == client ? erase(i) : std::next(i);
}

void session_table::tick(timestamp now) {
  for (auto i = sessions_.begin(); i != sessions_.end();) {
    if (i->second.until > now) {
      ++i;
      continue;
    }
    expired_ += i->second.locks > 0 ? 1 : 0;
    i = erase(i);
  }
}

} // namespace troupe::lmcache
