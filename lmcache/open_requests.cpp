#include "lmcache/open_requests.hpp"

#include <algorithm>

namespace troupe::lmcache {

namespace {

/// LMCache's clients wait for 300 s by default (`lmcache.mp.mq_timeout`).
constexpr duration longest = std::chrono::minutes(4);

} // namespace

duration time_to_answer(const incoming& x) noexcept {
  if (protocol::changes_registration(x.what))
    return duration::max();
  switch (x.what) {
  // Many of them may wait for each other.
  case protocol::operation::store:
  case protocol::operation::retrieve:
  case protocol::operation::clear:
    return longest;
  // Until the pages are on the disk, if that is required.
  case protocol::operation::commit_store:
    return std::chrono::minutes(1);
  // They contain their own time limit, and are answered within it.
  case protocol::operation::query_prefetch_status:
  case protocol::operation::wait_prefetch_status:
    return x.patience + std::chrono::seconds(30);
  default:
    return std::chrono::seconds(30);
  }
}

void open_requests::add(const request& x, timestamp now) {
  open_[x.get()] = {x, later(now, time_to_answer(*x)), false};
}

bool open_requests::is_over(const request& x, timestamp now) const {
  const auto known = open_.find(x.get());
  return known == open_.end() || known->second.until <= now;
}

duration open_requests::time_left(const request& x, timestamp now) const {
  const auto known = open_.find(x.get());
  return known == open_.end() ? duration::zero() : std::max<duration>(known->second.until - now, duration::zero());
}

void open_requests::hold(const request& x, bool held) {
  if (const auto known = open_.find(x.get()); known != open_.end())
    known->second.held = held;
}

std::vector<open_requests::request> open_requests::take_late(timestamp now) {
  std::vector<request> out;
  std::erase_if(open_, [&](auto& x) {
    const bool late = !x.second.held && x.second.until <= now;
    if (late)
      out.push_back(std::move(x.second.kept));
    return late;
  });
  return out;
}

std::vector<open_requests::request> open_requests::take_all() {
  std::vector<request> out;
  std::erase_if(open_, [&](auto& x) {
    const bool taken = !x.second.held && !protocol::changes_registration(x.second.kept->what);
    if (taken)
      out.push_back(std::move(x.second.kept));
    return taken;
  });
  return out;
}

} // namespace troupe::lmcache
