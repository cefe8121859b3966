#include "events/batch_text.hpp"

#include "lmcache/protocol/msgpack_writer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace troupe::events {

namespace {

using lmcache::protocol::msgpack_writer;
using kind = page_event::kind;

/// Blocks of one event at most, so that no event is very long.
constexpr std::size_t blocks_most = 256;

/// A block as the parent of others: engines have the same hash in each of their groups.
struct chain_link {
  std::uint64_t hash = 0;
  std::uint16_t shape = 0;

  friend bool operator==(const chain_link&, const chain_link&) = default;
};

struct chain_link_hash {
  std::size_t operator()(const chain_link& x) const noexcept { return x.hash ^ (x.shape * 0x9e3779b97f4a7c15U); }
};

/// Appends stored pages: first those whose parent is not among them, each followed by its children.
void append_chains(std::span<const page_event* const> stored, std::vector<const page_event*>& out) {
  std::unordered_map<chain_link, std::vector<std::size_t>, chain_link_hash> children;
  std::unordered_set<chain_link, chain_link_hash> here;
  for (const auto* x : stored)
    here.insert({x->page.hash, x->page.shape});
  std::vector<std::size_t> open;
  for (std::size_t i = stored.size(); i > 0; --i) {
    const auto& page = stored[i - 1]->page;
    if (page.has_parent && page.parent != page.hash && here.contains({page.parent, page.shape}))
      children[{page.parent, page.shape}].push_back(i - 1);
    else
      open.push_back(i - 1);
  }
  std::vector<bool> done(stored.size(), false);
  const auto follow = [&] {
    while (!open.empty()) {
      const auto i = open.back();
      open.pop_back();
      if (done[i])
        continue;
      done[i] = true;
      out.push_back(stored[i]);
      if (const auto found = children.find({stored[i]->page.hash, stored[i]->page.shape}); found != children.end())
        open.insert(open.end(), found->second.begin(), found->second.end());
    }
  };
  follow();
  // Hashes come from clients, and may name each other in a ring.
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (!done[i]) {
      open.push_back(i);
      follow();
    }
}

/// Events that no page is named in twice.
void append_arranged(std::span<const page_event> part, std::vector<const page_event*>& out) {
  std::vector<const page_event*> stored;
  for (const auto& x : part)
    (x.what == kind::removed ? out : stored).push_back(&x);
  append_chains(stored, out);
}

bool alike(const page_event& a, const page_event& b, const page_book& book) {
  if (a.what != b.what || a.page.in_memory != b.page.in_memory)
    return false;
  if (a.what == kind::removed)
    return book.shape(a.page.shape).groups == book.shape(b.page.shape).groups;
  const auto& form = book.shape(a.page.shape);
  return a.page.shape == b.page.shape && b.page.has_parent && b.page.parent == a.page.hash &&
         has_tokens(a.page, form) == has_tokens(b.page, form) &&
         extra_of(a.page, form).empty() == extra_of(b.page, form).empty();
}

using run = std::span<const page_event* const>;

void put_hashes(msgpack_writer& to, const run& pages, const page_book& book) {
  std::uint32_t count = 0;
  for (const auto* x : pages)
    count += book.shape(x->page.shape).blocks;
  to.array(count);
  for (const auto* x : pages)
    for_each_hash(x->page, book.shape(x->page.shape), [&](std::uint64_t hash) { to.natural(hash); });
}

/// An event as a map or as an array. A field that is not `there` is left out of a map; in an array it is nil, unless
/// nothing follows it.
class event_writer {
public:
  event_writer(msgpack_writer& to, event_form form) : to_(to), form_(form) {}

  struct field {
    std::string_view name;
    bool there = true;
  };

  /// Calls `put(i)` for the value of each field i that is there, in their order.
  template <class Put>
  void write(std::string_view type, std::span<const field> fields, Put&& put) {
    auto end = fields.size();
    while (end > 0 && !fields[end - 1].there)
      --end;
    const auto there = static_cast<std::uint32_t>(std::ranges::count_if(fields, &field::there));
    if (form_ == event_form::map)
      to_.map(there + 1).text("type");
    else
      to_.array(static_cast<std::uint32_t>(end) + 1);
    to_.text(type);
    for (std::size_t i = 0; i < end; ++i) {
      if (form_ == event_form::map) {
        if (!fields[i].there)
          continue;
        to_.text(fields[i].name);
      }
      if (fields[i].there)
        put(i);
      else
        to_.nil();
    }
  }

private:
  msgpack_writer& to_;
  event_form form_;
};

std::string_view medium_of(const run& pages) {
  return pages.front()->page.in_memory ? medium_memory : medium_disk;
}

void put_removed(msgpack_writer& to, event_form form, const run& pages, const described_group* group,
                 const page_book& book) {
  const std::array<event_writer::field, 3> fields{{{"block_hashes"}, {"medium"}, {"group_idx", group != nullptr}}};
  event_writer(to, form).write("BlockRemoved", fields, [&](std::size_t i) {
    if (i == 0)
      put_hashes(to, pages, book);
    else if (i == 1)
      to.text(medium_of(pages));
    else
      to.natural(group->index);
  });
}

void put_tokens(msgpack_writer& to, const run& pages, const page_shape& form) {
  const auto each = has_tokens(pages.front()->page, form) ? form.blocks * form.block_tokens : 0;
  to.array(static_cast<std::uint32_t>(pages.size()) * each);
  for (const auto* x : pages)
    for_each_token(x->page, form, [&](std::uint32_t token) { to.natural(token); });
}

void put_extra(msgpack_writer& to, const run& pages, const page_shape& form) {
  to.array(static_cast<std::uint32_t>(pages.size()) * form.blocks);
  // Each page's piece is an array: its elements follow the head, whose length depends on their number.
  for (const auto* x : pages)
    to.raw(extra_of(x->page, form).substr(form.blocks < 16 ? 1 : 3));
}

void put_stored(msgpack_writer& to, event_form how, const run& pages, const described_group* group,
                const page_book& book) {
  const auto& first = pages.front()->page;
  const auto& form = book.shape(first.shape);
  enum : std::size_t { hashes, parent, tokens, size, lora_id, medium, lora_name, extra, index, kind_of_group, window };
  const std::array<event_writer::field, 11> fields{
      {{"block_hashes"},
       {"parent_block_hash"},
       {"token_ids"},
       {"block_size"},
       {"lora_id"},
       {"medium"},
       {"lora_name"},
       {"extra_keys", !extra_of(first, form).empty()},
       {"group_idx", group != nullptr},
       {"kv_cache_spec_kind", group != nullptr && !group->kind.empty()},
       {"kv_cache_spec_sliding_window", group != nullptr && group->window != 0}}};
  event_writer(to, how).write("BlockStored", fields, [&](std::size_t i) {
    switch (i) {
    case hashes:
      return put_hashes(to, pages, book);
    case parent:
      return static_cast<void>(first.has_parent ? to.natural(first.parent) : to.nil());
    case tokens:
      return put_tokens(to, pages, form);
    case size:
      return static_cast<void>(to.natural(form.block_tokens));
    case lora_id:
      return static_cast<void>(to.nil());
    case medium:
      return static_cast<void>(to.text(medium_of(pages)));
    case lora_name:
      return static_cast<void>(form.lora.empty() ? to.nil() : to.text(form.lora));
    case extra:
      return put_extra(to, pages, form);
    case index:
      return static_cast<void>(to.natural(group->index));
    case kind_of_group:
      return static_cast<void>(to.text(group->kind));
    case window:
      return static_cast<void>(to.natural(group->window));
    default:
      return;
    }
  });
}

void put_event(msgpack_writer& to, event_form form, const run& pages, const described_group* group,
               const page_book& book) {
  if (pages.front()->what == kind::removed)
    put_removed(to, form, pages, group, book);
  else
    put_stored(to, form, pages, group, book);
}

} // namespace

std::vector<const page_event*> arranged(std::span<const page_event> events) {
  std::vector<const page_event*> out;
  out.reserve(events.size());
  std::unordered_set<std::uint64_t> named;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (named.insert(events[i].page.id).second)
      continue;
    append_arranged(events.subspan(begin, i - begin), out);
    named = {events[i].page.id};
    begin = i;
  }
  append_arranged(events.subspan(begin), out);
  return out;
}

std::string batch_text(const batch_head& head, std::span<const page_event> events, const page_book& book) {
  const auto order = arranged(events);
  std::vector<run> runs;
  for (std::size_t begin = 0; begin < order.size();) {
    auto end = begin + 1;
    auto blocks = std::size_t{book.shape(order[begin]->page.shape).blocks};
    for (; end < order.size() && blocks < blocks_most && alike(*order[end - 1], *order[end], book); ++end)
      blocks += book.shape(order[end]->page.shape).blocks;
    runs.push_back(std::span(order).subspan(begin, end - begin));
    begin = end;
  }
  const auto groups_of = [&book](const run& pages) -> const std::vector<described_group>& {
    return book.shape(pages.front()->page.shape).groups;
  };
  auto count = head.cleared ? std::size_t{1} : 0;
  for (const auto& pages : runs)
    count += std::max<std::size_t>(1, groups_of(pages).size());
  msgpack_writer to;
  to.array(3).real(head.time).array(static_cast<std::uint32_t>(count));
  if (head.cleared)
    event_writer(to, head.form).write("AllBlocksCleared", {}, [](std::size_t) {});
  for (const auto& pages : runs) {
    if (groups_of(pages).empty())
      put_event(to, head.form, pages, nullptr, book);
    for (const auto& group : groups_of(pages))
      put_event(to, head.form, pages, &group, book);
  }
  to.natural(0);
  return to.take();
}

} // namespace troupe::events
