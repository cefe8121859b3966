#include "lmcache/transfer_rules.hpp"

#include <algorithm>

namespace troupe::lmcache {

namespace {

bool is_store(protocol::operation x) noexcept {
  return x == protocol::operation::store || x == protocol::operation::prepare_store ||
         x == protocol::operation::commit_store;
}

/// A page that another worker is writing is not missing.
bool is_stored(errc x) noexcept {
  return x == errc::ok || x == errc::exists || x == errc::busy;
}

} // namespace

transfer_rules::job_name transfer_rules::name_of(const incoming& x) {
  return {x.chunks.request, *x.chunks.worker, x.chunks.begin, x.chunks.end, is_store(x.what)};
}

job_number transfer_rules::add(const request_ptr& x, change_number of, std::vector<terms> how, bool stores,
                               bool by_node) {
  const auto number = ++last_;
  auto& made = jobs_[number];
  made.request = x;
  made.of = of;
  made.how = std::move(how);
  made.stores = stores;
  made.by_node = by_node;
  return number;
}

void transfer_rules::erase(job_number number) {
  const auto known = jobs_.find(number);
  for (const auto name : known->second.parts)
    parts_.erase(name);
  jobs_.erase(known);
  std::erase_if(names_, [number](const auto& x) { return x.second == number; });
}

void transfer_rules::uncount(job& x, timestamp now) {
  if (std::exchange(x.counted, false))
    registrations_.end_copy(x.of, now);
}

void transfer_rules::begin_part(job_number number, job& x, std::uint32_t most, duration deadline) {
  auto& next = x.left.front();
  const chunk_run taken{next.first, std::min(next.count, most), next.group};
  next.first += taken.count;
  next.count -= taken.count;
  if (next.count == 0)
    x.left.pop_front();
  const auto name = ++last_;
  parts_[name] = {number, taken, std::nullopt, {}, false};
  x.parts.push_back(name);
  outbox_.emplace_back(start{name, x.of, x.request, x.stores, taken, deadline});
}

void transfer_rules::cancel_parts(const job& x) {
  for (std::uint32_t group = 0; group < x.how.size(); ++group) {
    cancel out{x.of, rank_of(x), x.stores, group, {}};
    for (const auto number : x.parts)
      if (const auto& y = parts_.at(number); !y.ended && y.chunks.group == group)
        out.parts.push_back(number);
    if (!out.parts.empty())
      outbox_.emplace_back(std::move(out));
  }
}

// -- the node copies --------------------------------------------------------------------------------------------------

void transfer_rules::copy(const request_ptr& x, change_number of, const terms& how, std::deque<chunk_run> chunks,
                          timestamp now) {
  const auto open = std::ranges::count_if(jobs_, [of](const auto& y) { return y.second.of == of; });
  if (static_cast<std::size_t>(open) >= options_.copies_max || how.keys_max == 0 || !registrations_.begin_copy(of)) {
    outbox_.emplace_back(refuse{x});
    return;
  }
  const bool stores = is_store(x->what);
  const auto number = add(x, of, {how}, stores, true);
  auto& made = jobs_.at(number);
  made.counted = true;
  made.left = std::move(chunks);
  lines_[{of, stores}].waiting.push_back(number);
  begin_copies(of, now);
}

void transfer_rules::begin_copies(change_number of, timestamp now) {
  if (std::exchange(beginning_, true))
    return;
  for (const bool stores : {false, true}) {
    const auto known = lines_.find({of, stores});
    if (known == lines_.end())
      continue;
    auto& those = known->second;
    while (those.under_way < options_.copies_at_once && !those.waiting.empty()) {
      const auto number = those.waiting.front();
      those.waiting.pop_front();
      ++those.under_way;
      auto& x = jobs_.at(number);
      x.state = phase::copying;
      // A copy engine may be reading or writing its blocks: a rejection would tell the worker that it may reuse them,
      // and what was gathered after that would be published. The task keeps the deadline, and ends before the answer is
      // sent.
      requests_.hold(x.request, true);
      begin_parts(number, x, now);
    }
  }
  beginning_ = false;
}

void transfer_rules::begin_parts(job_number number, job& x, timestamp now) {
  while (x.good && !x.left.empty() && x.parts.size() < options_.parts_at_once) {
    const auto left = requests_.time_left(x.request, now);
    if (!registrations_.is_current(x.of) || left <= duration::zero()) {
      x.good = false;
      break;
    }
    begin_part(number, x, x.how.front().keys_max, left);
  }
  if (x.parts.empty())
    end_copy(number, now);
}

void transfer_rules::end_copy(job_number number, timestamp now) {
  auto& x = jobs_.at(number);
  const auto of = x.of;
  const bool ends_well = x.good && x.left.empty();
  requests_.hold(x.request, false);
  if (ends_well)
    outbox_.emplace_back(done{x.request, x.pages});
  else
    outbox_.emplace_back(refuse{x.request});
  --lines_.at({of, x.stores}).under_way;
  uncount(x, now);
  erase(number);
  begin_copies(of, now);
}

// -- the worker copies ------------------------------------------------------------------------------------------------

std::uint32_t transfer_rules::pages_out(change_number of, std::uint32_t group) const {
  std::size_t out = 0;
  for (const auto& [number, x] : jobs_)
    if (x.of == of && !x.by_node)
      for (const auto name : x.parts)
        if (const auto& y = parts_.at(name); y.chunks.group == group)
          out += y.order ? y.pages.size() : y.ended ? 0 : y.chunks.count;
  return static_cast<std::uint32_t>(out);
}

std::uint32_t transfer_rules::room(const job& x, std::uint32_t group) const {
  const auto& how = x.how[group];
  return how.keys_max == 0 || how.pages_max == 0
             ? 0
             : how.window_pages - std::min(how.window_pages, pages_out(x.of, group));
}

/// A store takes what room there is, and a retrieve needs room for all.
bool transfer_rules::has_room(const job& x) const {
  bool any = x.left.empty();
  for (std::uint32_t group = 0; group < x.how.size(); ++group) {
    std::uint64_t wanted = 0;
    for (const auto& run : x.left)
      wanted += run.group == group ? run.count : 0;
    const auto left = room(x, group);
    any |= wanted > 0 && left > 0;
    if (!x.stores && wanted > left)
      return false;
  }
  return any;
}

void transfer_rules::prepare(const request_ptr& x, change_number of, std::vector<terms> how,
                             std::deque<chunk_run> chunks, timestamp now) {
  const auto name = name_of(*x);
  const bool stores = is_store(x->what);
  if (const auto old = names_.find({of, name}); old != names_.end())
    abandon(old->second, now);
  const auto open = std::ranges::count_if(
      names_, [&](const auto& y) { return y.first.first == of && std::get<4>(y.first.second) == stores; });
  const auto number = add(x, of, std::move(how), stores, false);
  auto& made = jobs_.at(number);
  made.left = std::move(chunks);
  if (static_cast<std::size_t>(open) >= options_.jobs_max || !has_room(made) || !registrations_.is_current(of)) {
    outbox_.emplace_back(refuse{x});
    return erase(number);
  }
  made.state = phase::preparing;
  made.begun = now;
  names_[{of, name}] = number;
  go_on_preparing(number, now);
}

void transfer_rules::order(part_number name, order_number number, std::vector<placed_page> pages, timestamp now) {
  const auto known = parts_.find(name);
  if (known == parts_.end() || known->second.order || known->second.ended ||
      jobs_.at(known->second.job).state != phase::preparing) {
    outbox_.emplace_back(end_order{number, std::vector<errc>(pages.size(), errc::cancelled)});
    return;
  }
  auto& y = known->second;
  y.order = number;
  y.pages = std::move(pages);
  for (auto& page : y.pages)
    page.group = y.chunks.group;
  auto& x = jobs_.at(y.job);
  x.good &= x.stores || y.pages.size() == y.chunks.count;
  go_on_preparing(y.job, now);
}

// One part after the other: uncommitted pages of the worker take room, and so a part that waits for room would wait for
// itself.
void transfer_rules::go_on_preparing(job_number number, timestamp now) {
  auto& x = jobs_.at(number);
  if (std::ranges::any_of(x.parts, [this](part_number y) { return !parts_.at(y).order && !parts_.at(y).ended; }))
    return;
  if (!goes_on(x, now) || (!x.stores && !x.good))
    return abandon(number, now);
  while (!x.left.empty()) {
    const auto group = x.left.front().group;
    const auto& how = x.how[group];
    // Each part may wait for room, but its request waits only once.
    const bool is_late = x.stores && now - x.begun >= place_patience;
    if (const auto most = std::min({how.keys_max, how.pages_max, room(x, group)}); most > 0 && !is_late)
      return begin_part(number, x, most, x.stores ? how.reservation : requests_.time_left(x.request, now));
    if (!x.stores)
      return abandon(number, now);
    std::erase_if(x.left, [&](const chunk_run& run) { return is_late || run.group == group; });
    x.good = false;
  }
  all_there(number, x, now);
}

void transfer_rules::all_there(job_number number, job& x, timestamp now) {
  auto pages = pages_of(x);
  if (pages.empty()) {
    if (x.stores && x.good)
      outbox_.emplace_back(prepared{x.request, x.of, {}});
    else
      outbox_.emplace_back(refuse{x.request});
    return erase(number);
  }
  if (x.stores) {
    x.state = phase::in_hands;
    outbox_.emplace_back(prepared{x.request, x.of, std::move(pages)});
    return;
  }
  if (!registrations_.begin_copy(x.of))
    return abandon(number, now);
  x.counted = true;
  x.state = phase::verifying;
  outbox_.emplace_back(check{number, x.of, rank_of(x), false, std::move(pages)});
}

void transfer_rules::commit(const request_ptr& x, change_number of, timestamp now) {
  const auto known = names_.find({of, name_of(*x)});
  if (known == names_.end()) {
    outbox_.emplace_back(refuse{x});
    return;
  }
  const auto number = known->second;
  auto& y = jobs_.at(number);
  const bool in_time = std::ranges::none_of(
      y.parts, [this](part_number name) { return parts_.at(name).order && parts_.at(name).ended; });
  // The frames contain their old bytes, which must not become pages.
  const bool may = y.state == phase::in_hands && in_time && !x->carries_tensors;
  if (!may || (y.stores && !registrations_.begin_copy(of))) {
    outbox_.emplace_back(refuse{x});
    return abandon(number, now);
  }
  if (!y.stores) {
    end_orders(y, errc::ok);
    outbox_.emplace_back(done{x, pages_of(y).size()});
    return erase(number);
  }
  names_.erase(known);
  y.counted = true;
  y.commit = x;
  y.state = phase::sealing;
  outbox_.emplace_back(check{number, of, rank_of(y), true, pages_of(y)});
}

void transfer_rules::checked(job_number number, const std::vector<errc>& codes, timestamp now) {
  const auto known = jobs_.find(number);
  if (known == jobs_.end())
    return;
  auto& x = known->second;
  if (x.state == phase::sealing) {
    end_orders(x, codes);
    x.state = phase::ending;
    return finish_ending(number, now);
  }
  if (x.state != phase::verifying)
    return;
  const bool sound = std::ranges::all_of(codes, [](errc y) { return y == errc::ok; });
  const bool is_there = std::ranges::none_of(x.parts, [this](part_number y) { return parts_.at(y).ended; });
  if (sound && is_there && !x.abandoned && goes_on(x, now)) {
    x.state = phase::in_hands;
    outbox_.emplace_back(prepared{x.request, x.of, pages_of(x)});
    return uncount(x, now);
  }
  auto reasons = codes;
  std::ranges::replace(reasons, errc::ok, errc::cancelled);
  end_orders(x, reasons);
  std::erase_if(names_, [number](const auto& y) { return y.second == number; });
  // Corrupt pages are removed from the index when the tasks have ended.
  x.state = phase::ending;
  finish_ending(number, now);
}

std::vector<transfer_rules::placed_page> transfer_rules::pages_of(const job& x) const {
  std::vector<placed_page> out;
  for (const auto name : x.parts) {
    const auto& pages = parts_.at(name).pages;
    out.insert(out.end(), pages.begin(), pages.end());
  }
  return out;
}

void transfer_rules::end_orders(const job& x, errc code) {
  end_orders(x, std::vector<errc>(pages_of(x).size(), code));
}

void transfer_rules::end_orders(const job& x, const std::vector<errc>& codes) {
  std::size_t at = 0;
  for (const auto name : x.parts) {
    const auto& y = parts_.at(name);
    if (!y.order)
      continue;
    end_order out{*y.order, {}};
    for (std::size_t i = 0; i < y.pages.size(); ++i, ++at)
      out.codes.push_back(at < codes.size() ? codes[at] : errc::internal);
    outbox_.emplace_back(std::move(out));
  }
}

void transfer_rules::abandon(job_number number, timestamp now) {
  auto& x = jobs_.at(number);
  std::erase_if(names_, [number](const auto& y) { return y.second == number; });
  x.abandoned = true;
  if (x.state == phase::verifying)
    return; // until lanes are done with its frames
  const bool is_answered = std::exchange(x.state, phase::ending) == phase::in_hands;
  cancel_parts(x);
  end_orders(x, errc::cancelled);
  if (is_answered)
    return erase(number);
  // It is rejected when its resources are free.
  finish_ending(number, now);
}

// -- tasks ------------------------------------------------------------------------------------------------------------

void transfer_rules::part_failed(part_number name, errc why, timestamp now) {
  if (const auto known = parts_.find(name); known != parts_.end())
    part_done(name, std::vector<errc>(known->second.chunks.count, why), now);
}

void transfer_rules::part_done(part_number name, const std::vector<errc>& codes, timestamp now) {
  const auto known = parts_.find(name);
  if (known == parts_.end() || known->second.ended)
    return;
  const auto number = known->second.job;
  auto& x = jobs_.at(number);
  part_over(known->second, codes, now);
  if (x.by_node) {
    std::erase(x.parts, name);
    parts_.erase(known);
    return begin_parts(number, x, now);
  }
  if (x.state == phase::preparing)
    go_on_preparing(number, now);
  else if (x.state == phase::ending)
    finish_ending(number, now);
}

void transfer_rules::part_over(part& y, const std::vector<errc>& codes, timestamp) {
  y.ended = true;
  auto& x = jobs_.at(y.job);
  const auto code_of = [&](std::uint32_t i) { return i < codes.size() ? codes[i] : errc::internal; };
  if (y.order) {
    for (const auto& page : y.pages) {
      const bool published = code_of(page.chunk - y.chunks.first) == errc::ok;
      x.pages += published ? 1 : 0;
      x.published &= published;
      if (published && x.stores)
        x.stored.push_back({page.chunk, 1, page.group});
    }
    return;
  }
  for (std::uint32_t i = 0; i < y.chunks.count; ++i) {
    const auto code = code_of(i);
    x.pages += code == errc::ok ? 1 : 0;
    x.good &= x.stores ? is_stored(code) : code == errc::ok;
  }
}

void transfer_rules::finish_ending(job_number number, timestamp now) {
  auto& x = jobs_.at(number);
  if (std::ranges::any_of(x.parts, [this](part_number y) { return !parts_.at(y).ended; }))
    return;
  if (x.commit && x.published)
    outbox_.emplace_back(done{x.commit, x.pages, std::move(x.stored)});
  else
    outbox_.emplace_back(refuse{x.commit ? x.commit : x.request});
  uncount(x, now);
  erase(number);
}

// -- ends -------------------------------------------------------------------------------------------------------------

void transfer_rules::late(const request_ptr& x, timestamp now) {
  for (const auto& [number, y] : jobs_)
    if (y.request == x && (y.state == phase::preparing || y.state == phase::verifying))
      return abandon(number, now);
}

void transfer_rules::ended(change_number of, timestamp now) {
  std::vector<job_number> there;
  for (const auto& [number, x] : jobs_)
    if (x.of == of)
      there.push_back(number);
  for (const auto number : there) {
    auto& x = jobs_.at(number);
    switch (x.state) {
    case phase::waiting:
      outbox_.emplace_back(refuse{x.request});
      std::erase(lines_.at({of, x.stores}).waiting, number);
      uncount(x, now);
      erase(number);
      break;
    case phase::copying:
      x.good = false;
      cancel_parts(x);
      break;
    case phase::preparing:
    case phase::verifying:
      abandon(number, now);
      break;
    default:
      break;
    }
  }
}

std::set<transfer_rules::job_name> transfer_rules::forget(change_number of) {
  std::set<job_name> out;
  std::vector<job_number> there;
  for (const auto& [number, x] : jobs_)
    if (x.of == of)
      there.push_back(number);
  for (const auto number : there) {
    const auto& x = jobs_.at(number);
    if (x.state == phase::in_hands)
      out.insert(name_of(*x.request));
    else
      outbox_.emplace_back(refuse{x.commit ? x.commit : x.request});
    end_orders(x, errc::cancelled);
    erase(number);
  }
  lines_.erase({of, false});
  lines_.erase({of, true});
  return out;
}

bool transfer_rules::may_touch(change_number of) const {
  return std::ranges::any_of(jobs_,
                             [of](const auto& x) { return x.second.of == of && x.second.state == phase::in_hands; });
}

bool transfer_rules::has_begun(change_number of) const {
  return std::ranges::any_of(jobs_, [of](const auto& x) {
    const auto& y = x.second;
    return y.of == of && !y.by_node &&
           (y.state == phase::preparing || y.state == phase::verifying || y.state == phase::in_hands);
  });
}

} // namespace troupe::lmcache
