#include "workload/replay/engine_report.hpp"

#include "workload/replay/latency.hpp"
#include "workload/replay/text_table.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <numeric>

namespace troupe::replay {

namespace {

std::vector<std::string> transfer_row(std::string name, const std::vector<double>& durations, std::uint64_t failed,
                                      std::uint64_t bytes) {
  latency_samples all;
  for (const auto x : durations)
    all.record(from_seconds(x));
  const auto time = [&](double percent) {
    return durations.empty() ? std::string() : human_time(all.percentile(percent));
  };
  return {std::move(name),
          human_count(durations.size() + failed),
          human_count(failed),
          human_bytes(bytes),
          time(50),
          time(99),
          time(100)};
}

} // namespace

std::string to_json(const engine_report& r) {
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  for (const auto& x : r.violations)
    found.push_back({{"property", x.property}, {"text", x.text}});
  const nlohmann::ordered_json object = {
      {"requests", r.requests},
      {"requests_aborted", r.requests_aborted},
      {"prompt_tokens", r.prompt_tokens},
      {"steps", r.engine.steps},
      {"scheduled_tokens", r.engine.scheduled_tokens},
      {"generated_tokens", r.engine.generated_tokens},
      {"prefix_cache_tokens", r.engine.prefix_cache_tokens},
      {"external_tokens", r.engine.external_tokens},
      {"preemptions", r.engine.preemptions},
      {"loads", r.engine.loads},
      {"loads_failed", r.engine.loads_failed},
      {"loads_after_preemption", r.engine.loads_after_preemption},
      {"aborted_during_load", r.engine.aborted_during_load},
      {"loaded_bytes", r.connector.loaded_bytes},
      {"saved_bytes", r.connector.saved_bytes},
      {"failed_load_tasks", r.connector.num_failed_load},
      {"failed_save_tasks", r.connector.num_failed_save},
      {"refused_pages", r.connector.refused_pages},
      {"damaged_pages", r.damaged_pages},
      {"compared_tokens", r.compared_tokens},
      {"wrong_tokens", r.wrong_tokens},
      {"violations", found},
      {"seconds", r.seconds},
  };
  return object.dump();
}

std::string verdict(const engine_report& r) {
  if (r.wrong_tokens != 0)
    return fmt::format("WRONG KV: {} of {} tokens.", human_count(r.wrong_tokens), human_count(r.compared_tokens));
  if (!r.violations.empty())
    return fmt::format("An engine would have failed: {}: {}.", r.violations.front().property,
                       r.violations.front().text);
  if (r.compared_tokens == 0)
    return "No forward pass read cached KV, so nothing was compared.";
  auto out = fmt::format("All KV was right: {} tokens compared byte by byte.", human_count(r.compared_tokens));
  if (r.engine.loads_failed != 0)
    out += fmt::format(" {} loads failed in part, and were computed instead.", human_count(r.engine.loads_failed));
  return out;
}

std::string to_table(const engine_report& r, std::string_view title) {
  auto out = fmt::format("{}: {} requests through an engine with {} {} in {}, {:.1f} cores busy\n\n", title,
                         human_count(r.requests), r.workers, r.workers == 1 ? "worker" : "workers",
                         human_time(from_seconds(r.seconds)), finite(r.cores));
  text_table tokens({"tokens", "", "share of prompts"});
  const auto row = [&](std::string name, std::uint64_t count) {
    tokens.row({std::move(name), human_count(count), human_percent(share(count, r.prompt_tokens))});
  };
  row("of prompts", r.prompt_tokens);
  row("found in the engine's prefix cache", r.engine.prefix_cache_tokens);
  row("loaded by the connector", r.engine.external_tokens);
  row("computed, generated ones included", r.engine.scheduled_tokens);
  out += tokens.str() + "\n";
  text_table transfers({"", "tasks", "failed", "bytes", "p50", "p99", "max"});
  transfers.row(transfer_row("load", r.connector.load_duration, r.connector.num_failed_load, r.connector.loaded_bytes));
  transfers.row(transfer_row("save", r.connector.save_duration, r.connector.num_failed_save, r.connector.saved_bytes));
  out += transfers.str() + "\n";
  out += fmt::format("  {} steps, {} preemptions, {} requests aborted ({} during a load), {} pages damaged\n\n",
                     human_count(r.engine.steps), human_count(r.engine.preemptions), human_count(r.requests_aborted),
                     human_count(r.engine.aborted_during_load), human_count(r.damaged_pages));
  return out + verdict(r) + "\n";
}

} // namespace troupe::replay
