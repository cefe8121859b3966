#include "events/hub.hpp"

#include "events/batch_text.hpp"
#include "messages/description_pages.hpp"

#include <algorithm>
#include <utility>

namespace troupe::events {

namespace {

void add_to(counters::number& x, std::uint64_t n = 1) {
  x.fetch_add(n, std::memory_order_relaxed);
}

} // namespace

hub::hub(hub_options options)
    : options_(std::move(options)), book_(options_.seed, options_.details_max),
      streams_({options_.topic, options_.node, options_.form, options_.first_number, options_.kept_batches,
                options_.kept_bytes}) {}

void hub::take(feed::batch changes, timestamp now, double wall) {
  if (changes.overflowed)
    start_again(now, wall);
  for (auto& x : changes.changes)
    std::visit([&](auto& what) { apply(x.ns, what, now, wall); }, x.what);
  if (options_.log)
    options_.log->notify();
  count();
}

void hub::start_again(timestamp now, double wall) {
  add_to(options_.counts->overflows);
  book_.clear();
  if (options_.log)
    options_.log->lose();
  streams_.for_each([&](std::uint32_t, stream& x) {
    x.pending.clear();
    seal(x, now, wall, true);
  });
}

void hub::apply(const namespace_id& ns, const namespace_served& x, timestamp now, double wall) {
  const auto found = streams_.serve(ns, x.spec->model);
  if (options_.log && options_.log->logs(*x.spec) && !logged_.contains(ns))
    logged_.emplace(ns, std::make_shared<const std::string>(x.spec->model));
  // A subscriber may know what an earlier run held.
  if (found.is_new)
    seal(streams_.at(found.number), now, wall, true);
}

void hub::apply(const namespace_id& ns, const namespace_ended&, timestamp, double) {
  if (streams_.end(ns))
    logged_.erase(ns);
}

void hub::log(const namespace_id& ns, page_event::kind what, const page_record& page) {
  const auto model = logged_.find(ns);
  if (model == logged_.end())
    return;
  logged_change out;
  out.what = what == page_event::kind::stored ? logged_change::kind::stored : logged_change::kind::removed;
  out.model = model->second;
  out.hash = page.hash;
  if (what == page_event::kind::stored) {
    out.parent = page.parent;
    out.has_parent = page.has_parent;
    for_each_token(page, book_.shape(page.shape), [&](std::uint32_t token) { out.tokens.push_back(token); });
  }
  options_.log->append(std::move(out));
}

page_record hub::record_of(const page_descriptions& x, std::size_t at, std::uint64_t id, std::uint16_t shape) const {
  const auto blocks = x.blocks_per_page;
  page_record out;
  out.id = id;
  out.shape = shape;
  out.hash = x.hashes[at * blocks + blocks - 1];
  out.has_parent = x.has_parent[at] != 0;
  out.parent = out.has_parent ? x.parents[at] : 0;
  const auto tokens = std::size_t{blocks} * x.block_tokens;
  out.details.assign(reinterpret_cast<const char*>(&x.hashes.items[at * blocks]), (blocks - 1) * sizeof(std::uint64_t));
  out.details.append(reinterpret_cast<const char*>(&x.tokens.items[at * tokens]), tokens * sizeof(std::uint32_t));
  out.details.append(extra_of(x, at));
  return out;
}

std::optional<std::uint16_t> hub::number_of(const page_shape& shape, timestamp now, double wall) {
  if (const auto known = book_.number_of(shape))
    return known;
  // Adapters and streams come and go. Pending changes name shapes that no page may have any more.
  streams_.for_each([&](std::uint32_t, stream& x) {
    if (!x.pending.empty())
      seal(x, now, wall);
  });
  return book_.forget_unused_shapes() ? book_.number_of(shape) : std::nullopt;
}

void hub::apply(const namespace_id& ns, pages_described& x, timestamp now, double wall) {
  const auto found = streams_.number_of(ns);
  if (!found)
    return;
  const auto shape =
      number_of({*found, x.pages.block_tokens, x.pages.blocks_per_page, x.pages.groups, x.pages.lora}, now, wall);
  if (!shape)
    return add_to(options_.counts->refused_descriptions, x.positions.size());
  for (std::size_t i = 0; i < x.positions.size(); ++i) {
    const auto at = x.positions[i];
    auto page = record_of(x.pages, at, book_.id_of(ns, x.pages.keys[at]), *shape);
    page.in_memory = x.in_memory[i] != 0;
    switch (book_.store(page)) {
    case page_book::outcome::stored:
      add_to(options_.counts->stored);
      log(ns, page_event::kind::stored, page);
      add(*found, {page_event::kind::stored, std::move(page)}, now, wall);
      break;
    case page_book::outcome::completed:
      page.in_memory = book_.find(page.id)->in_memory;
      add(*found, {page_event::kind::stored, std::move(page)}, now, wall);
      break;
    case page_book::outcome::known:
      break;
    case page_book::outcome::differs:
    case page_book::outcome::full:
      add_to(options_.counts->refused_descriptions);
      break;
    }
  }
}

void hub::apply(const namespace_id& ns, const keys_removed& x, timestamp now, double wall) {
  for (const auto& key : x.keys)
    if (auto page = book_.remove(book_.id_of(ns, key))) {
      add_to(options_.counts->removed);
      log(ns, page_event::kind::removed, *page);
      const auto to = book_.shape(page->shape).stream;
      add(to, {page_event::kind::removed, std::move(*page)}, now, wall);
    }
}

void hub::apply(const namespace_id& ns, const keys_moved& x, timestamp now, double wall) {
  for (std::size_t i = 0; i < x.keys.size(); ++i) {
    auto page = book_.move(book_.id_of(ns, x.keys[i]), x.in_memory[i] != 0);
    if (!page)
      continue;
    add_to(options_.counts->moved);
    const auto& form = book_.shape(page->shape);
    // Subscribers could not use the page in its new place without tokens, and must forget it in the old one.
    auto before = *page;
    before.in_memory = !page->in_memory;
    before.details.resize(hash_bytes_of(form));
    add(form.stream, {page_event::kind::removed, std::move(before)}, now, wall);
    if (has_tokens(*page, form))
      add(form.stream, {page_event::kind::stored, std::move(*page)}, now, wall);
    else if (book_.remove(page->id))
      log(ns, page_event::kind::removed, *page);
  }
}

void hub::add(std::uint32_t number, page_event what, timestamp now, double wall) {
  auto& to = streams_.at(number);
  if (to.pending.empty())
    to.pending_since = now;
  to.pending.push_back(std::move(what));
  if (to.pending.size() >= options_.batch_pages)
    seal(to, now, wall);
}

void hub::seal(stream& of, timestamp now, double wall, bool cleared) {
  ready_.push_back({of.topic, of.log.append(batch_text({wall, cleared, of.form}, of.pending, book_))});
  of.pending.clear();
  of.last_batch = now;
  add_to(options_.counts->batches);
}

std::vector<published_batch> hub::flush(timestamp now, double wall) {
  streams_.forget_ended([this](std::uint32_t number) { return is_replayed(number); });
  streams_.for_each([&](std::uint32_t, stream& x) {
    if ((!x.pending.empty() && now - x.pending_since >= options_.batch_time) ||
        now - x.last_batch >= options_.heartbeat)
      seal(x, now, wall);
  });
  count();
  return std::exchange(ready_, {});
}

bool hub::is_replayed(std::uint32_t stream) const {
  return std::ranges::any_of(replays_, [stream](const requester_state& x) {
    return std::ranges::any_of(x.parts, [stream](const replay& part) { return part.stream_number() == stream; });
  });
}

std::optional<timestamp> hub::next_due() const {
  std::optional<timestamp> out;
  if (!ready_.empty())
    return timestamp{};
  streams_.for_each([&](std::uint32_t, const stream& x) {
    auto due = x.last_batch + options_.heartbeat;
    if (!x.pending.empty())
      due = std::min(due, x.pending_since + options_.batch_time);
    out = out ? std::min(*out, due) : due;
  });
  return out;
}

bool hub::request(std::string requester, std::uint64_t start, std::optional<std::string_view> topic, timestamp now) {
  const auto known = std::ranges::find(replays_, requester, &requester_state::requester);
  if (known != replays_.end())
    end(known, true);
  if (replays_.size() >= options_.replays_max) {
    add_to(options_.counts->refused_replays);
    return false;
  }
  add_to(options_.counts->replays);
  requester_state x;
  x.requester = std::move(requester);
  x.deadline = now + options_.replay_patience;
  streams_.for_each([&](std::uint32_t number, const stream& of) {
    if (!topic || of.topic.starts_with(*topic))
      x.parts.emplace_back(number, start);
  });
  replays_.push_back(std::move(x));
  return true;
}

hub::reply hub::reply_of(requester_state& x, double wall, timestamp now) {
  while (!x.parts.empty()) {
    auto& part = x.parts.front();
    auto& of = streams_.at(part.stream_number());
    // A snapshot counts from a batch on, so everything before it must be in batches.
    if (part.begins_snapshot(of) && !of.pending.empty())
      seal(of, now, wall);
    const bool had_snapshot = part.made_snapshot();
    auto next = part.next(of, book_, wall);
    if (part.made_snapshot() && !had_snapshot)
      add_to(options_.counts->snapshots);
    if (next)
      return {x.requester, false, of.topic, next->number, std::move(next->text)};
    // Without the end, the requester tries again.
    if (part.failed())
      return {};
    x.parts.pop_front();
  }
  return {x.requester, true, {}, 0, {}};
}

std::optional<hub::reply> hub::next_reply(timestamp now, double wall) {
  for (auto x = replays_.begin(); x != replays_.end();) {
    if (x->deadline <= now) {
      end(x++, true);
      continue;
    }
    if (x->not_before > now) {
      ++x;
      continue;
    }
    if (!x->unsent)
      x->unsent = reply_of(*x, wall, now);
    if (x->unsent->requester.empty()) {
      end(x++, true);
      continue;
    }
    replays_.splice(replays_.begin(), replays_, x);
    return x->unsent;
  }
  return std::nullopt;
}

void hub::sent(timestamp now) {
  const auto x = replays_.begin();
  if (x->unsent->end)
    return end(x, false);
  x->unsent.reset();
  x->deadline = now + options_.replay_patience;
  // Others have their turn first.
  replays_.splice(replays_.end(), replays_, x);
}

void hub::blocked(timestamp now) {
  const auto x = replays_.begin();
  x->not_before = now + retry;
  replays_.splice(replays_.end(), replays_, x);
}

void hub::gone() {
  end(replays_.begin(), true);
}

void hub::end(std::list<requester_state>::iterator which, bool failed) {
  if (failed)
    add_to(options_.counts->failed_replays);
  replays_.erase(which);
}

void hub::count() {
  auto& to = *options_.counts;
  to.pages.store(book_.pages(), std::memory_order_relaxed);
  to.pages_without_tokens.store(book_.without_tokens(), std::memory_order_relaxed);
  to.bytes.store(book_.resident_bytes(), std::memory_order_relaxed);
  std::optional<std::uint64_t> last;
  streams_.for_each([&](std::uint32_t, const stream& x) { last = last ? last : x.log.next() - 1; });
  if (last)
    to.last_batch.store(*last, std::memory_order_relaxed);
}

std::vector<std::string> hub::topics() const {
  std::vector<std::string> out;
  streams_.for_each([&](std::uint32_t, const stream& x) { out.push_back(x.topic); });
  return out;
}

} // namespace troupe::events
