#include "actors/node/registry/lookup_history.hpp"

#include <bitset>
#include <unordered_map>

namespace troupe {

namespace {

/// Whether the name of a request begins as wanted. A name is kept to a limit, and a longer one is still found by
/// itself. vLLM makes a request of its own of each choice of an answer, with a number and "_" before the name that
/// callers know.
bool begins(std::string_view name, std::string_view wanted) {
  if (name.starts_with(wanted.substr(0, request_name::most)))
    return true;
  const auto digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || name[digits] != '_')
    return false;
  return name.substr(digits + 1).starts_with(wanted.substr(0, request_name::most - digits - 1));
}

bool passes(const lookup_part& x, const lookup_filter& wanted) {
  if (wanted.namespaces && !std::ranges::binary_search(*wanted.namespaces, x.ns))
    return false;
  if (wanted.name && x.name != *wanted.name)
    return false;
  if (!begins(x.request.text(), wanted.request))
    return false;
  return wanted.owners.empty() || std::ranges::find(wanted.owners, x.name.owner) != wanted.owners.end();
}

} // namespace

lookup_history::lookup_history(std::uint32_t lookups_most, std::uint32_t events_most, timestamp began)
    : began_(began), lookups_(std::max(lookups_most, 1U)), events_(std::max(events_most, 1U)) {}

void lookup_history::record(const lookup_part& x) {
  advance(x.at);
  const std::lock_guard guard(mutex_);
  ++lookup_count_;
  auto& stored = lookup_at(0);
  stored = x;
  stored.events_before = event_count_;
}

void lookup_history::trim(const ticket& name, std::uint32_t kept) {
  const std::lock_guard guard(mutex_);
  for (std::uint64_t age = 0; age < stored_lookups(); ++age)
    if (auto& x = lookup_at(age); x.name == name) {
      x.kept = std::min(kept, x.found);
      return;
    }
}

lookup_history::view lookup_history::read(const lookup_filter& wanted, std::size_t most) const {
  view out;
  const std::lock_guard guard(mutex_);
  for (std::uint64_t age = 0; age < stored_lookups() && out.parts.size() < most; ++age)
    if (const auto& x = lookup_at(age); passes(x, wanted))
      out.parts.push_back({x, std::nullopt, std::nullopt});
  explain(out.parts);
  out.events = event_count_;
  out.events_since = event_count_ > events_.size() ? time_of(event_at(first_event())) : began_;
  return out;
}

void lookup_history::explain(std::vector<explained_part>& parts) const {
  // The shard waits meanwhile: most events that no reader asks for fail this test.
  std::bitset<65536> may_be_wanted;
  std::unordered_multimap<std::uint64_t, explained_part*> wanted;
  for (auto& x : parts)
    if (x.part.state != missing_state::none) {
      const auto fingerprint = fingerprint_of(x.part.ns, x.part.missing);
      may_be_wanted.set(fingerprint % may_be_wanted.size());
      wanted.emplace(fingerprint, &x);
    }
  if (wanted.empty())
    return;
  auto at = first_event() % events_.size();
  for (auto number = first_event(); number < event_count_; ++number) {
    const auto& event = events_[at];
    at = at + 1 == events_.size() ? 0 : at + 1;
    if (!may_be_wanted[event.fingerprint % may_be_wanted.size()])
      continue;
    const auto [first, last] = wanted.equal_range(event.fingerprint);
    for (auto i = first; i != last; ++i) {
      auto& x = *i->second;
      const key_note note{time_of(event), event.rank, event.what};
      if (number < x.part.events_before) {
        // A key that was fetched and is missing was removed since, which is an event of its own.
        if (event.what != key_event::fetched)
          x.before = note;
      } else if (event.what == key_event::fetched && !x.arrived) {
        x.arrived = note;
      }
    }
  }
}

std::uint64_t lookup_history::resident_bytes() const noexcept {
  return lookups_.capacity() * sizeof(lookup_part) + events_.capacity() * sizeof(stored_event);
}

} // namespace troupe
