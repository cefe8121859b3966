#include "cli/screens/explain_screen.hpp"

#include "cli/screens/words.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <set>
#include <string_view>

namespace troupe::cli {

namespace {

constexpr std::size_t reason_indent = 9;

/// "12:03:04", in local time.
std::string clock_text(std::uint64_t unix_ms) {
  const auto at = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  ::localtime_r(&at, &parts);
  std::string out(8, '\0');
  std::strftime(out.data(), out.size() + 1, "%H:%M:%S", &parts);
  return out;
}

void add_lines(std::string& out, std::string_view text, std::size_t indent, std::size_t columns) {
  for (const auto& line : wrapped(text, columns - indent))
    out.append(indent, ' ').append(line).append("\n");
}

std::string found_text(const nlohmann::json& x) {
  const auto found = whole_at(x, {"found"});
  auto out = "found " + count_text(found) + " of " + counted_at(x, {"asked"}) + " blocks";
  std::string tiers;
  const auto add = [&](const char* key, const char* name) {
    if (const auto n = whole_at(x, {key}); n > 0)
      tiers += (tiers.empty() ? "" : ", ") + count_text(n) + " " + name;
  };
  add("memory", "in memory");
  add("disk", "on disk");
  add("peer", "from other nodes");
  if (!tiers.empty())
    out += ": " + tiers;
  return out;
}

void add_reasons(std::string& out, const nlohmann::json& x, std::size_t columns) {
  if (const auto why = text_at(x, {"refused", "text"}); !why.empty())
    return add_lines(out, why, reason_indent, columns);
  const auto& ends = list_at(x, {"ends"});
  // Where several keys may be the first that was missing, their reasons are mostly the same.
  std::set<std::string> texts;
  for (const auto& end : ends)
    texts.insert(text_at(end, {"text"}));
  const std::string place = x.value("each", false) ? "a block" : "block " + count_text(whole_at(x, {"found"}) + 1);
  if (texts.size() > 1)
    add_lines(out, place + ", one of:", reason_indent, columns);
  for (const auto& text : texts)
    add_lines(out, texts.size() > 1 ? "- " + text : place + ": " + text, reason_indent, columns);
}

} // namespace

bool is_explanation(const nlohmann::json& x) {
  return x.is_object() && x.contains("kept") && x["kept"].is_boolean() && x.contains("lookups") &&
         x["lookups"].is_array();
}

std::string explain_screen(const nlohmann::json& x, std::size_t columns) {
  columns = std::max<std::size_t>(columns, 40);
  std::string out;
  if (!x.value("kept", false)) {
    add_lines(out, "This node keeps no lookups: set registry.explain_lookups to more than 0, and restart it.", 0,
              columns);
    return out;
  }
  const auto& lookups = list_at(x, {"lookups"});
  if (lookups.empty())
    add_lines(
        out,
        "No such lookup since the node started, or among the last ones that it keeps. If engines should have asked: "
        "`troupe status` lists those that are attached, and docs/troubleshooting.md says why one is not. Lookups of "
        "SGLang and of HF3FS's clients are not kept.",
        0, columns);
  // The newest last, as in a log.
  for (auto i = lookups.rbegin(); i != lookups.rend(); ++i) {
    const auto client = text_at(*i, {"client"});
    out += clock_text(whole_at(*i, {"at_ms"})) + " ";
    const auto request = text_at(*i, {"request"});
    auto front = client.empty() ? "a client" : client;
    if (!request.empty())
      front += ", request " + request + ",";
    front += " in " + text_at(*i, {"namespace"}) + " " + found_text(*i) + "  [" + text_at(*i, {"id"}) + "]";
    const auto lines = wrapped(front, columns - reason_indent);
    for (std::size_t n = 0; n < lines.size(); ++n)
      out.append(n == 0 ? 0 : reason_indent, ' ').append(lines[n]).append("\n");
    add_reasons(out, *i, columns);
  }
  if (!lookups.empty())
    add_lines(out, "Removals are known since " + clock_text(whole_at(x, {"events_since_ms"})) + ".", 0, columns);
  return out;
}

} // namespace troupe::cli
