#include "io/engine/request_rules.hpp"

#include <unordered_set>
#include <utility>

namespace troupe::io {

bool request_rules::accept(const request& what) {
  const auto code = stopping_ ? errc::shutting_down : resources_.check(what);
  // An invalid request is completed without a row: there is nothing that the system could still use.
  if (code != errc::ok)
    done_.push_back({what.tag, code, 0});
  return code == errc::ok;
}

// One pass for all: a client that dies cancels thousands at once.
std::vector<request_rules::index> request_rules::cancel(std::span<const std::uint64_t> tags) {
  std::vector<index> running;
  if (tags.empty())
    return running;
  const std::unordered_set<std::uint64_t> wanted(tags.begin(), tags.end());
  table_.for_each([&](index i, const operation_table::row& r) {
    if (wanted.contains(r.what.tag))
      abandon(i, errc::cancelled, running);
  });
  return running;
}

std::vector<request_rules::index> request_rules::expire(timestamp now) {
  std::vector<index> running;
  for (auto i = table_.take_expired(now); i != operation_table::none; i = table_.take_expired(now))
    abandon(i, errc::timeout, running);
  return running;
}

std::vector<request_rules::index> request_rules::stop() {
  std::vector<index> running;
  if (!std::exchange(stopping_, true))
    table_.for_each([&](index i, const operation_table::row&) { abandon(i, errc::shutting_down, running); });
  return running;
}

void request_rules::abandon(index i, errc why, std::vector<index>& running) {
  auto& r = table_.at(i);
  if (r.state == operation_table::state::waiting)
    return finish(i, why, 0);
  // The first reason stays: later ones only repeat the cancellation.
  if (r.abandoned == errc::ok)
    r.abandoned = why;
  running.push_back(i);
}

bool request_rules::advance(index i, std::int64_t outcome) {
  auto& r = table_.at(i);
  const auto judged = judge_transfer(r.what, outcome, r.done, r.fruitless);
  if (!judged.again)
    finish(i, final_status(judged.status, r.abandoned), judged.system_errno);
  else if (r.abandoned != errc::ok) // the system moved a part of a cancelled request: the rest is not requested
    finish(i, r.abandoned, 0);
  else
    return true;
  return false;
}

void request_rules::finish(index i, errc status, int system_errno) {
  done_.push_back({table_.at(i).what.tag, status, system_errno});
  table_.remove(i);
}

} // namespace troupe::io
