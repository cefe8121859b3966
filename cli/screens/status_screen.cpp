#include "cli/screens/status_screen.hpp"

#include "cli/screens/cluster_screen.hpp"
#include "cli/screens/words.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::cli {

namespace {

using nlohmann::json;

constexpr std::size_t front_columns = 13;
/// Columns of a rank's line that are not its bar; and the least and the largest bar.
constexpr std::size_t around_bar = 64;
constexpr std::size_t bar_least = 12;
constexpr std::size_t bar_most = 100;
/// The most namespaces, ranks and clients on the screen; --json and the web page list more.
constexpr std::size_t ranks_most = 16;
constexpr std::size_t clients_most = 8;

std::optional<double> ratio_of(const json& activity) {
  const auto asked = number_at(activity, {"asked_keys"});
  return asked > 0 ? std::optional(number_at(activity, {"hit_ratio"})) : std::nullopt;
}

std::string per_second(const json& activity, const char* key) {
  const auto seconds = number_at(activity, {"seconds"});
  return rate_text(seconds > 0 ? number_at(activity, {key}) / seconds : 0);
}

/// The lines of a screen; long ones continue below their text.
class screen {
public:
  explicit screen(std::size_t columns) : columns_(std::max<std::size_t>(columns, 40)) {}

  void add(std::string_view text) { out_.append(text).append("\n"); }

  void add(std::string_view label, std::string_view text) {
    auto front = to_width(label, front_columns);
    for (const auto& line : wrapped(text, columns_ - front_columns)) {
      add(front + line);
      front.assign(front_columns, ' ');
    }
  }

  std::string text() && { return std::move(out_); }
  std::size_t columns() const { return columns_; }

private:
  std::size_t columns_;
  std::string out_;
};

void add_identity(screen& to, const json& x) {
  const auto& node = x.at("node");
  to.add(text_at(node, {"name"}) + ": " + text_at(x, {"health"}));
  to.add("program", "troupe " + text_at(node, {"version"}) + " (commit " + text_at(node, {"commit"}) + "), protocol " +
                        counted_at(node, {"protocol"}) + ", process " + std::to_string(whole_at(node, {"process"})) +
                        ", up for " + span_text(number_at(node, {"uptime_s"})));
  to.add("data", text_at(node, {"data_dir"}) + "; durability: " + text_at(node, {"durability"}));
}

void add_warnings(screen& to, const json& x) {
  for (const auto& w : list_at(x, {"warnings"})) {
    to.add("");
    to.add(text_at(w, {"severity"}), text_at(w, {"reason"}) + ": " + text_at(w, {"text"}));
    to.add("", "see " + text_at(w, {"runbook"}));
  }
}

void add_last_minute(screen& to, const json& x) {
  const auto& m = x.at("last_minute");
  to.add("");
  // Latencies come with the next sample: none of a lookup is as quick as 0.
  const auto latency = [&m](const char* name) {
    const auto found = number_at(m, {name});
    return found > 0 ? micros_text(found) : std::string("-");
  };
  to.add("last minute", "hit ratio " + percent_text(ratio_of(m)) + ", " + per_second(m, "lookups") + " lookups, p50 " +
                            latency("lookup_p50_us") + ", p99 " + latency("lookup_p99_us"));
  const auto memory = number_at(m, {"memory_pages"});
  const auto loaded = memory + number_at(m, {"disk_pages"});
  const auto tier = loaded > 0 ? " (" + percent_text(memory / loaded) + " from memory)" : std::string();
  to.add("", "load " + speed_text(number_at(m, {"load_gbps"})) + tier + ", save " +
                 speed_text(number_at(m, {"save_gbps"})) + ", evicted " + per_second(m, "evicted_keys"));
  to.add("now", counted_at(x, {"registry", "complete_keys"}) + " complete keys of " +
                    counted_at(x, {"registry", "keys"}) + ", " + counted_at(x, {"registry", "leases"}) + " leases, " +
                    counted_at(x, {"registry", "reservations"}) + " reservations");
}

/// What encoding has saved, where pages were encoded.
void add_encoded(screen& to, const json& x) {
  double payload = 0;
  double stored = 0;
  for (const auto& ns : list_at(x, {"namespaces"}))
    for (const auto& rank : list_at(ns, {"ranks"})) {
      payload += number_at(rank, {"total", "saved_payload_bytes"});
      stored += number_at(rank, {"total", "saved_stored_bytes"});
    }
  if (stored < payload)
    to.add("encoded", bytes_text(payload) + " saved since the start in " + bytes_text(stored) + " (" +
                          share_text(stored, payload) + ")");
}

void add_tiers(screen& to, const json& x) {
  const auto& t = x.at("tiers");
  const auto of = [&](const char* tier, const char* limit) {
    const auto most = number_at(t, {tier, limit});
    const auto used = number_at(t, {tier, "bytes"});
    return bytes_text(used) + " of " + bytes_text(most) + " (" + share_text(used, most) + ")";
  };
  const bool has_disk = number_at(t, {"disk", "capacity_bytes"}) > 0;
  to.add("");
  auto memory = counted_at(t, {"memory", "pages"}) + " pages, " + of("memory", "limit_bytes");
  if (has_disk)
    memory += ", " + counted_at(t, {"memory", "dirty_pages"}) + " not yet on disk";
  // Pages that the disk has no room for, which a restart loses.
  if (number_at(t, {"memory", "memory_only_pages"}) > 0)
    memory += ", " + counted_at(t, {"memory", "memory_only_pages"}) + " in memory only";
  to.add("memory", memory + "; " + text_at(x, {"node", "memory"}));
  to.add("disk", has_disk ? counted_at(t, {"disk", "pages"}) + " pages, " + of("disk", "capacity_bytes") +
                                "; slabs: " + text_at(x, {"node", "slabs"})
                          : "none");
  to.add("index", of("index", "limit_bytes"));
  add_encoded(to, x);
}

/// The bar "####++x.....": live, reserved and quarantined slots of `whole`, and the rest.
std::string bar_of(const json& slots, double whole, std::size_t cells) {
  std::string out;
  const auto draw = [&](char c, const char* state) {
    const auto n = number_at(slots, {state});
    const auto part = whole > 0 ? n / whole * static_cast<double>(cells) : 0;
    // A state with at least one slot gets at least one character.
    const auto wanted = n > 0 ? std::max<std::size_t>(1, static_cast<std::size_t>(part + 0.5)) : 0;
    out.append(std::min(wanted, cells - out.size()), c);
  };
  draw('#', "live");
  draw('+', "reserved");
  draw('x', "quarantined");
  out.append(cells - out.size(), '.');
  return out;
}

/// "398 of 819 slots", and the states that need attention or end soon.
std::string slots_text(const json& slots) {
  auto out = counted_at(slots, {"live"}) + " of " + counted_at(slots, {"total"}) + " slots";
  for (const auto* state : {"reserved", "quarantined"})
    if (whole_at(slots, {state}) > 0)
      out += ", " + counted_at(slots, {state}) + " " + state;
  return out;
}

bool has_equal_ranks(const json& ranks) {
  return ranks.size() > 1 && std::ranges::all_of(ranks, [&](const json& x) {
           return x.at("slots") == ranks.front().at("slots") && !x.value("damaged", false);
         });
}

/// A line for each rank, or one for all of them if they are equal. Returns the number of lines.
std::size_t add_ranks(screen& to, const json& ns, std::size_t most) {
  const auto& ranks = list_at(ns, {"ranks"});
  const auto cells = std::clamp(to.columns() - std::min(to.columns(), around_bar), bar_least, bar_most);
  // A file that grows has fewer slots now than it will have.
  const auto whole = [&](const json& slots) {
    return std::max(number_at(slots, {"total"}), number_at(ns, {"capacity", "keys"}));
  };
  const auto bar = [&](const json& rank) { return bar_of(rank.at("slots"), whole(rank.at("slots")), cells) + " "; };
  if (has_equal_ranks(ranks)) {
    to.add("  " + count_text(ranks.size()) + " ranks " + bar(ranks.front()) + slots_text(ranks.front().at("slots")) +
           " each");
    return 1;
  }
  std::size_t shown = 0;
  for (const auto& rank : ranks) {
    if (shown >= most)
      break;
    ++shown;
    to.add("  rank " + to_width(counted_at(rank, {"rank"}), 3) + bar(rank) +
           (rank.value("damaged", false) ? "DAMAGED, " : "") + slots_text(rank.at("slots")));
  }
  return shown;
}

void add_namespaces(screen& to, const json& x) {
  const auto name_columns = to.columns() - std::min(to.columns() - 8, std::size_t{58});
  const auto row = [&](std::string_view name, const std::array<std::string, 6>& cells) {
    constexpr std::array<std::size_t, 6> widths{10, 8, 9, 11, 11, 9};
    auto line = to_name(name, name_columns);
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += to_right(cells[i], widths[i]);
    to.add(line);
  };
  to.add("");
  if (list_at(x, {"namespaces"}).empty())
    return to.add("no namespaces yet: clients create them, or the config names them");
  row("NAMESPACE", {"KEYS", "LEASES", "HITS", "LOAD", "SAVE", "EVICTED"});
  std::size_t shown = 0;
  std::size_t left_out = whole_at(x, {"namespaces_omitted"});
  for (const auto& ns : list_at(x, {"namespaces"})) {
    if (shown >= ranks_most) {
      ++left_out;
      continue;
    }
    const auto& m = ns.at("last_minute");
    row(text_at(ns, {"name"}), {counted_at(ns, {"keys"}), counted_at(ns, {"leases"}), percent_text(ratio_of(m)),
                                speed_text(number_at(m, {"load_gbps"})), speed_text(number_at(m, {"save_gbps"})),
                                per_second(m, "evicted_keys")});
    if (const auto most = whole_at(ns, {"capacity", "keys"}); most > 0)
      to.add("  room for " + count_text(most) + " keys, " + bytes_text(number_at(ns, {"capacity", "bytes"})) +
             " at most, bounded by " + text_at(ns, {"capacity", "bounded_by"}));
    shown += add_ranks(to, ns, ranks_most - shown);
  }
  if (left_out > 0)
    to.add("and " + count_text(left_out) + " more: see --json");
}

void add_cluster(screen& to, const json& x) {
  if (!x.contains("cluster"))
    return;
  to.add("");
  std::string_view label = "cluster";
  for (const auto& sentence : cluster_sentences(x.at("cluster")))
    to.add(std::exchange(label, ""), sentence);
}

void add_clients(screen& to, const json& x) {
  to.add("");
  const auto left = whole_at(x, {"clients", "disconnected"});
  to.add("clients", counted_at(x, {"clients", "attached"}) + " attached" +
                        (left > 0 ? ", " + count_text(left) + " disconnected but not yet drained" : ""));
  std::size_t shown = 0;
  for (const auto& c : list_at(x, {"clients", "list"})) {
    if (++shown > clients_most)
      break;
    const bool elsewhere = c.value("elsewhere", false);
    to.add("", text_at(c, {"name"}) + " in " + text_at(c, {"namespace"}) + ", " +
                   (c.value("is_node", false) ? "another node"
                    : elsewhere               ? "on another host"
                                              : "process " + std::to_string(whole_at(c, {"process"}))) +
                   ", for " + span_text(number_at(c, {"attached_s"})) + ", load " +
                   speed_text(number_at(c, {"last_minute", "load_gbps"})) + ", save " +
                   speed_text(number_at(c, {"last_minute", "save_gbps"})));
  }
}

void add_lmcache(screen& to, const json& x) {
  if (!x.contains("lmcache"))
    return;
  to.add("");
  to.add("lmcache", counted_at(x, {"lmcache", "connected"}) + " clients connected");
  std::size_t shown = 0;
  for (const auto& c : list_at(x, {"lmcache", "clients"})) {
    if (++shown > clients_most)
      break;
    auto text = "client " + std::to_string(whole_at(c, {"client"}));
    if (const auto process = whole_at(c, {"process"}); process != 0)
      text += ", process " + std::to_string(process) + " (" + text_at(c, {"name"}) + ")";
    text += ", LMCache " + text_at(c, {"version"}) + ", " + counted_at(c, {"requests"}) + " requests";
    if (whole_at(c, {"malformed"}) > 0)
      text += ", " + counted_at(c, {"malformed"}) + " refused: " + text_at(c, {"difference"});
    to.add("", text);
  }
}

void add_events(screen& to, const json& x) {
  if (!x.contains("events"))
    return;
  to.add("");
  auto text = counted_at(x, {"events", "subscribers"}) + " subscribers, " + counted_at(x, {"events", "pages"}) +
              " pages published, last batch " + std::to_string(whole_at(x, {"events", "last_batch"}));
  if (whole_at(x, {"events", "dropped_batches"}) > 0)
    text += ", " + counted_at(x, {"events", "dropped_batches"}) + " batches dropped for slow subscribers";
  to.add("events", text);
}

} // namespace

bool is_status(const json& x) {
  const auto has = [&](const char* key) { return x.contains(key) && x[key].is_object(); };
  return x.is_object() && has("node") && has("registry") && has("tiers") && has("last_minute") && has("clients") &&
         !text_at(x, {"health"}).empty();
}

std::string status_screen(const json& status, std::size_t columns) {
  screen out(columns);
  add_identity(out, status);
  add_warnings(out, status);
  add_last_minute(out, status);
  add_tiers(out, status);
  add_namespaces(out, status);
  add_cluster(out, status);
  add_clients(out, status);
  add_lmcache(out, status);
  add_events(out, status);
  return std::move(out).text();
}

} // namespace troupe::cli
