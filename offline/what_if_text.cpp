#include "offline/what_if.hpp"
#include "workload/replay/text_table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

/// The output of a report: as a table, as JSON, as a picture.

namespace troupe::offline {

std::string to_text(const what_if_report& report) {
  auto out = report.trace + ": " + replay::human_count(report.requests) + " requests, " +
             replay::human_count(report.blocks) + " blocks, " + replay::human_count(report.different) +
             " of them different; at most " + replay::human_percent(report.ratio(report.repeated)) + " can be hits" +
             (report.ranks > 1 ? "; each key has a page on each of " + std::to_string(report.ranks) + " ranks" : "") +
             "\n\n";
  std::vector<std::string> header{"hits of all blocks, by capacity"};
  for (const auto x : report.capacities)
    header.push_back(replay::human_count(x));
  replay::text_table table(std::move(header));
  for (const auto& row : report.rows) {
    std::vector<std::string> cells{row.name == what_if_report::optimum ? "knowing the future" : row.name};
    for (const auto hits : row.hits)
      cells.push_back(replay::human_percent(report.ratio(hits)));
    table.row(std::move(cells));
  }
  return out + table.str(0);
}

std::string to_json(const what_if_report& report) {
  nlohmann::ordered_json out{{"trace", report.trace},
                             {"ranks", report.ranks},
                             {"requests", report.requests},
                             {"blocks", report.blocks},
                             {"different_blocks", report.different},
                             {"repeated_blocks", report.repeated},
                             {"capacities", report.capacities},
                             {"policies", nlohmann::ordered_json::array()}};
  for (const auto& row : report.rows) {
    std::vector<double> ratios;
    for (const auto hits : row.hits)
      ratios.push_back(report.ratio(hits));
    out["policies"].push_back(
        {{"name", row.name}, {"hit_blocks", row.hits}, {"hit_ratios", ratios}, {"seconds", row.seconds}});
  }
  return out.dump() + "\n";
}

namespace {

constexpr double width = 720;
constexpr double height = 420;
constexpr double left = 62;
constexpr double right = 150;
constexpr double top = 46;
constexpr double bottom = 52;

/// The colours can be told apart also with red-green colour blindness.
constexpr std::array<std::string_view, 4> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7"};

std::string fixed(double x, int digits = 1) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, x);
  return text.data();
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ')
      out += c;
  return out;
}

/// The coordinate system of the picture. Capacities have a logarithmic scale.
class plane {
public:
  explicit plane(const what_if_report& report) {
    from_ = std::log(static_cast<double>(report.capacities.front()));
    to_ = std::log(static_cast<double>(report.capacities.back()));
    double most = report.ratio(report.repeated);
    for (const auto& row : report.rows)
      for (const auto hits : row.hits)
        most = std::max(most, report.ratio(hits));
    most_ = std::max(std::ceil(most * 10) / 10, 0.1);
  }

  double x(std::uint64_t capacity) const {
    const auto span = width - left - right;
    if (to_ <= from_)
      return left + span / 2;
    return left + span * (std::log(static_cast<double>(capacity)) - from_) / (to_ - from_);
  }
  double y(double ratio) const { return height - bottom - (height - top - bottom) * ratio / most_; }
  double most() const { return most_; }

private:
  double from_ = 0;
  double to_ = 0;
  double most_ = 1;
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view what, std::string_view fill = {}) {
  return "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + std::string(anchor) + "\"" +
         (fill.empty() ? "" : " style=\"fill:" + std::string(fill) + "\"") + ">" + escaped(what) + "</text>\n";
}

std::string grid(const what_if_report& report, const plane& at) {
  std::string out;
  const auto step = at.most() > 0.5 ? 0.2 : 0.1;
  for (double ratio = 0; ratio < at.most() + step / 2; ratio += step) {
    const auto y = fixed(at.y(ratio));
    out += "<line class=\"grid\" x1=\"" + fixed(left) + "\" x2=\"" + fixed(width - right) + "\" y1=\"" + y +
           "\" y2=\"" + y + "\"/>\n" + text_at(left - 8, at.y(ratio) + 4, "end", fixed(ratio * 100, 0) + " %");
  }
  double free_from = 0;
  for (const auto capacity : report.capacities) {
    const auto label = replay::human_count(capacity);
    const auto half = static_cast<double>(label.size()) * 3.5;
    const auto x = at.x(capacity);
    out += "<line class=\"axis\" x1=\"" + fixed(x) + "\" x2=\"" + fixed(x) + "\" y1=\"" + fixed(height - bottom) +
           "\" y2=\"" + fixed(height - bottom + 5) + "\"/>\n";
    if (x - half < free_from)
      continue;
    out += text_at(x, height - bottom + 19, "middle", label);
    free_from = x + half + 6;
  }
  return out + text_at((left + width - right) / 2, height - 12, "middle", "capacity in blocks");
}

/// The positions of the labels at the ends of the curves, shifted where these meet.
std::vector<double> label_places(const what_if_report& report, const plane& at) {
  constexpr double apart = 15;
  std::vector<std::pair<double, std::size_t>> ends;
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    ends.emplace_back(at.y(report.ratio(report.rows[i].hits.back())), i);
  std::ranges::sort(ends);
  std::vector<double> out(ends.size());
  double next = top;
  for (const auto& [y, i] : ends) {
    out[i] = std::max(y, next);
    next = out[i] + apart;
  }
  return out;
}

} // namespace

std::string to_svg(const what_if_report& report) {
  if (report.capacities.empty())
    return {};
  const plane at(report);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + fixed(width, 0) + " " +
                    fixed(height, 0) + "\" role=\"img\">\n<title>Hit ratio by capacity: " + escaped(report.trace) +
                    "</title>\n"
                    "<style>\n"
                    "text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}\n"
                    ".grid{stroke:#ddd}.axis{stroke:#888}.back{fill:#fff}.curve{fill:none;stroke-width:2}\n"
                    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#333}.back{fill:#111}}\n"
                    "</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n";
  out += "<text class=\"title\" x=\"" + fixed(left) + "\" y=\"24\">" +
         escaped("Hits of " + replay::human_count(report.blocks) + " blocks in " +
                 replay::human_count(report.requests) + " requests: " + report.trace) +
         "</text>\n";
  out += grid(report, at);
  const auto places = label_places(report, at);
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& row = report.rows[i];
    const bool optimum = row.name == what_if_report::optimum;
    const auto colour = optimum ? std::string_view("#888888") : colours[i % colours.size()];
    std::string points;
    std::string dots;
    for (std::size_t k = 0; k < row.hits.size(); ++k) {
      const auto x = fixed(at.x(report.capacities[k]));
      const auto y = fixed(at.y(report.ratio(row.hits[k])));
      points.append(k == 0 ? "" : " ").append(x).append(",").append(y);
      dots += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3\" style=\"fill:" + std::string(colour) + "\"><title>" +
              escaped(row.name + ", " + replay::human_count(report.capacities[k]) +
                      " blocks: " + replay::human_percent(report.ratio(row.hits[k]))) +
              "</title></circle>\n";
    }
    out += "<polyline class=\"curve\" style=\"stroke:" + std::string(colour) +
           (optimum ? ";stroke-dasharray:6 4" : "") + "\" points=\"" + points + "\"/>\n" + dots;
    out += text_at(width - right + 10, places[i] + 4, "start", optimum ? "knowing the future" : row.name, colour);
  }
  return out + "</svg>\n";
}

} // namespace troupe::offline
