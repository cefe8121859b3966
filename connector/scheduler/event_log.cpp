#include "connector/scheduler/event_log.hpp"

#include <algorithm>
#include <utility>

namespace troupe::connector {

namespace {

/// The pages of a list that have the mark.
std::vector<std::uint32_t> pages_marked(std::span<const std::uint32_t> pages, std::span<const std::uint8_t> marks,
                                        bool wanted) {
  std::vector<std::uint32_t> out;
  for (std::size_t k = 0; k < pages.size(); ++k)
    if ((k < marks.size() && marks[k] != 0) == wanted)
      out.push_back(pages[k]);
  return out;
}

} // namespace

bool event_log::leaves_out(std::uint32_t group) const noexcept {
  return options_.detail == event_detail::none ||
         (options_.detail == event_detail::changes && group != options_.lead_group);
}

void event_log::saving(const source& of, store_id save, std::span<const std::uint32_t> pages) {
  if (wants_all())
    add(cache_event::kind::saving, of, save, pages);
}

void event_log::saved(const source& of, store_id save, std::span<const std::uint32_t> pages,
                      std::span<const std::uint8_t> done) {
  if (leaves_out(of.group))
    return;
  add(cache_event::kind::stored, of, save, pages_marked(pages, done, true));
  if (wants_all())
    add(cache_event::kind::not_saved, of, save, pages_marked(pages, done, false));
}

void event_log::not_loaded(const source& of, std::span<const std::uint32_t> pages) {
  if (!leaves_out(of.group))
    add(cache_event::kind::removed, of, 0, pages);
}

void event_log::looked_up(const source& of, std::uint32_t first, std::span<const std::uint8_t> found,
                          std::span<const std::uint8_t> on_disk) {
  if (!wants_all())
    return;
  const auto kind_of = [&](std::size_t i) {
    if (found[i] == 0)
      return cache_event::kind::removed;
    return i < on_disk.size() && on_disk[i] != 0 ? cache_event::kind::on_disk : cache_event::kind::stored;
  };
  std::vector<std::uint32_t> pages;
  for (std::size_t i = 0; i < found.size(); ++i) {
    pages.push_back(first + static_cast<std::uint32_t>(i));
    if (i + 1 == found.size() || kind_of(i + 1) != kind_of(i)) {
      add(kind_of(i), of, 0, pages);
      pages.clear();
    }
  }
}

void event_log::lookup_failed(errc why) {
  if (wants_all() && said_ && (why == errc::unreachable || why == errc::shutting_down))
    clear();
}

void event_log::leased(std::uint32_t group, const ticket& lease) {
  if (!wants_all() || lease.owner == 0)
    return;
  if (group >= owners_.size())
    owners_.resize(group + 1, 0);
  const auto before = std::exchange(owners_[group], lease.owner);
  if (before != 0 && before != lease.owner && said_)
    clear();
}

void event_log::clear() {
  if (options_.detail == event_detail::none)
    return;
  // Whatever it was, nothing of it is left.
  events_.clear();
  keys_ = 0;
  said_ = false;
  events_.push_back({.what = cache_event::kind::all_cleared, .page_tokens = options_.page_tokens});
}

std::vector<cache_event> event_log::take() {
  keys_ = 0;
  return std::exchange(events_, {});
}

/// One event for each run of pages.
void event_log::add(cache_event::kind what, const source& of, store_id save, std::span<const std::uint32_t> pages) {
  for (std::size_t first = 0; first < pages.size();) {
    auto last = first + 1;
    while (last < pages.size() && pages[last] == pages[last - 1] + 1)
      ++last;
    cache_event event{.what = what,
                      .request = std::string(of.request),
                      .page_tokens = options_.page_tokens,
                      .group = of.group,
                      .save = save,
                      .first_page = pages[first],
                      .pages = static_cast<std::uint32_t>(last - first)};
    if (pages[first] + event.pages <= of.keys.size()) {
      const auto keys = of.keys.subspan(pages[first], event.pages);
      event.keys.assign(keys.begin(), keys.end());
      if (pages[first] > 0)
        event.parent = of.keys[pages[first] - 1];
    }
    push(std::move(event));
    first = last;
  }
}

void event_log::push(cache_event event) {
  if (events_.size() >= options_.events_max || keys_ + event.keys.size() > options_.keys_max)
    clear();
  keys_ += event.keys.size();
  said_ = true;
  events_.push_back(std::move(event));
}

} // namespace troupe::connector
