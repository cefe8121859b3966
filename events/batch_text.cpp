#include "events/batch_text.hpp"

#include "lmcache/protocol/msgpack_writer.hpp"

#include <algorithm>
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

/// Appends stored pages: first those whose parent is not among them, each followed by its children.
void append_chains(std::span<const page_event* const> stored, std::vector<const page_event*>& out) {
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> children;
  std::unordered_set<std::uint64_t> here;
  for (const auto* x : stored)
    here.insert(x->page.hash);
  std::vector<std::size_t> open;
  for (std::size_t i = stored.size(); i > 0; --i) {
    const auto& page = stored[i - 1]->page;
    if (page.has_parent && page.parent != page.hash && here.contains(page.parent))
      children[page.parent].push_back(i - 1);
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
      if (const auto found = children.find(stored[i]->page.hash); found != children.end())
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
    return book.shape(a.page.shape).group_idx == book.shape(b.page.shape).group_idx;
  const auto& form = book.shape(a.page.shape);
  return a.page.shape == b.page.shape && b.page.has_parent && b.page.parent == a.page.hash &&
         has_tokens(a.page, form) == has_tokens(b.page, form) &&
         extra_of(a.page, form).empty() == extra_of(b.page, form).empty();
}

void put_hashes(msgpack_writer& to, std::span<const page_event* const> run, const page_book& book) {
  std::uint32_t count = 0;
  for (const auto* x : run)
    count += book.shape(x->page.shape).blocks;
  to.text("block_hashes").array(count);
  for (const auto* x : run)
    for_each_hash(x->page, book.shape(x->page.shape), [&](std::uint64_t hash) { to.natural(hash); });
}

void put_removed(msgpack_writer& to, std::span<const page_event* const> run, const page_book& book) {
  const auto& form = book.shape(run.front()->page.shape);
  to.map(form.group_idx < 0 ? 3 : 4).text("type").text("BlockRemoved");
  put_hashes(to, run, book);
  to.text("medium").text(run.front()->page.in_memory ? medium_memory : medium_disk);
  if (form.group_idx >= 0)
    to.text("group_idx").integer(form.group_idx);
}

void put_stored(msgpack_writer& to, std::span<const page_event* const> run, const page_book& book) {
  const auto& first = run.front()->page;
  const auto& form = book.shape(first.shape);
  const bool has_extra = !extra_of(first, form).empty();
  to.map(8 + (has_extra ? 1U : 0U) + (form.group_idx < 0 ? 0U : 1U)).text("type").text("BlockStored");
  put_hashes(to, run, book);
  to.text("parent_block_hash");
  if (first.has_parent)
    to.natural(first.parent);
  else
    to.nil();
  const auto tokens = has_tokens(first, form) ? form.blocks * form.block_tokens : 0;
  to.text("token_ids").array(static_cast<std::uint32_t>(run.size()) * tokens);
  for (const auto* x : run)
    for_each_token(x->page, form, [&](std::uint32_t token) { to.natural(token); });
  to.text("block_size").natural(form.block_tokens);
  to.text("lora_id").nil();
  to.text("medium").text(first.in_memory ? medium_memory : medium_disk);
  to.text("lora_name");
  if (form.lora.empty())
    to.nil();
  else
    to.text(form.lora);
  if (has_extra) {
    to.text("extra_keys").array(static_cast<std::uint32_t>(run.size()) * form.blocks);
    // Each page's piece is an array: its elements follow the head, whose length depends on their number.
    for (const auto* x : run)
      to.raw(extra_of(x->page, form).substr(form.blocks < 16 ? 1 : 3));
  }
  if (form.group_idx >= 0)
    to.text("group_idx").integer(form.group_idx);
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
  std::vector<std::span<const page_event* const>> runs;
  for (std::size_t begin = 0; begin < order.size();) {
    auto end = begin + 1;
    auto blocks = std::size_t{book.shape(order[begin]->page.shape).blocks};
    for (; end < order.size() && blocks < blocks_most && alike(*order[end - 1], *order[end], book); ++end)
      blocks += book.shape(order[end]->page.shape).blocks;
    runs.push_back(std::span(order).subspan(begin, end - begin));
    begin = end;
  }
  msgpack_writer to;
  to.array(3).real(head.time).array(static_cast<std::uint32_t>(runs.size()) + (head.cleared ? 1U : 0U));
  if (head.cleared)
    to.map(1).text("type").text("AllBlocksCleared");
  for (const auto run : runs)
    if (run.front()->what == kind::removed)
      put_removed(to, run, book);
    else
      put_stored(to, run, book);
  to.natural(0);
  return to.take();
}

} // namespace troupe::events
