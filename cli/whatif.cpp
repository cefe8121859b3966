#include "actors/node/supervisor/trace_file.hpp"
#include "base/parse_number.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "config/node_config.hpp"
#include "offline/what_if.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <utility>

namespace troupe::cli {

namespace {

int wrong_whatif(const std::string& why) {
  std::cerr << "troupe whatif: " << why << '\n';
  return exit_usage;
}

std::vector<std::string> at_commas(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    out.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

/// None if one of them is not a number.
std::optional<std::vector<std::uint64_t>> numbers_in(std::string_view text) {
  std::vector<std::uint64_t> out;
  for (const auto& word : at_commas(text)) {
    const auto number = parse_number(word);
    if (!number)
      return std::nullopt;
    out.push_back(*number);
  }
  return out;
}

/// Why the node with that data directory has left no trace; empty if there is one.
std::string why_no_record(const std::filesystem::path& data_dir) {
  std::error_code ignored;
  const auto file = recorded_trace(data_dir);
  if (!std::filesystem::is_directory(data_dir, ignored))
    return "--record takes the data_dir of a node, and '" + data_dir.string() + "' is not a directory";
  if (std::filesystem::exists(file, ignored))
    return {};
  return "the node of '" + data_dir.string() + "' has recorded nothing: there is no " + file.filename().string() +
         " in it. A node records lookups with `registry.record_keys`, which is 0 by default, and writes the recording "
         "once a minute and when it ends: troupe serve --config node.json --set registry.record_keys=1000000";
}

} // namespace

int whatif(const whatif_options& options) {
  auto capacities = numbers_in(options.capacities);
  if (!capacities)
    return wrong_whatif("--capacity takes whole numbers, as in 5000,10000,30000, not '" + options.capacities + "'");
  if (options.trace.empty() && options.record.empty())
    return wrong_whatif("there is nothing to replay: name a --trace, or a node with a recording with --record");
  if (!options.record.empty())
    if (const auto why = why_no_record(options.record); !why.empty())
      return wrong_whatif(why);
  // A folder and a file in it are never a generator.
  const auto name = options.record.empty() ? options.trace : recorded_trace(options.record).string();
  const auto trace = replay::open_trace(name, options.block_tokens, options.limit);
  if (!trace)
    return wrong_whatif(trace.error().text);
  offline::what_if_options how;
  how.capacities = std::move(*capacities);
  if (!options.policies.empty())
    how.policies = at_commas(options.policies);
  std::ranges::replace(how.policies, "s3fifo", "s3-fifo"); // a common spelling
  how.shards = options.shards;
  how.ranks = options.ranks;
  const config::storage_config defaults;
  how.low_watermark = defaults.low_watermark;
  how.high_watermark = defaults.high_watermark;
  progress_display display(options.quiet);
  const auto report = offline::what_if(*trace, how, [&](const std::string& what) { display.wait(what); });
  display.clear();
  if (!report)
    return wrong_whatif(report.error().text);
  if (options.svg) {
    std::ofstream out(*options.svg, std::ios::binary);
    if (!(out << offline::to_svg(*report) << std::flush)) {
      std::cerr << "troupe whatif: " << options.svg->string() << " cannot be written\n";
      return exit_failed;
    }
  }
  return print(options.json ? offline::to_json(*report) : offline::to_text(*report)) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
