#include "workload/replay/report.hpp"

#include "workload/replay/text_table.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace troupe::replay {

namespace {

nlohmann::ordered_json to_object(const failure_codes& codes) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [code, count] : codes)
    out[std::string(to_string(code))] = count;
  return out;
}

/// " (5 full, 1 timeout)", or nothing.
std::string to_text(const failure_codes& codes) {
  std::string out;
  for (const auto& [code, count] : codes)
    out += fmt::format("{}{} {}", out.empty() ? " (" : ", ", human_count(count), to_string(code));
  return out.empty() ? out : out + ')';
}

nlohmann::ordered_json to_object(const latency_summary& l) {
  return {{"p50", finite(l.p50)}, {"p99", finite(l.p99)}, {"max", finite(l.max)}};
}

std::string microseconds(double us) {
  return human_time(duration(std::llround(finite(us) * 1e3)));
}

std::string bandwidth(double gbps) {
  return fmt::format("{:.2f}", finite(gbps));
}

/// The bandwidth as a share of a plain copy's.
std::string beside_copy(double gbps, double copy_gbps) {
  return fmt::format("{:.1f} GB/s ({:.3f})", copy_gbps, copy_gbps > 0 ? finite(gbps) / copy_gbps : 0.0);
}

std::string plain_copies(const replay_report& r) {
  std::vector<std::string> parts;
  if (r.loaded_bytes > 0)
    parts.push_back("to the GPU " + beside_copy(r.load_gbps, r.plain_copy->to_device));
  if (r.saved_bytes > 0)
    parts.push_back("from it " + beside_copy(r.save_gbps, r.plain_copy->to_host));
  if (r.loaded_bytes > 0 && r.saved_bytes > 0)
    parts.push_back("both at once " + beside_copy(r.together_gbps, r.plain_copy->both));
  return parts.empty() ? std::string() : fmt::format("\n  A plain copy makes {}.\n", fmt::join(parts, ", "));
}

std::string pages(std::uint64_t n) {
  return human_count(n) + (n == 1 ? " page" : " pages");
}

} // namespace

double replay_report::hit_ratio() const noexcept {
  return share(hit_blocks, blocks);
}

std::string to_json(const replay_report& r) {
  nlohmann::ordered_json object{
      {"requests", r.requests},
      {"blocks", r.blocks},
      {"hit_blocks", r.hit_blocks},
      {"hit_ratio", r.hit_ratio()},
      {"loaded_pages", r.loaded_pages},
      {"saved_pages", r.saved_pages},
      {"loaded_from_memory", r.loaded_from_memory()},
      {"loaded_from_disk", r.loaded_from_disk},
      {"loaded_bytes", r.loaded_bytes},
      {"saved_bytes", r.saved_bytes},
      {"verify_failures", r.verify_failures},
      {"load_failures", r.load_failures},
      {"save_failures", r.save_failures},
      {"load_failure_codes", to_object(r.load_failure_codes)},
      {"save_failure_codes", to_object(r.save_failure_codes)},
      {"evicted_keys", r.evicted_keys},
      {"seconds", finite(r.seconds)},
      {"load_gbps", finite(r.load_gbps)},
      {"save_gbps", finite(r.save_gbps)},
      {"lookup_us", to_object(r.lookup_us)},
      {"load_us", to_object(r.load_us)},
      {"save_us", to_object(r.save_us)},
  };
  if (r.plain_copy)
    object["plain_copy_gbps"] = {{"to_device", finite(r.plain_copy->to_device)},
                                 {"to_host", finite(r.plain_copy->to_host)},
                                 {"both", finite(r.plain_copy->both)},
                                 {"together", finite(r.together_gbps)}};
  // Only where it is not the default.
  if (!r.compared)
    object["compared"] = false;
  return object.dump();
}

std::string verdict(const replay_report& r) {
  if (r.verify_failures != 0)
    return fmt::format("WRONG BYTES in {} of {} loaded.", human_count(r.verify_failures), pages(r.loaded_pages));
  std::string out = !r.compared           ? std::string("Bytes were moved and checked, but not compared.")
                    : r.loaded_pages == 0 ? "Nothing was loaded, so no byte was compared."
                                          : fmt::format("Every byte was right: {} loaded and compared, {} in all.",
                                                        pages(r.loaded_pages), human_bytes(r.loaded_bytes));
  if (r.load_failures != 0)
    out += fmt::format(" {} could not be loaded and counted as missing{}.", pages(r.load_failures),
                       to_text(r.load_failure_codes));
  if (r.save_failures != 0)
    out += fmt::format(" {} could not be saved{}.", pages(r.save_failures), to_text(r.save_failure_codes));
  return out;
}

std::string to_table(const replay_report& r, std::string_view title) {
  auto out = fmt::format("{}: {} requests in {}, {:.1f} cores busy\n\n", title, human_count(r.requests),
                         human_time(from_seconds(r.seconds)), finite(r.cores));
  out += fmt::format("  {} of {} blocks were found ({})", human_count(r.hit_blocks), human_count(r.blocks),
                     human_percent(r.hit_ratio()));
  out += r.evicted_keys == 0 ? "; nothing was evicted\n"
                             : fmt::format("; {} keys were evicted\n", human_count(r.evicted_keys));
  if (r.loaded_pages > 0)
    out += fmt::format("  of the pages loaded, {} were in memory and {} on disk ({})\n",
                       human_count(r.loaded_from_memory()), human_count(r.loaded_from_disk),
                       human_percent(share(r.loaded_from_disk, r.loaded_pages)));
  out += "\n";
  text_table table({"", "pages", "bytes", "GB/s", "failures", "p50", "p99", "max"});
  const auto times = [](std::vector<std::string> cells, const latency_summary& l) {
    for (const auto us : {l.p50, l.p99, l.max})
      cells.push_back(microseconds(us));
    return cells;
  };
  table.row(times({"lookup", "", "", "", ""}, r.lookup_us));
  table.row(times({"load", human_count(r.loaded_pages), human_bytes(r.loaded_bytes), bandwidth(r.load_gbps),
                   human_count(r.load_failures + r.verify_failures)},
                  r.load_us));
  table.row(times({"save", human_count(r.saved_pages), human_bytes(r.saved_bytes), bandwidth(r.save_gbps),
                   human_count(r.save_failures)},
                  r.save_us));
  out += table.str();
  if (r.plain_copy)
    out += plain_copies(r);
  return out + "\n" + verdict(r) + "\n";
}

std::string progress_line(const replay_progress& p, std::size_t columns) {
  const auto done = std::min(share(p.requests_done, p.requests), 1.0);
  // The most important parts first.
  std::vector<std::string> parts{
      fmt::format("{:3.0f} %", std::floor(done * 100.0)),
      fmt::format("{} of {} requests", human_count(p.requests_done), human_count(p.requests)),
  };
  if (p.requests_done > 0 && p.requests_done < p.requests) {
    const auto left = static_cast<double>(p.requests - p.requests_done) / static_cast<double>(p.requests_done);
    // Whole seconds: more digits would only flicker.
    const auto seconds = std::llround(left * static_cast<double>(p.elapsed.count()) / 1e9);
    parts.push_back(fmt::format("{} left", seconds < 120 ? fmt::format("{} s", seconds)
                                                         : human_time(std::chrono::seconds(seconds))));
  }
  if (p.failures != 0)
    parts.push_back(fmt::format("{} failed", pages(p.failures)));
  parts.push_back(fmt::format("{} of blocks found", human_percent(share(p.hit_blocks, p.blocks))));
  parts.push_back(fmt::format("load {:.2f} GB/s", gigabytes_per_second(p.loaded_bytes, p.elapsed)));
  parts.push_back(fmt::format("save {:.2f} GB/s", gigabytes_per_second(p.saved_bytes, p.elapsed)));

  constexpr std::string_view gap = "  ";
  std::string out;
  for (const auto& part : parts) {
    const auto text = out.empty() ? part : std::string(gap) + part;
    if (display_width(out) + display_width(text) > columns)
      break;
    out += text;
  }
  constexpr std::size_t longest_bar = 24;
  constexpr std::size_t shortest_bar = 4;
  const auto taken = display_width(out) + 3; // brackets and a blank
  const auto bar = columns > taken ? std::min(columns - taken, longest_bar) : 0;
  if (bar < shortest_bar)
    return out;
  const auto filled = static_cast<std::size_t>(done * static_cast<double>(bar));
  return fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(bar - filled, '.'), out);
}

std::string_view to_string(phase p) noexcept {
  constexpr std::array<std::string_view, phase_count> names{
      "lookup", "locate", "read", "scatter", "compare", "produce", "reserve", "gather", "write", "commit", "release"};
  return names[static_cast<std::size_t>(p)];
}

void phase_times::add(phase p, duration d, std::uint64_t bytes) noexcept {
  auto& entry = entries_[static_cast<std::size_t>(p)];
  entry.time += d;
  entry.bytes += bytes;
}

duration phase_times::time(phase p) const noexcept {
  return entries_[static_cast<std::size_t>(p)].time;
}

std::uint64_t phase_times::bytes(phase p) const noexcept {
  return entries_[static_cast<std::size_t>(p)].bytes;
}

duration phase_times::total() const noexcept {
  duration sum{};
  for (const auto& entry : entries_)
    sum += entry.time;
  return sum;
}

std::string to_table(const phase_times& times) {
  text_table table({"phase", "time", "share", "bytes", "GB/s"});
  const auto total = static_cast<std::uint64_t>(std::max<duration::rep>(times.total().count(), 0));
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto p = static_cast<phase>(i);
    const auto time = times.time(p);
    if (time <= duration::zero())
      continue;
    const auto bytes = times.bytes(p);
    table.row({std::string(to_string(p)), human_time(time),
               human_percent(share(static_cast<std::uint64_t>(time.count()), total)),
               bytes == 0 ? "" : human_bytes(bytes), bytes == 0 ? "" : bandwidth(gigabytes_per_second(bytes, time))});
  }
  return table.str();
}

} // namespace troupe::replay
