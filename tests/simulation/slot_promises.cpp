#include "tests/simulation/slot_promises.hpp"

#include <algorithm>

namespace troupe::simulation {

namespace {

bool is_tracked(const caf::message& x) {
  return x.match_elements<allocate_request>() || x.match_elements<confirm_request>() ||
         x.match_elements<reclaim_request>();
}

std::string text_of(rank_number rank, slot_number slot) {
  return "rank " + std::to_string(rank) + " slot " + std::to_string(slot);
}

} // namespace

void slot_promises::asked(const passing& request, timestamp now) {
  if (request.sender && request.id.is_request() && is_tracked(request.content))
    open_[{request.sender->id(), request.id.integer_value()}] = {now, request.content};
}

std::string slot_promises::answered(const passing& request, const caf::message& answer, timestamp now) {
  if (!request.sender)
    return {};
  const auto node = open_.extract({request.sender->id(), request.id.integer_value()});
  if (node.empty())
    return {};
  const auto& [since, content] = node.mapped();
  if (content.match_elements<allocate_request>() && answer.match_elements<reserve_reply>())
    return allocated(content.get_as<allocate_request>(0), answer.get_as<reserve_reply>(0), since, now);
  if (!answer.match_elements<result_codes>())
    return {};
  if (content.match_elements<confirm_request>())
    return confirmed(content.get_as<confirm_request>(0), answer.get_as<result_codes>(0), since);
  return reclaimed(content.get_as<reclaim_request>(0), answer.get_as<result_codes>(0), since, now);
}

std::string slot_promises::allocated(const allocate_request& request, const reserve_reply& reply, timestamp since,
                                     timestamp now) {
  std::string wrong;
  for (std::size_t i = 0; i < reply.results.size(); ++i) {
    const page_name page{request.rank, request.keys[i]};
    const auto where = reply.results[i].where;
    const auto known = promises_.find(page);
    if (reply.results[i].code() == errc::exists && known != promises_.end())
      promises_.erase(known);
    if (reply.results[i].code() != errc::ok)
      continue;
    const auto until = now + request.expires_in;
    if (known == promises_.end() || known->second.where != where) {
      promises_.insert_or_assign(page, promise{where, until});
      continue;
    }
    auto& there = known->second;
    if (there.until <= since && !may_be_extended(page))
      wrong = text_of(request.rank, where.slot) + " is given to a second writer after the time of the first one";
    there.until = std::max(there.until, until);
    there.shared_at = std::min(there.shared_at, now);
  }
  return wrong;
}

std::string slot_promises::confirmed(const confirm_request& request, const result_codes& reply, timestamp since) {
  std::string wrong;
  for (std::size_t i = 0; i < reply.results.size(); ++i) {
    if (reply.results[i] != static_cast<std::uint8_t>(errc::ok))
      continue;
    const page_name page{request.rank, request.pages[i].key};
    const auto known = promises_.find(page);
    if (known == promises_.end() || known->second.where.slot != request.pages[i].where.slot)
      continue;
    if (known->second.until <= since && !may_be_extended(page))
      wrong = text_of(request.rank, known->second.where.slot) + " is confirmed after the time of its writers";
    promises_.erase(known);
  }
  return wrong;
}

std::string slot_promises::reclaimed(const reclaim_request& request, const result_codes& reply, timestamp since,
                                     timestamp now) const {
  for (std::size_t i = 0; i < reply.results.size(); ++i)
    if (reply.results[i] == static_cast<std::uint8_t>(errc::ok))
      for (const auto& [page, x] : promises_)
        if (page.first == request.rank && x.where.slot == request.slots[i] && x.until > now && x.shared_at <= since)
          return text_of(request.rank, x.where.slot) + " is taken from a second writer, who still has time";
  return {};
}

bool slot_promises::may_be_extended(const page_name& page) const {
  return std::ranges::any_of(open_, [&](const auto& x) {
    const auto& content = x.second.content;
    if (!content.template match_elements<allocate_request>())
      return false;
    const auto& request = content.template get_as<allocate_request>(0);
    return request.rank == page.first && std::ranges::find(request.keys.items, page.second) != request.keys.items.end();
  });
}

void slot_promises::forget(rank_number rank) {
  std::erase_if(promises_, [&](const auto& x) { return x.first.first == rank; });
}

void slot_promises::clear() {
  open_.clear();
  promises_.clear();
}

} // namespace troupe::simulation
