#include "tests/simulation/page_ledger.hpp"

#include "messages/registry_slot_messages.hpp"
#include "tests/simulation/slot_text.hpp"

#include <algorithm>

namespace troupe::simulation {

namespace {

constexpr const char* names[] = {"free", "held", "live", "resting"};

} // namespace

page_ledger::page_ledger(std::uint32_t ranks, std::uint32_t slots)
    : ranks_(ranks, std::vector<slot>(slots)), committed_(ranks), ever_committed_(ranks) {}

void page_ledger::clear() {
  for (auto& x : ranks_)
    x.assign(x.size(), slot{});
  for (auto& x : committed_)
    x.clear();
  for (auto& x : ever_committed_)
    x.clear();
}

std::string page_ledger::move(rank_number rank, std::span<const slot_ref> slots, use from, use to) {
  for (const auto& x : slots) {
    if (x.slot >= ranks_[rank].size())
      return text_of(rank, x) + " does not exist";
    auto& s = ranks_[rank][x.slot];
    if (s.is != from || s.generation != x.generation)
      return text_of(rank, x) + " becomes " + names[static_cast<int>(to)] + ", and it is " +
             names[static_cast<int>(s.is)] + " with generation " + std::to_string(s.generation);
    s.is = to;
  }
  return {};
}

std::string page_ledger::granted(rank_number rank, std::span<const slot_ref> slots) {
  for (const auto& x : slots) {
    if (x.slot >= ranks_[rank].size())
      return text_of(rank, x) + " does not exist";
    auto& s = ranks_[rank][x.slot];
    if (s.is != use::free)
      return text_of(rank, x) + " is granted while it is " + names[static_cast<int>(s.is)];
    if (x.generation <= s.generation)
      return text_of(rank, x) + " had generation " + std::to_string(s.generation) + " before";
    s = {use::held, x.generation, std::nullopt};
  }
  return {};
}

std::string page_ledger::published(rank_number rank, std::span<const slot_ref> slots) {
  return move(rank, slots, use::held, use::live);
}

std::string page_ledger::aborted(rank_number rank, std::span<const slot_ref> slots) {
  return move(rank, slots, use::held, use::resting);
}

std::string page_ledger::released(rank_number rank, std::span<const slot_ref> slots) {
  auto wrong = move(rank, slots, use::live, use::resting);
  if (wrong.empty())
    for (const auto& x : slots)
      if (const auto& key = ranks_[rank][x.slot].key)
        if (const auto at = committed_[rank].find(*key); at != committed_[rank].end() && at->second == x)
          committed_[rank].erase(at);
  return wrong;
}

std::string page_ledger::fenced(rank_number rank, std::span<const slot_ref> slots) {
  return move(rank, slots, use::resting, use::free);
}

std::string page_ledger::reserved(rank_number rank, const key_digest& key, slot_ref where) {
  if (where.slot >= ranks_[rank].size())
    return text_of(rank, where) + " does not exist";
  auto& s = ranks_[rank][where.slot];
  if (s.generation != where.generation) // the answer of before to one that was asked again, and late
    return s.generation > where.generation ? "" : text_of(rank, where) + " was never granted, and is given to a writer";
  if (s.key && *s.key != key)
    return text_of(rank, where) + " is given to writers of two keys";
  s.key = key;
  return {};
}

bool page_ledger::committed(rank_number rank, const page_ref& page) {
  const bool first = ever_committed_[rank].insert(page.where).second;
  if (first)
    committed_[rank][page.key] = page.where;
  return first;
}

std::string page_ledger::located(rank_number rank, const key_digest& key, slot_ref where) const {
  const auto at = committed_[rank].find(key);
  if (at == committed_[rank].end() || at->second != where)
    return text_of(rank, where) + " is returned to a reader of key " + to_string(key) +
           ", whose page was not committed there";
  return {};
}

std::string page_ledger::missed(rank_number rank, const key_digest& key) const {
  const auto at = committed_[rank].find(key);
  return at == committed_[rank].end() ? ""
                                      : "the page of key " + to_string(key) + " is committed in " +
                                            text_of(rank, at->second) + ", and its shard does not know it";
}

bool page_ledger::is_committed(rank_number rank, const key_digest& key, slot_ref where) const {
  const auto at = committed_[rank].find(key);
  return at != committed_[rank].end() && at->second == where;
}

bool page_ledger::is_committed(const key_digest& key) const {
  return std::any_of(committed_.begin(), committed_.end(), [&](const auto& x) { return x.contains(key); });
}

void page_ledger::for_each_committed(const std::function<void(rank_number, const page_ref&)>& visit) const {
  for (rank_number rank = 0; rank < committed_.size(); ++rank)
    for (const auto& [key, where] : committed_[rank])
      visit(rank, {key, where});
}

std::string page_ledger::writer_of(const key_digest& key) const {
  for (rank_number rank = 0; rank < ranks_.size(); ++rank)
    for (slot_number i = 0; i < ranks_[rank].size(); ++i)
      if (const auto& s = ranks_[rank][i]; s.is == use::held && s.key == key)
        return "a writer has " + text_of(rank, {i, s.generation}) + " for it";
  return {};
}

void page_ledger::unpublished(rank_number rank, const key_digest& key) {
  for (rank_number i = 0; i < committed_.size(); ++i)
    if (rank == all_ranks || rank == i)
      committed_[i].erase(key);
}

std::string page_ledger::restored(rank_number rank, const key_digest& key, slot_ref where) {
  if (where.slot >= ranks_[rank].size())
    return text_of(rank, where) + " does not exist";
  auto& s = ranks_[rank][where.slot];
  if (s.is == use::live)
    return text_of(rank, where) + " has pages of two keys after a start";
  s = {use::live, where.generation, key};
  return {};
}

std::string page_ledger::notified(rank_number rank, const key_digest& key, slot_ref where) const {
  if (where.slot >= ranks_[rank].size())
    return text_of(rank, where) + " does not exist";
  const auto& s = ranks_[rank][where.slot];
  const bool right = s.generation == where.generation && s.key == key && (s.is == use::held || s.is == use::live);
  return right ? ""
               : text_of(rank, where) + " is returned to a reader of key " + to_string(key) + ", and is not its slot";
}

void page_ledger::forget(rank_number rank) {
  ranks_[rank].assign(ranks_[rank].size(), slot{});
  committed_[rank].clear();
  ever_committed_[rank].clear();
}

std::uint64_t page_ledger::live(rank_number rank) const {
  return static_cast<std::uint64_t>(
      std::count_if(ranks_[rank].begin(), ranks_[rank].end(), [](const slot& s) { return s.is == use::live; }));
}

std::vector<key_digest> page_ledger::keys() const {
  std::vector<key_digest> out;
  for (const auto& rank : ranks_)
    for (const auto& s : rank)
      if (s.is == use::live && s.key)
        out.push_back(*s.key);
  return out;
}

std::string page_ledger::may_transfer(io::operation op, rank_number rank, slot_ref where) const {
  if (where.slot >= ranks_[rank].size())
    return text_of(rank, where) + " does not exist";
  const auto& s = ranks_[rank][where.slot];
  const std::string verb = op == io::operation::write ? " is written" : " is read";
  if (s.generation != where.generation)
    return text_of(rank, where) + verb + ", and has had generation " + std::to_string(s.generation) + " since";
  // A reader whose lease has expired may be late, a writer as well, and pages are written after their commit; but the
  // fence has no delay.
  return s.is != use::free ? "" : text_of(rank, where) + verb + " while it is free";
}

std::optional<key_digest> page_ledger::key_at(rank_number rank, slot_ref where) const {
  const auto& s = ranks_[rank][where.slot];
  return s.generation == where.generation ? s.key : std::nullopt;
}

std::string page_ledger::quiesced() const {
  for (rank_number rank = 0; rank < ranks_.size(); ++rank)
    for (slot_number i = 0; i < ranks_[rank].size(); ++i)
      if (const auto& s = ranks_[rank][i]; s.is == use::held || s.is == use::resting)
        return text_of(rank, {i, s.generation}) + " is " + names[static_cast<int>(s.is)];
  return {};
}

} // namespace troupe::simulation
