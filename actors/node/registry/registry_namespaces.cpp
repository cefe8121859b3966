// Namespaces and ranks that come and go, and what administrators ask for.

#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

template <class T>
void append_difference(std::string& out, std::string_view field, const T& ours, const T& theirs) {
  if (ours == theirs)
    return;
  if (!out.empty())
    out.append(", ");
  if constexpr (std::is_same_v<T, std::string>)
    out.append(field).append(" \"").append(ours).append("\" is not \"").append(theirs).append("\"");
  else
    out.append(field).append(" ").append(std::to_string(ours)).append(" is not ").append(std::to_string(theirs));
}

/// How the first groups that are not equal differ.
void append_difference(std::string& out, const std::vector<kv_layer_group>& ours,
                       const std::vector<kv_layer_group>& theirs) {
  append_difference(out, "number of further_layers", ours.size(), theirs.size());
  const auto [our, their] = std::ranges::mismatch(ours, theirs);
  if (our == ours.end() || their == theirs.end())
    return;
  const auto at = "further_layers[" + std::to_string(our - ours.begin()) + "].";
  append_difference(out, at + "layers", our->layers, their->layers);
  append_difference(out, at + "parts", our->shape.parts, their->shape.parts);
  append_difference(out, at + "heads", our->shape.heads, their->shape.heads);
  append_difference(out, at + "head_size", our->shape.head_size, their->shape.head_size);
  append_difference(out, at + "element_bytes", our->shape.element_bytes, their->shape.element_bytes);
}

/// Which fields of the identity differ, and how.
std::string differences(const namespace_spec& ours, const namespace_spec& theirs) {
  std::string out;
  append_difference(out, "model", ours.model, theirs.model);
  append_difference(out, "revision", ours.revision, theirs.revision);
  append_difference(out, "dtype", ours.dtype, theirs.dtype);
  append_difference(out, "layout", ours.layout, theirs.layout);
  append_difference(out, "salt", ours.salt, theirs.salt);
  append_difference(out, "world_size", ours.world_size, theirs.world_size);
  append_difference(out, "layers", ours.geometry.layers, theirs.geometry.layers);
  append_difference(out, "parts", ours.geometry.parts, theirs.geometry.parts);
  append_difference(out, "heads", ours.geometry.heads, theirs.geometry.heads);
  append_difference(out, "head_size", ours.geometry.head_size, theirs.geometry.head_size);
  append_difference(out, "element_bytes", ours.geometry.element_bytes, theirs.geometry.element_bytes);
  append_difference(out, "block_tokens", ours.geometry.block_tokens, theirs.geometry.block_tokens);
  append_difference(out, ours.geometry.further, theirs.geometry.further);
  return out;
}

/// Which options differ, and how.
std::string differences(const namespace_options& ours, const namespace_options& theirs) {
  std::string out;
  append_difference(out, "automatic", ours.automatic, theirs.automatic);
  append_difference(out, "slot_index", ours.slot_index, theirs.slot_index);
  append_difference(out, "max_ranks", ours.max_ranks, theirs.max_ranks);
  return out;
}

error out_of_bounds(const namespace_spec& spec, std::string_view what, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  return {errc::invalid_argument, "namespace \"" + spec.name + "\": " + std::string(what) + " is " +
                                      std::to_string(value) + ", and must be from " + std::to_string(least) + " to " +
                                      std::to_string(most)};
}

/// What one rank has of an entry.
std::optional<key_page> page_of(page_cell cell, rank_number rank, const reservation_table& reservations,
                                const anonymous_table& anonymous) {
  if (cell.live())
    return key_page{rank, key_page::use::live, cell.where()};
  if (cell.has_token())
    return key_page{rank, key_page::use::reserved, reservations.page(cell.record()).where};
  if (!cell.anonymous())
    return std::nullopt;
  const auto& page = anonymous.at(cell.record());
  return key_page{rank, page.shared ? key_page::use::shared : key_page::use::allocated, page.where};
}

} // namespace

// -- namespaces -----------------------------------------------------------------------------------------------------

result<void> registry_state::add_namespace(const namespace_spec& spec, const namespace_options& options) {
  constexpr auto most_ranks = std::numeric_limits<std::uint16_t>::max();
  const auto most = std::min<std::uint32_t>(options_.max_ranks, most_ranks);
  if (options.automatic && spec.world_size != 0)
    return refuse({errc::invalid_argument, "namespace \"" + spec.name + "\": world_size is " +
                                               std::to_string(spec.world_size) +
                                               ", and must be 0 where it follows from the ranks that register"});
  if (options.automatic && (options.max_ranks == 0 || options.max_ranks > most))
    return refuse(out_of_bounds(spec, "max_ranks", options.max_ranks, 1, most));
  if (!options.automatic && (spec.world_size == 0 || spec.world_size > most_ranks))
    return refuse(out_of_bounds(spec, "world_size", spec.world_size, 1, most_ranks));
  const auto id = spec.id();
  std::uint32_t known_spaces = 0;
  for (const auto& space : spaces_) {
    if (!space)
      continue;
    ++known_spaces;
    const auto& known = space->spec();
    if (space->id() != id && known.name != spec.name)
      continue;
    if (removals_.contains(space->id()))
      return refuse({errc::busy, "namespace \"" + known.name + "\" is being removed; try again when it is gone"});
    auto different = differences(known, spec);
    if (different.empty())
      different = differences(space->options(), options);
    if (!different.empty())
      return refuse({errc::identity_mismatch, "namespace \"" + spec.name + "\" is known as another one: " + different +
                                                  "; give it another name, or use the same settings"});
    if (space->id() == id) {
      space->share_with(options.origin);
      return {};
    }
  }
  if (known_spaces >= options_.max_namespaces)
    return refuse({errc::limit_exceeded, "namespace \"" + spec.name + "\" would be one more than the " +
                                             std::to_string(options_.max_namespaces) + " that are allowed"});
  const auto number = free_space_number();
  if (number == spaces_.size())
    spaces_.emplace_back();
  spaces_[number] = std::make_unique<key_space>(key_space::settings{spec, options, options_.shard, options_.shard_count,
                                                                    options_.hash_seed, options_.change_feed,
                                                                    options_.children_hold, options_.memory});
  spaces_[number]->account();
  space_numbers_.emplace(id, number);
  return {};
}

std::uint32_t registry_state::free_space_number() const {
  return static_cast<std::uint32_t>(std::find(spaces_.begin(), spaces_.end(), nullptr) - spaces_.begin());
}

result<void> registry_state::add_rank(const namespace_id& id, rank_number rank, std::uint32_t slots,
                                      incarnation_number incarnation) {
  const auto number = space_number(id);
  if (!number)
    return refuse(number.error());
  auto& space = *spaces_[*number];
  if (rank >= space.rank_limit())
    return refuse({errc::out_of_range, "rank " + std::to_string(rank) + ": ranks of namespace \"" + space.spec().name +
                                           "\" are below " + std::to_string(space.rank_limit())});
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + space.spec().name + "\"";
  if (slots == 0)
    return refuse({errc::invalid_argument, name + " is registered without slots"});
  const auto info = space.info_of(rank);
  const auto known = info.slots;
  if (known != 0 && known != slots)
    return refuse({errc::identity_mismatch, name + " has " + std::to_string(known) + " slots, and is registered with " +
                                                std::to_string(slots) + "; clear what is there under another name"});
  const bool renewed = incarnation != 0 && incarnation != space.incarnation_of(rank);
  if (renewed && info.pages + info.reserved + info.withheld > 0)
    return refuse({errc::busy, name + " has pages of an earlier registration; clear it first"});
  space.add_rank(rank, slots, incarnation);
  return {};
}

result<void> registry_state::retire_rank(const namespace_id& id, rank_number rank) {
  const auto found = find_rank(id, rank);
  if (!found)
    return refuse(found.error());
  auto& space = found->keys;
  const auto name = "rank " + std::to_string(rank) + " of namespace \"" + space.spec().name + "\"";
  const auto held = space.info_of(rank);
  // That it holds nothing is not enough: two groups of engines that were given one namespace by mistake would take it
  // from each other as long as neither has saved anything.
  if (held.pages > 0 || !space.was_cleared(rank))
    return refuse({errc::identity_mismatch, name + " has " + std::to_string(held.slots) + " slots, " +
                                                std::to_string(held.pages) +
                                                " of them with pages, and cannot have others before it is cleared"});
  if (held.reserved + held.withheld > 0)
    return refuse({errc::busy, name + " has " + std::to_string(held.reserved) + " reserved slots, and " +
                                   std::to_string(held.withheld) +
                                   " that readers may still use: try again when their time is over"});
  space.retire_rank(rank);
  return {};
}

bool registry_state::removed(std::uint32_t space) const {
  return removals_.contains(spaces_[space]->id());
}

result<remove_namespace_reply> registry_state::remove_namespace(const remove_namespace_request& request,
                                                                timestamp now) {
  auto found = removals_.find(request.space);
  if (found == removals_.end()) {
    const auto number = space_number(request.space);
    if (!number)
      return refuse(number.error());
    const auto leases = leases_.count_in(*number);
    const auto reservations = reservations_.count_in(*number) + anonymous_.count(*number);
    auto& space = *spaces_[*number];
    if (!request.force && leases + reservations > 0)
      return refuse({errc::busy, "namespace \"" + space.spec().name + "\" has " + std::to_string(leases) +
                                     " leases and " + std::to_string(reservations) +
                                     " reservations; wait for them, or force its removal"});
    space.outbox().change(namespace_removed{request.space});
    space.outbox().end_changes();
    leases_.doom_space(*number);
    reservations_.doom_space(*number);
    anonymous_.doom(*number);
    space_numbers_.erase(request.space);
    found = removals_.emplace(request.space, removal{*number, 0}).first;
  }
  tick(now);
  auto& progress = found->second;
  auto& space = *spaces_[progress.space];
  std::uint64_t pages = 0;
  // Nothing is protected any more: the slots go with their slab.
  progress.from = space.clear(all_ranks, progress.from, options_.max_clear_looks, coarse_never, pages);
  space.release_due(coarse_never, options_.max_clear_looks);
  erased_pages_ += pages;
  if (!finish_removal(progress))
    return remove_namespace_reply{true};
  removals_.erase(found);
  return remove_namespace_reply{false};
}

bool registry_state::finish_removal(const removal& what) {
  auto& space = spaces_[what.space];
  if (what.from < space->table().end() || space->withheld_slots() > 0 || leases_.count_in(what.space) > 0 ||
      reservations_.count_in(what.space) > 0 || anonymous_.count(what.space) > 0)
    return false;
  space->outbox().drain_into(left_over_);
  holds_.forget_space(what.space);
  evicted_keys_ += space->evicted_keys(); // totals never fall
  space.reset();
  return true;
}

// -- looking ----------------------------------------------------------------------------------------------------------

result<describe_reply> registry_state::describe(const describe_request& request) const {
  describe_reply reply;
  for (std::uint32_t number = 0; number < spaces_.size(); ++number) {
    const auto& space = spaces_[number];
    if (!space || removed(number) || (!request.space.is_null() && request.space != space->id()))
      continue;
    namespace_info info{space->spec(),
                        space->options(),
                        space->keys(),
                        space->complete_keys(),
                        space->evicted_keys(),
                        leases_.count_in(number),
                        0,
                        {}};
    for (const auto rank : space->ranks()) {
      info.ranks.items.push_back(space->info_of(rank));
      info.reservations += info.ranks.items.back().reserved;
    }
    reply.spaces.push_back(std::move(info));
  }
  if (!request.space.is_null() && reply.spaces.empty())
    return tl::unexpected<error>(space_number(request.space).error());
  return reply;
}

result<key_reply> registry_state::look_up(const key_request& request, timestamp now) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  const auto& space = *spaces_[*number];
  const auto entry = space.table().find(request.key);
  if (entry == no_entry || space.table().entry(entry).ghost())
    return fail(errc::not_found, "no key " + to_string(request.key) + " in namespace \"" + space.spec().name + "\"");
  const auto& e = space.table().entry(entry);
  key_reply reply{space.table().parent(entry), e.children, e.leases, space.complete(entry), {}, {}};
  if (e.is_protected(clock_.now(now)))
    reply.protected_for = duration(clock_.begin(e.protected_until) - now);
  for (const auto rank : space.ranks())
    if (const auto page = page_of(space.table().page(entry, rank), rank, reservations_, anonymous_))
      reply.pages.items.push_back(*page);
  return reply;
}

// -- erasing ----------------------------------------------------------------------------------------------------------

result<result_codes> registry_state::erase(const erase_request& request, timestamp now) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  auto& space = *spaces_[*number];
  auto bad = request.rank == all_ranks ? std::nullopt : check_rank(space, request.rank);
  if (!bad)
    bad = check_keys(request.keys.items);
  if (bad)
    return refuse(std::move(*bad));
  found_.resize(request.keys.size());
  space.table().find(request.keys.items, found_);
  result_codes reply;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto entry = space.table().refresh(found_[i], request.keys[i]);
    std::uint64_t pages = 0;
    if (entry != no_entry)
      space.clear(request.rank, entry, 1, clock_.now(now), pages);
    erased_pages_ += pages;
    reply.results.items.push_back(static_cast<std::uint8_t>(pages > 0 ? errc::ok : errc::not_found));
  }
  return reply;
}

result<clear_reply> registry_state::clear(const clear_request& request, timestamp now) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  auto& space = *spaces_[*number];
  if (request.rank != all_ranks)
    if (auto bad = check_rank(space, request.rank))
      return refuse(std::move(*bad));
  space.note_cleared(request.rank);
  clear_reply reply;
  reply.next = space.clear(request.rank, request.from, options_.max_clear_looks, clock_.now(now), reply.pages);
  reply.more = reply.next < space.table().end();
  erased_pages_ += reply.pages;
  return reply;
}

} // namespace troupe
