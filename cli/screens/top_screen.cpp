#include "cli/screens/top_screen.hpp"

#include "cli/screens/status_screen.hpp"
#include "cli/screens/words.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace troupe::cli {

namespace {

using nlohmann::json;

constexpr std::array<const char*, 9> blocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> letters{" ", ".", ":", "-", "=", "+", "*", "#", "@"};

constexpr std::size_t label_columns = 12;
constexpr std::size_t value_columns = 11;
/// The table's columns of numbers; the rest of the line is for names, and for sparklines where there is room.
constexpr std::array<const char*, 7> heads{"HITS", "LOOKUPS", "LOAD", "SAVE", "EVICTED", "KEYS", "USED"};
constexpr std::array<std::size_t, 7> widths{8, 9, 10, 10, 9, 9, 8};
constexpr std::size_t name_least = 8;
constexpr std::size_t picture_least = 10;
constexpr std::size_t picture_most = 60;

double gigabytes(double bytes, double seconds) {
  return seconds > 0 ? bytes / seconds / 1e9 : 0;
}

/// The growth of a counter; one that was reset counts from 0.
double grown(double before, double now) {
  return now >= before ? now - before : 0;
}

template <class Counts>
void add_to(Counts& sum, const Counts& x) {
  sum.lookups += x.lookups;
  sum.asked += x.asked;
  sum.found += x.found;
  sum.evicted += x.evicted;
  sum.loaded_bytes += x.loaded_bytes;
  sum.saved_bytes += x.saved_bytes;
}

const json& minute_of(const json& x) {
  static const auto nothing = json::object();
  return x.contains("last_minute") ? x["last_minute"] : nothing;
}

} // namespace

top_screen::counts top_screen::counts_of(const json& ns) {
  counts out;
  out.lookups = number_at(ns, {"total", "lookups"});
  out.asked = number_at(ns, {"total", "asked_keys"});
  out.found = number_at(ns, {"total", "found_keys"});
  out.evicted = number_at(ns, {"total", "evicted_keys"});
  return out;
}

top_screen::counts top_screen::counts_of_rank(const json& rank, double page_bytes) {
  counts out;
  out.loaded_bytes = page_bytes * number_at(rank, {"total", "loaded_pages"});
  out.saved_bytes = page_bytes * number_at(rank, {"total", "saved_pages"});
  return out;
}

top_screen::row& top_screen::row_of(const std::string& key) {
  auto& out = rows_[key];
  out.seen = true;
  return out;
}

top_screen::rates top_screen::rates_of(const json& minute) {
  rates out;
  const auto seconds = number_at(minute, {"seconds"});
  if (number_at(minute, {"asked_keys"}) > 0)
    out.hits = number_at(minute, {"hit_ratio"});
  if (seconds > 0) {
    out.lookups = number_at(minute, {"lookups"}) / seconds;
    out.evicted = number_at(minute, {"evicted_keys"}) / seconds;
  }
  out.load_gbps = number_at(minute, {"load_gbps"});
  out.save_gbps = number_at(minute, {"save_gbps"});
  out.p99 = number_at(minute, {"lookup_p99_us"});
  return out;
}

void top_screen::advance(row& x, const counts& now, double seconds, const json& minute) {
  rates r;
  r.p99 = number_at(minute, {"lookup_p99_us"});
  const auto asked = grown(x.before.asked, now.asked);
  if (asked > 0)
    r.hits = std::min(1.0, grown(x.before.found, now.found) / asked);
  if (seconds > 0) {
    r.lookups = grown(x.before.lookups, now.lookups) / seconds;
    r.evicted = grown(x.before.evicted, now.evicted) / seconds;
  }
  r.load_gbps = gigabytes(grown(x.before.loaded_bytes, now.loaded_bytes), seconds);
  r.save_gbps = gigabytes(grown(x.before.saved_bytes, now.saved_bytes), seconds);
  x.before = now;
  // The first answer has only totals since the start: no current rate follows from it.
  if (seconds <= 0) {
    x.now = rates_of(minute);
    return;
  }
  x.now = r;
  x.series.push_back(r);
  if (x.series.size() > values_most)
    x.series.pop_front();
}

void top_screen::observe(const json& status, timestamp now) {
  if (paused_)
    return;
  why_.clear();
  const auto seconds = last_ == timestamp{} ? 0.0 : std::chrono::duration<double>(now - last_).count();
  last_ = now;
  health_ = text_at(status, {"health"});
  name_ = text_at(status, {"node", "name"});
  when_ = text_at(status, {"node", "now"});
  facts_ = "up " + span_text(number_at(status, {"node", "uptime_s"})) + ", clients " +
           counted_at(status, {"clients", "attached"}) + ", leases " + counted_at(status, {"registry", "leases"});
  warnings_.clear();
  for (const auto& w : list_at(status, {"warnings"}))
    if (text_at(w, {"severity"}) != "notice")
      // The reason and its runbook come first, as a sentence may be too long for the screen.
      warnings_.push_back(
          printable(text_at(w, {"reason"}) + " (" + text_at(w, {"runbook"}) + "): " + text_at(w, {"text"})));
  if (node_.series.empty() && status.contains("history"))
    fill_history(status["history"]);
  for (auto& [key, x] : rows_)
    x.seen = false;
  counts all;
  for (const auto& ns : list_at(status, {"namespaces"}))
    observe_namespace(ns, seconds, all);
  std::erase_if(rows_, [](const auto& x) { return !x.second.seen; });
  advance(node_, all, seconds, minute_of(status));
  observe_lists(status);
}

void top_screen::observe_namespace(const json& ns, double seconds, counts& all) {
  const auto name = text_at(ns, {"name"});
  const auto page_bytes = number_at(ns, {"page_bytes"});
  auto sum = counts_of(ns);
  auto& of_all = row_of(name);
  of_all.live_slots = of_all.slots = 0;
  for (const auto& rank : list_at(ns, {"ranks"})) {
    const auto number = std::to_string(whole_at(rank, {"rank"}));
    auto& x = row_of(name + "\n" + to_right(number, 6));
    x.damaged = rank.value("damaged", false);
    x.name = "  rank " + number + (x.damaged ? " damaged" : "");
    x.ns = name;
    x.is_rank = true;
    x.slots = number_at(rank, {"slots", "total"});
    x.live_slots = number_at(rank, {"slots", "live"});
    of_all.slots += x.slots;
    of_all.live_slots += x.live_slots;
    const auto own = counts_of_rank(rank, page_bytes);
    advance(x, own, seconds, minute_of(rank));
    add_to(sum, own);
  }
  of_all.name = name;
  of_all.ns = name;
  of_all.keys = counted_at(ns, {"keys"});
  advance(of_all, sum, seconds, minute_of(ns));
  add_to(all, sum);
}

void top_screen::observe_lists(const json& status) {
  clients_ = {{"CLIENT", "NAMESPACE", "PROCESS", "FOR", "LOAD", "SAVE", "LOADED", "SAVED"}, {}};
  for (const auto& x : list_at(status, {"clients", "list"}))
    clients_.rows.push_back(
        {text_at(x, {"name"}), text_at(x, {"namespace"}),
         x.value("is_node", false)     ? "(node)"
         : x.value("elsewhere", false) ? "(remote)"
                                       : std::to_string(static_cast<std::int64_t>(number_at(x, {"process"}))),
         span_text(number_at(x, {"attached_s"})), speed_text(number_at(x, {"last_minute", "load_gbps"})),
         speed_text(number_at(x, {"last_minute", "save_gbps"})), bytes_text(number_at(x, {"loaded_bytes"})),
         bytes_text(number_at(x, {"saved_bytes"}))});
  cluster_ = {};
  if (!status.contains("cluster"))
    return;
  cluster_.head = {"NODE", "ADDRESS", "STATE", "LAG", "FETCHED", "SERVED", "LEARNED"};
  for (const auto& x : list_at(status, {"cluster", "nodes"})) {
    const auto name = text_at(x, {"node"});
    const auto state = text_at(x, {"state"});
    cluster_.rows.push_back({name.empty() ? "?" : name, text_at(x, {"address"}), state,
                             state == "up" ? micros_text(number_at(x, {"lag_us"})) : "-",
                             bytes_text(number_at(x, {"bytes"})), bytes_text(number_at(x, {"served_bytes"})),
                             counted_at(x, {"learned_keys"})});
  }
}

void top_screen::fill_history(const json& history) {
  const auto column = [&](const char* name) -> const json& { return list_at(history, {name}); };
  const auto value = [&](const char* name, std::size_t i) {
    const auto& values = column(name);
    return i < values.size() && values[i].is_number() ? values[i].get<double>() : 0.0;
  };
  const auto interval = std::chrono::duration<double>(interval_).count();
  for (std::size_t i = 0; i < column("at").size(); ++i) {
    rates r;
    const auto seconds = value("seconds", i);
    if (value("asked_keys", i) > 0)
      r.hits = std::min(1.0, value("found_keys", i) / value("asked_keys", i));
    r.lookups = seconds > 0 ? value("lookups", i) / seconds : 0;
    r.evicted = seconds > 0 ? value("evicted_keys", i) / seconds : 0;
    r.load_gbps = gigabytes(value("loaded_bytes", i), seconds);
    r.save_gbps = gigabytes(value("saved_bytes", i), seconds);
    r.p99 = value("lookup_p99_us", i);
    // A sample of ten seconds is as wide as the answers of ten seconds.
    const auto times = interval > 0 ? std::max(1.0, std::round(seconds / interval)) : 1.0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(std::min(times, double{values_most})); ++k)
      node_.series.push_back(r);
  }
  while (node_.series.size() > values_most)
    node_.series.pop_front();
}

void top_screen::miss(std::string why) {
  if (!paused_)
    why_ = printable(why);
}

bool top_screen::press(top_key key) {
  switch (key) {
  case top_key::quit:
    return false;
  case top_key::pause:
    paused_ = !paused_;
    break;
  case top_key::sort:
    order_ = static_cast<order>((static_cast<std::size_t>(order_) + 1) % order_count);
    first_ = 0;
    break;
  case top_key::ranks:
    shows_all_ranks_ = !shows_all_ranks_;
    first_ = 0;
    break;
  case top_key::view:
    view_ = next_view();
    first_ = 0;
    break;
  case top_key::up:
    first_ -= first_ > 0 ? 1 : 0;
    break;
  case top_key::down:
    first_ += first_ + 1 < rows_of_view() ? 1 : 0;
    break;
  case top_key::none:
    break;
  }
  return true;
}

std::string top_screen::sparkline(const row& x, std::size_t columns, double (*value)(const rates&),
                                  double least) const {
  const auto& steps = unicode_ ? blocks : letters;
  const auto count = std::min(columns, x.series.size());
  double most = least;
  for (auto i = x.series.size() - count; i < x.series.size(); ++i)
    most = std::max(most, value(x.series[i]));
  std::string out(columns - count, ' ');
  for (auto i = x.series.size() - count; i < x.series.size(); ++i) {
    const auto v = value(x.series[i]);
    // A value above zero is visible.
    const auto step = v <= 0 || most <= 0 ? 0 : std::max(1.0, std::round(v / most * 8));
    out += steps[std::min<std::size_t>(static_cast<std::size_t>(step), steps.size() - 1)];
  }
  return out;
}

std::vector<const top_screen::row*> top_screen::sorted() const {
  // Equal rows stay in the order of their names.
  const auto sort = [&, by = pictured()](auto first, auto last) {
    if (order_ != order::name)
      std::stable_sort(first, last, [&](const row* x, const row* y) { return by.of(x->now) > by.of(y->now); });
  };
  std::vector<const row*> namespaces;
  for (const auto& [key, x] : rows_)
    if (!x.is_rank)
      namespaces.push_back(&x);
  sort(namespaces.begin(), namespaces.end());
  std::vector<const row*> out;
  for (const auto* ns : namespaces) {
    out.push_back(ns);
    std::vector<const row*> ranks;
    for (const auto& [key, x] : rows_)
      if (x.is_rank && x.ns == ns->ns)
        ranks.push_back(&x);
    if (!shows_all_ranks_ && are_equal(ranks))
      continue;
    sort(ranks.begin(), ranks.end());
    out.insert(out.end(), ranks.begin(), ranks.end());
  }
  return out;
}

bool top_screen::are_equal(const std::vector<const row*>& ranks) {
  // Pages of a key reach its ranks one after the other.
  return std::ranges::all_of(ranks, [&](const row* x) {
    const auto difference = std::abs(x->live_slots - ranks.front()->live_slots);
    return !x->damaged && difference <= std::max(1.0, ranks.front()->slots / 50);
  });
}

std::size_t top_screen::rows_of_view() const {
  switch (view_) {
  case view::clients:
    return clients_.rows.size();
  case view::cluster:
    return cluster_.rows.size();
  case view::namespaces:
    break;
  }
  return sorted().size();
}

top_screen::view top_screen::next_view() const {
  if (view_ == view::namespaces)
    return view::clients;
  return view_ == view::clients && !cluster_.head.empty() ? view::cluster : view::namespaces;
}

screen_line top_screen::title(std::size_t columns) const {
  if (health_.empty())
    return {to_width(why_.empty() ? "waiting for the node's answer" : "unreachable: " + why_, columns),
            line_style::trouble};
  const auto state = !why_.empty() ? "unreachable" : paused_ ? health_ + ", paused" : health_;
  const auto clock = when_.size() > 19 ? when_.substr(11, 9) : when_;
  const auto front = to_width(name_ + ": " + state + ", " + facts_, columns - std::min(columns, clock.size() + 1));
  const bool well = why_.empty() && health_ == "healthy";
  return {to_width(front + " " + clock, columns), well ? line_style::healthy : line_style::trouble};
}

void top_screen::add_node(std::vector<screen_line>& to, std::size_t columns) const {
  const auto add = [&](const char* label, const std::string& value, double (*of)(const rates&), double least) {
    const auto front = to_width(label, label_columns) + to_right(value, value_columns) + "  ";
    to.push_back(
        {front + sparkline(node_, columns - std::min(columns, label_columns + value_columns + 2), of, least), {}});
  };
  const auto& x = node_.now;
  add(
      "hit ratio", percent_text(x.hits), [](const rates& r) { return r.hits.value_or(0); }, 1);
  add(
      "load", speed_text(x.load_gbps), [](const rates& r) { return r.load_gbps; }, 0);
  add(
      "save", speed_text(x.save_gbps), [](const rates& r) { return r.save_gbps; }, 0);
  add(
      "lookups", rate_text(x.lookups), [](const rates& r) { return r.lookups; }, 0);
  add(
      "lookup p99", micros_text(x.p99), [](const rates& r) { return r.p99; }, 0);
  add(
      "evictions", rate_text(x.evicted), [](const rates& r) { return r.evicted; }, 0);
}

top_screen::pictured_rate top_screen::pictured() const {
  switch (order_) {
  case order::hits:
    return {"HITS", [](const rates& r) { return r.hits.value_or(0); }, 1};
  case order::lookups:
    return {"LOOKUPS", [](const rates& r) { return r.lookups; }, 0};
  case order::save:
    return {"SAVE", [](const rates& r) { return r.save_gbps; }, 0};
  case order::evictions:
    return {"EVICTED", [](const rates& r) { return r.evicted; }, 0};
  case order::name:
  case order::load:
    break;
  }
  return {"LOAD", [](const rates& r) { return r.load_gbps; }, 0};
}

void top_screen::add_table(std::vector<screen_line>& to, std::size_t columns, std::size_t rows) const {
  const auto all = sorted();
  std::size_t fixed = 0;
  for (const auto w : widths)
    fixed += w;
  std::size_t longest = std::string_view("NAMESPACE").size();
  for (const auto* x : all)
    longest = std::max(longest, width_of(x->name));
  // First whole names, then pictures.
  const auto rest = columns > fixed + name_least ? columns - fixed : name_least;
  const auto name_columns = std::min(longest, rest);
  const auto left = rest - name_columns;
  const auto picture_columns = left > picture_least ? std::min(left - 1, picture_most) : 0;
  const auto shown = pictured();
  const auto line = [&](const std::string& name, const std::array<std::string, widths.size()>& cells,
                        const std::string& picture) {
    auto text = to_name(name, name_columns);
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += to_right(cells[i], widths[i]);
    return to_width(picture_columns > 0 ? text + " " + picture : text, columns);
  };
  std::array<std::string, widths.size()> head;
  std::ranges::copy(heads, head.begin());
  to.push_back({line("NAMESPACE", head, shown.head), line_style::head});
  if (all.empty())
    to.push_back({to_width("none yet: clients create them, or the config names them", columns), line_style::quiet});
  for (auto i = std::min(first_, all.size()); i < all.size() && to.size() < rows; ++i) {
    const auto& x = *all[i];
    const auto load = speed_text(x.now.load_gbps);
    const auto save = speed_text(x.now.save_gbps);
    const auto used = share_text(x.live_slots, x.slots);
    to.push_back({x.is_rank ? line(x.name, {"", "", load, save, "", "", used},
                                   sparkline(x, picture_columns, shown.of, shown.least))
                            : line(x.name,
                                   {percent_text(x.now.hits), rate_text(x.now.lookups), load, save,
                                    rate_text(x.now.evicted), x.keys, used},
                                   sparkline(x, picture_columns, shown.of, shown.least)),
                  x.damaged   ? line_style::trouble
                  : x.is_rank ? line_style::quiet
                              : line_style::plain});
  }
}

void top_screen::add_listing(std::vector<screen_line>& to, const listing& x, std::size_t columns,
                             std::size_t rows) const {
  std::vector<std::size_t> wide;
  for (std::size_t i = 0; i < x.head.size(); ++i) {
    wide.push_back(width_of(x.head[i]));
    for (const auto& cells : x.rows)
      wide[i] = std::max(wide[i], width_of(cells[i]));
  }
  // The last columns are left out where the two names would have less than half of the line.
  auto count = wide.size();
  const auto others = [&] {
    std::size_t out = 0;
    for (std::size_t i = 2; i < count; ++i)
      out += wide[i] + 2;
    return out;
  };
  while (count > 4 && others() + std::min(wide[0] + wide[1] + 1, columns / 3) > columns)
    --count;
  const auto rest = columns > others() + 3 ? columns - others() - 1 : 2;
  const auto second = std::min(wide[1], std::max(rest / 2, rest - std::min(rest, wide[0])));
  const auto line = [&](const std::vector<std::string>& cells) {
    auto text = to_name(cells[0], std::min(wide[0], rest - std::min(rest, second))) + " " + to_name(cells[1], second);
    for (std::size_t i = 2; i < count; ++i)
      text += to_right(cells[i], wide[i] + 2);
    return to_width(text, columns);
  };
  to.push_back({line(x.head), line_style::head});
  if (x.rows.empty())
    to.push_back({to_width("none", columns), line_style::quiet});
  for (auto i = std::min(first_, x.rows.size()); i < x.rows.size() && to.size() < rows; ++i) {
    const bool is_away = std::ranges::find(x.rows[i], "unreachable") != x.rows[i].end();
    to.push_back({line(x.rows[i]), is_away ? line_style::trouble : line_style::plain});
  }
}

std::string top_screen::help() const {
  constexpr std::array<const char*, order_count> names{"name", "hits", "lookups", "load", "save", "evictions"};
  constexpr std::array<const char*, 3> views{"namespaces", "clients", "cluster"};
  return std::string("q quit  p ") + (paused_ ? "resume" : "pause") +
         "  s sort: " + names[static_cast<std::size_t>(order_)] + "  r " + (shows_all_ranks_ ? "fold" : "all") +
         " ranks  v " + views[static_cast<std::size_t>(next_view())] + "  up/down scroll";
}

std::vector<screen_line> top_screen::lines(std::size_t columns, std::size_t rows) const {
  std::vector<screen_line> out{title(columns)};
  if (!health_.empty()) {
    std::vector<std::string> trouble = warnings_;
    if (!why_.empty())
      trouble.insert(trouble.begin(), why_);
    // Never more than a quarter of the screen, shared between all warnings; the web page and `troupe status` show them
    // in full.
    const auto most = std::max<std::size_t>(rows / 4, 2);
    const auto each = std::max<std::size_t>((most - 1) / std::max<std::size_t>(trouble.size(), 1), 1);
    for (const auto& text : trouble) {
      auto parts = wrapped(text, columns);
      parts.resize(std::min(parts.size(), each));
      for (const auto& part : parts)
        if (out.size() < most)
          out.push_back({to_width(part, columns), line_style::trouble});
    }
    add_node(out, columns);
    out.push_back({std::string(columns, ' '), line_style::plain});
    const auto table_end = rows > 0 ? rows - 1 : 0;
    if (view_ == view::namespaces)
      add_table(out, columns, table_end);
    else
      add_listing(out, view_ == view::clients ? clients_ : cluster_, columns, table_end);
  }
  out.resize(rows > 0 ? rows - 1 : 0, {std::string(columns, ' '), line_style::plain});
  out.push_back({help(), line_style::quiet});
  for (auto& x : out)
    x.text = to_width(x.text, columns);
  out.resize(rows);
  return out;
}

std::string top_screen::plain_line() const {
  if (!is_reached())
    return "unreachable: " + why_;
  const auto& x = node_.now;
  auto out = when_ + " " + name_ + " " + health_ + ": hits " + percent_text(x.hits) + ", lookups " +
             rate_text(x.lookups) + ", p99 " + micros_text(x.p99) + ", load " + speed_text(x.load_gbps) + ", save " +
             speed_text(x.save_gbps) + ", evicted " + rate_text(x.evicted) + ", " + facts_;
  for (const auto& w : warnings_)
    out += "; " + w;
  return out;
}

} // namespace troupe::cli
