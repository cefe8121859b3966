#include "actors/node/supervisor/restore_plan.hpp"

#include "base/layouts.hpp"

namespace troupe {

namespace {

/// The prefix of the names of SGLang's namespaces.
constexpr const char* sglang_prefix = "sglang-";

} // namespace

store::space_origin origin_of(const store::namespace_record& record) {
  if (record.origin != store::space_origin::unknown)
    return record.origin;
  // Records from before origins were stored: the layout is the only sign of the protocols of the `hf3fs` section.
  return record.spec.layout == layout_of_slot_clients ? store::space_origin::wire : store::space_origin::api;
}

bool serves_wire(const config::hf3fs_config& wires, const namespace_spec& space) {
  if (wires.sglang && space.world_size == 0 && space.name.starts_with(sglang_prefix))
    return true;
  return wires.vllm && space.world_size == wires.world_size &&
         (space.name == wires.space || space.name.starts_with(wires.space + "-"));
}

restore_plan::restore_plan(restore_terms terms) : terms_(std::move(terms)) {}

void restore_plan::erase_pages(const namespace_id& id, space_entry& space) {
  if (!std::exchange(space.erased, true))
    changes_.erase_pages(id);
}

void restore_plan::forget(const namespace_id& id, space_entry& space) {
  erase_pages(id, space);
  space.forgotten = true;
  changes_.erase_ranks(id);
  changes_.erase_namespace(id);
}

bool restore_plan::admit(const store::namespace_record& record) {
  auto& space = spaces_[record.id];
  space.name = record.spec.name;
  space.made = origin_of(record) == store::space_origin::client;
  const bool own = terms_.own.contains(record.id);
  const auto origin = origin_of(record);
  const bool unserved_wire = origin == store::space_origin::wire && !serves_wire(terms_.wires, record.spec);
  if (!own && origin == store::space_origin::config)
    space.absence = "the config no longer has it";
  else if (!own && unserved_wire)
    space.absence = "its engines cannot reach it with this hf3fs section, and may continue under another name";
  if (!space.absence.empty() && terms_.forget_absent)
    forget(record.id, space);
  else if (!terms_.continues || (!own && unserved_wire))
    erase_pages(record.id, space);
  return !own && space.absence.empty();
}

void restore_plan::serve(const namespace_id& id, rank_number rank, incarnation_number incarnation) {
  terms_.own.insert(id);
  terms_.own_ranks[{id, rank}] = incarnation;
}

void restore_plan::set_aside(const namespace_id& id, std::string reason) {
  auto& space = spaces_.at(id);
  space.absence = std::move(reason);
  if (terms_.forget_absent || space.made)
    forget(id, space);
}

std::optional<incarnation_number> restore_plan::admit(const store::rank_record& record) {
  const auto found = spaces_.find(record.space);
  const std::pair name(record.space, record.rank);
  if (found == spaces_.end()) {
    changes_.erase_rank(record.space, record.rank);
    return std::nullopt;
  }
  const auto& space = found->second;
  if (space.forgotten || terms_.own.contains(record.space))
    return std::nullopt;
  // The new incarnation makes sure that pages that should have been erased never count as this rank's.
  const auto incarnation = space.erased || record.incarnation == 0 ? terms_.fresh() : record.incarnation;
  if (space.absence.empty()) {
    ranks_[name] = incarnation;
    return incarnation;
  }
  if (incarnation != record.incarnation)
    changes_.put(store::rank_record{record.space, record.rank, record.slots, incarnation});
  return std::nullopt;
}

bool restore_plan::admit(const store::page_record& page) {
  if (last_space_ == nullptr || last_id_ != page.space) {
    const auto found = spaces_.find(page.space);
    if (found == spaces_.end()) {
      if (orphans_.insert(page.space).second)
        changes_.erase_pages(page.space);
      ++outlived_;
      return false;
    }
    last_space_ = &found->second;
    last_id_ = page.space;
  }
  if (last_space_->erased || !last_space_->absence.empty()) {
    ++last_space_->pages;
    return false;
  }
  const auto& ranks = terms_.own.contains(page.space) ? terms_.own_ranks : ranks_;
  const auto rank = ranks.find({page.space, page.rank});
  if (rank != ranks.end() && rank->second == page.incarnation)
    return true;
  ++outlived_;
  changes_.erase_page(page.space, page.key, page.rank);
  return false;
}

std::vector<restore_plan::absent_space> restore_plan::absent() const {
  std::vector<absent_space> out;
  for (const auto& [id, x] : spaces_)
    if (!x.absence.empty())
      out.push_back({x.name, x.absence, x.erased, x.forgotten, x.pages});
  return out;
}

std::uint64_t restore_plan::left_aside() const {
  std::uint64_t n = 0;
  for (const auto& [id, x] : spaces_)
    if (x.absence.empty() && x.erased)
      n += x.pages;
  return n;
}

} // namespace troupe
