#include "http/explain/explanation.hpp"

#include "base/parse_number.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace troupe::http::explain {

namespace {

/// Parts of one lookup reach their shards within this time, or the lookup has failed.
constexpr duration join_time = std::chrono::seconds(5);
/// A lookup that waited for other nodes is repeated within this time.
constexpr duration repeat_time = std::chrono::minutes(1);
/// A key that arrives from another node later than this after a lookup was not fetched for it.
constexpr duration late_time = std::chrono::minutes(1);

/// "300 ms", "12 s", "5 min", "3 h"
std::string span_text(duration x) {
  using namespace std::chrono;
  x = std::max(x, duration::zero());
  if (x < seconds(1))
    return std::to_string(duration_cast<milliseconds>(x).count()) + " ms";
  if (x < minutes(2))
    return std::to_string(duration_cast<seconds>(x).count()) + " s";
  if (x < hours(2))
    return std::to_string(duration_cast<minutes>(x).count()) + " min";
  return std::to_string(duration_cast<hours>(x).count()) + " h";
}

bool is_repetition(const joined_lookup& newer, const joined_lookup& older) {
  return newer.fetched > 0 && newer.name.owner == older.name.owner && newer.ns == older.ns &&
         newer.asked == older.asked && newer.firsts == older.firsts && newer.at - older.at < repeat_time;
}

void add_part(joined_lookup& to, const explained_part& x) {
  const auto& part = x.part;
  to.at = std::min(to.at, part.at);
  to.asked += part.asked;
  to.found += part.kept;
  // What was released again counts for no tier; which of the found keys that were is not recorded.
  const auto fetched = std::min(part.fetched, part.kept);
  to.fetched += fetched;
  to.on_disk += std::min(part.on_disk, part.kept - fetched);
  to.tiers_known = to.tiers_known && part.tiers_known;
  to.each = to.each || part.each;
  if (part.refused != errc::ok)
    to.refused = part.refused;
  // The prefix did not end here where the shard found more keys than belong to it.
  if (part.state != missing_state::none && part.kept == part.found)
    to.ends.push_back(x);
  to.firsts.push_back(part.first);
}

std::string before(const missing_key& x, timestamp at) {
  return span_text(x.known.part.at - at) + " before the lookup";
}

std::string rank_text(rank_number rank) {
  return "rank " + std::to_string(rank);
}

/// What happened to the pages of a key, or to the attempt to save them.
verdict of_event(const missing_key& x, const key_note& note) {
  const auto when = before(x, note.at);
  const auto rank = rank_text(note.rank);
  switch (note.what) {
  case key_event::evicted:
    return {"evicted", "evicted " + when + ", because " + rank + " needed slots: memory and disk were full"};
  case key_event::evicted_for_index:
    return {"evicted", "evicted " + when + ", because the index was full (registry.memory_bytes)"};
  case key_event::evicted_copy:
    return {"evicted", "evicted " + when + ", because " + rank + " needed slots and another node had a copy"};
  case key_event::erased:
    return {"erased", "erased " + when + ", by a request that erased or cleared keys"};
  case key_event::dropped:
    return {"dropped", "dropped " + when + ": the page of " + rank +
                           " left memory and was not on disk (memory.write_back, memory.admission)"};
  case key_event::damaged:
    return {"damaged",
            "removed " + when + ": the page of " + rank + " was damaged, and did not verify when it was read"};
  case key_event::reclaimed:
    return {"reclaimed", "returned " + when + " by its client, because its write to " + rank + " had failed"};
  case key_event::not_restored:
    return {"not_restored", "not restored when the node started: two pages claimed the same slot of " + rank};
  case key_event::save_without_slot:
    return {"save_refused", "not saved: " + rank + " had no free slot for it " + when};
  case key_event::save_without_entry:
    return {"save_refused", "not saved: the index had no room for it " + when + " (registry.memory_bytes)"};
  case key_event::save_over_limit:
    return {"save_refused", "not saved: its save on " + rank + " was refused " + when +
                                ", because too many pages were reserved (registry.max_reserved_pages, "
                                "registry.max_reservations_per_owner)"};
  case key_event::save_refused:
    return {"save_refused", "not saved: its save on " + rank + " was refused " + when +
                                ", because the namespace could save nothing; `troupe status` has the warning"};
  case key_event::save_ended:
    return {"save_ended", "not saved: its save on " + rank + " ended " + when +
                              " without a page, because it was cancelled, failed, or ran out of time"};
  case key_event::fetched:
    break;
  }
  return {"unknown", "removed " + when};
}

std::string list_of(const std::vector<identity_difference>& all) {
  std::string out;
  for (const auto& x : all) {
    out += out.empty() ? "" : ", ";
    out += x.field;
    if (!x.here.empty() || !x.there.empty())
      out += " (here " + x.here + ", there " + x.there + ")";
  }
  return out;
}

verdict never_saved(const missing_key& x) {
  if (!x.others.empty()) {
    const auto& other = x.others.front();
    return {"other_namespace", "not saved in this namespace, but in \"" + other.name +
                                   "\", whose identity differs in " + list_of(other.differs)};
  }
  if (x.since_start)
    return {"never_saved", "never saved since the node started (" + before(x, x.events_since) + ")"};
  return {"never_saved", "never saved, or removed more than " + before(x, x.events_since) +
                             ": older removals are not kept (registry.explain_lookups)"};
}

verdict incomplete(const missing_key& x) {
  const auto& part = x.known.part;
  verdict out{"incomplete", "not complete: " + rank_text(part.rank) + " had no page of it, and " +
                                std::to_string(part.ranks_with_page) + " of " + std::to_string(x.ranks) + " ranks had"};
  if (part.rank_being_written)
    out.text += "; a client was writing it";
  else if (x.known.before)
    out.text += "; " + of_event(x, *x.known.before).text;
  return out;
}

bool came_late(const missing_key& x) {
  return x.known.arrived && x.known.arrived->at - x.known.part.at < late_time;
}

verdict reason_of(const missing_key& x) {
  const auto& known = x.known;
  if (came_late(x))
    return {"fetched_too_late", "fetched too late: it arrived from another node " +
                                    span_text(known.arrived->at - known.part.at) +
                                    " after the lookup (cluster.fetch_time)"};
  if (known.part.state == missing_state::incomplete)
    return incomplete(x);
  if (known.part.state == missing_state::being_saved)
    return {"being_saved", "not saved yet: a client was writing its first pages"};
  return known.before ? of_event(x, *known.before) : never_saved(x);
}

template <class T>
void add_difference(std::vector<identity_difference>& out, std::string_view field, const T& here, const T& there) {
  if (here == there)
    return;
  if constexpr (std::is_arithmetic_v<T>)
    out.push_back({field, std::to_string(here), std::to_string(there)});
  else
    out.push_back({field, '"' + here + '"', '"' + there + '"'});
}

} // namespace

std::vector<joined_lookup> join(std::vector<explained_part> parts, std::size_t most) {
  // Parts of the same time in the order of their shards, so that the first keys of repetitions are comparable.
  std::ranges::stable_sort(parts, [](const explained_part& a, const explained_part& b) {
    return std::pair(b.part.at, a.part.shard) < std::pair(a.part.at, b.part.shard);
  });
  std::vector<joined_lookup> out;
  std::vector<bool> joined(parts.size(), false);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (joined[i])
      continue;
    const auto& first = parts[i].part;
    joined_lookup lookup{.name = first.name, .request = first.request, .ns = first.ns, .at = first.at};
    std::vector<const explained_part*> own{&parts[i]};
    for (auto k = i + 1; k < parts.size() && first.at - parts[k].part.at < join_time; ++k) {
      const auto& other = parts[k].part;
      if (joined[k] || other.name != first.name || other.ns != first.ns ||
          std::ranges::any_of(own, [&](const auto* x) { return x->part.shard == other.shard; }))
        continue;
      joined[k] = true;
      own.push_back(&parts[k]);
    }
    std::ranges::sort(own, {}, [](const auto* x) { return x->part.shard; });
    for (const auto* x : own)
      add_part(lookup, *x);
    const auto newer = std::ranges::find_if(out, [&](const joined_lookup& x) { return is_repetition(x, lookup); });
    if (newer != out.end())
      ++newer->repeats;
    else if (out.size() < most)
      out.push_back(std::move(lookup));
    else
      break;
  }
  return out;
}

std::vector<identity_difference> differences(const namespace_spec& here, const namespace_spec& there) {
  std::vector<identity_difference> out;
  add_difference(out, "model", here.model, there.model);
  add_difference(out, "revision", here.revision, there.revision);
  add_difference(out, "dtype", here.dtype, there.dtype);
  add_difference(out, "layout", here.layout, there.layout);
  if (here.salt != there.salt)
    out.push_back({"salt", {}, {}});
  if (here.group_of != there.group_of)
    out.push_back({"group of layers", {}, {}});
  add_difference(out, "world size", here.world_size, there.world_size);
  const auto& a = here.geometry;
  const auto& b = there.geometry;
  add_difference(out, "layers", a.layers, b.layers);
  add_difference(out, "parts", a.parts, b.parts);
  add_difference(out, "heads", a.heads, b.heads);
  add_difference(out, "head size", a.head_size, b.head_size);
  add_difference(out, "element bytes", a.element_bytes, b.element_bytes);
  add_difference(out, "block tokens", a.block_tokens, b.block_tokens);
  if (a.further != b.further)
    out.push_back({"further layers", {}, {}});
  return out;
}

verdict why_missing(const missing_key& x) {
  auto out = reason_of(x);
  if (x.complete_now)
    out.text += "; it is complete now";
  return out;
}

verdict why_refused(errc code) {
  return {"lease_refused", "the lease was refused (" + std::string(to_string(code)) +
                               "): registry.max_leases, registry.max_lease_keys, registry.memory_bytes, or the limits "
                               "of HTTP callers (http.limits) were reached"};
}

std::string id_of(const ticket& x) {
  char text[40];
  const auto n = std::snprintf(text, sizeof text, "%016llx-%llx", static_cast<unsigned long long>(x.owner),
                               static_cast<unsigned long long>(x.sequence));
  return {text, static_cast<std::size_t>(n)};
}

std::optional<ticket> ticket_of(std::string_view id) {
  const auto dash = id.find('-');
  if (dash == std::string_view::npos)
    return std::nullopt;
  const auto owner = parse_number<owner_id>(id.substr(0, dash), 16);
  const auto sequence = parse_number(id.substr(dash + 1), 16);
  return owner && sequence ? std::optional(ticket{*owner, *sequence}) : std::nullopt;
}

} // namespace troupe::http::explain
