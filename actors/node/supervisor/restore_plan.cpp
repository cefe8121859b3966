#include "actors/node/supervisor/restore_plan.hpp"

#include "base/layouts.hpp"

namespace troupe {

namespace {

/// The prefix of the names of SGLang's namespaces.
constexpr const char* sglang_prefix = "sglang-";

} // namespace

store::stored_origin origin_of(const store::namespace_record& record) {
  if (record.origin != store::stored_origin::unknown)
    return record.origin;
  // Records from before origins were stored: the layout is the only sign of the protocols of the `hf3fs` section.
  return record.spec.layout == layout_of_slot_clients ? store::stored_origin::protocol : store::stored_origin::api;
}

bool serves_protocol(const config::hf3fs_config& wires, const namespace_spec& ns) {
  if (wires.sglang && ns.world_size == 0 && ns.name.starts_with(sglang_prefix))
    return true;
  return wires.vllm && ns.world_size == wires.world_size &&
         (ns.name == wires.ns || ns.name.starts_with(wires.ns + "-"));
}

restore_plan::restore_plan(restore_terms terms) : terms_(std::move(terms)) {}

void restore_plan::erase_pages(const namespace_id& id, namespace_entry& ns) {
  if (!std::exchange(ns.erased, true))
    changes_.erase_pages(id);
}

void restore_plan::forget(const namespace_id& id, namespace_entry& ns) {
  erase_pages(id, ns);
  ns.forgotten = true;
  changes_.erase_ranks(id);
  changes_.erase_namespace(id);
}

bool restore_plan::admit(const store::namespace_record& record) {
  auto& ns = namespaces_[record.id];
  ns.name = record.spec.name;
  ns.made = origin_of(record) == store::stored_origin::client;
  const bool own = terms_.own.contains(record.id);
  const auto origin = origin_of(record);
  const bool unserved_protocol =
      origin == store::stored_origin::protocol && !serves_protocol(terms_.wires, record.spec);
  if (!own && origin == store::stored_origin::config)
    ns.absence = "the config no longer has it";
  else if (!own && unserved_protocol)
    ns.absence = "its engines cannot reach it with this hf3fs section, and may continue under another name";
  if (!ns.absence.empty() && terms_.forget_absent)
    forget(record.id, ns);
  else if (!terms_.continues || (!own && unserved_protocol))
    erase_pages(record.id, ns);
  return !own && ns.absence.empty();
}

void restore_plan::serve(const namespace_id& id, rank_number rank, incarnation_number incarnation) {
  terms_.own.insert(id);
  terms_.own_ranks[{id, rank}] = incarnation;
}

void restore_plan::set_aside(const namespace_id& id, std::string reason) {
  auto& ns = namespaces_.at(id);
  ns.absence = std::move(reason);
  if (terms_.forget_absent || ns.made)
    forget(id, ns);
}

std::optional<incarnation_number> restore_plan::admit(const store::rank_record& record) {
  const auto found = namespaces_.find(record.ns);
  const std::pair name(record.ns, record.rank);
  if (found == namespaces_.end()) {
    changes_.erase_rank(record.ns, record.rank);
    return std::nullopt;
  }
  const auto& ns = found->second;
  if (ns.forgotten || terms_.own.contains(record.ns))
    return std::nullopt;
  // The new incarnation makes sure that pages that should have been erased never count as this rank's.
  const auto incarnation = ns.erased || record.incarnation == 0 ? terms_.fresh() : record.incarnation;
  if (ns.absence.empty()) {
    ranks_[name] = incarnation;
    return incarnation;
  }
  if (incarnation != record.incarnation)
    changes_.put(store::rank_record{record.ns, record.rank, record.slots, incarnation});
  return std::nullopt;
}

bool restore_plan::admit(const store::page_record& page) {
  if (last_namespace_ == nullptr || last_id_ != page.ns) {
    const auto found = namespaces_.find(page.ns);
    if (found == namespaces_.end()) {
      if (orphans_.insert(page.ns).second)
        changes_.erase_pages(page.ns);
      ++outlived_;
      return false;
    }
    last_namespace_ = &found->second;
    last_id_ = page.ns;
  }
  if (last_namespace_->erased || !last_namespace_->absence.empty()) {
    ++last_namespace_->pages;
    return false;
  }
  const auto& ranks = terms_.own.contains(page.ns) ? terms_.own_ranks : ranks_;
  const auto rank = ranks.find({page.ns, page.rank});
  if (rank != ranks.end() && rank->second == page.incarnation)
    return true;
  ++outlived_;
  changes_.erase_page(page.ns, page.key, page.rank);
  return false;
}

std::vector<restore_plan::absent_namespace> restore_plan::absent() const {
  std::vector<absent_namespace> out;
  for (const auto& [id, x] : namespaces_)
    if (!x.absence.empty())
      out.push_back({x.name, x.absence, x.erased, x.forgotten, x.pages});
  return out;
}

std::uint64_t restore_plan::left_aside() const {
  std::uint64_t n = 0;
  for (const auto& [id, x] : namespaces_)
    if (x.absence.empty() && x.erased)
      n += x.pages;
  return n;
}

} // namespace troupe
