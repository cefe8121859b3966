#include "tests/integration/support.hpp"

#include "io/page.hpp"
#include "tests/catch.hpp"
#include "workload/replay/device_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace troupe::test {

using nlohmann::json;
using stream = process::stream;

namespace {

/// A machine that is busy with other tests may stop for longer than the default. That must not end connections, except
/// in tests of what happens then.
constexpr const char* patient_connections = "60 s";

} // namespace

launch program_with(arguments what) {
  launch out;
  out.arguments = std::move(what);
  out.arguments.insert(out.arguments.begin(), TROUPE_PROGRAM);
  return out;
}

outcome run(launch what, std::chrono::milliseconds limit) {
  process program(what);
  const auto code = program.wait(limit);
  return {code, program.text(stream::out), program.text(stream::err)};
}

// -- config ---------------------------------------------------------------------------------------------------------

json node_config(const std::filesystem::path& directory, const node_shape& shape) {
  const auto geometry = replay::geometry_for_page_bytes(shape.page_bytes).value();
  // The slots, and the trailer behind them.
  const auto slab_bytes = shape.slots * io::slot_bytes(shape.page_bytes) + io::page_alignment;
  json ranks = json::array();
  for (std::uint32_t i = 0; i < shape.ranks; ++i)
    ranks.push_back({{"slab_bytes", std::to_string(slab_bytes) + " B"}});
  json out = {
      {"node_name", "tested"},
      {"data_dir", (directory / "data").string()},
      {"statistics_interval", "20 ms"},
      {"caf", {{"connection_timeout", patient_connections}}},
      {"actors", {{"host", "127.0.0.1"}, {"port", 0}, {"insecure", true}}},
      {"storage", {{"ranks", std::move(ranks)}}},
      {"namespaces",
       {{{"name", "space"},
         {"model", "test/model"},
         {"dtype", "bfloat16"},
         {"world_size", shape.ranks},
         {"kv_cache",
          {{"layers", geometry.layers},
           {"parts", geometry.parts},
           {"heads", geometry.heads},
           {"head_size", geometry.head_size},
           {"element_bytes", geometry.element_bytes},
           {"block_tokens", geometry.block_tokens}}}}}},
  };
  if (shape.memory_bytes > 0)
    out["memory"] = {{"bytes", shape.memory_bytes}};
  out["registry"]["shards"] = 3; // keys of a prompt in several, which is harder than the default
  if (shape.strict)
    out["registry"]["durability"] = "strict";
  return out;
}

std::filesystem::path write_config(const std::filesystem::path& directory, const json& config) {
  auto file = directory / "node.json";
  std::ofstream(file) << config.dump(2) << '\n';
  return file;
}

std::filesystem::path slab_path(const json& config, std::uint32_t rank) {
  const std::filesystem::path data(config.at("data_dir").get<std::string>());
  const auto name = config.at("namespaces").at(0).at("name").get<std::string>();
  return data / (name + ".rank-" + std::to_string(rank) + ".slab");
}

// -- nodes ----------------------------------------------------------------------------------------------------------

namespace {

/// The whole numbers in a text, in order.
std::vector<std::uint64_t> numbers(std::string_view text) {
  std::vector<std::uint64_t> out;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (auto i = text.begin(); i != text.end();) {
    const auto first = std::find_if(i, text.end(), digit);
    i = std::find_if_not(first, text.end(), digit);
    if (first != i)
      std::from_chars(first, i, out.emplace_back());
  }
  return out;
}

/// The rest of the line after `mark`, which it must contain.
std::vector<std::uint64_t> numbers_after(const std::string& line, std::string_view mark, std::size_t count) {
  const auto at = line.find(mark);
  auto out =
      at == std::string::npos ? std::vector<std::uint64_t>{} : numbers(std::string_view(line).substr(at + mark.size()));
  if (out.size() != count)
    throw std::runtime_error("not as statistics are logged: " + line);
  return out;
}

launch serve(const std::filesystem::path& config, arguments more, launch how) {
  auto out = program_with({"serve", "--config", config.string()});
  out.arguments.insert(out.arguments.end(), more.begin(), more.end());
  how.arguments.insert(how.arguments.end(), out.arguments.begin(), out.arguments.end());
  return how;
}

std::size_t ranks_of(const std::filesystem::path& config) {
  const auto x = json::parse(std::ifstream(config));
  return x.contains("storage") ? x.at("storage").at("ranks").size() : 0;
}

} // namespace

std::size_t log_mark(const process& node) {
  // As the lines begin: to the millisecond, in UTC.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%FT%T.", &parts);
  const auto fraction = std::to_string(1000 + milliseconds % 1000).substr(1);
  const auto mark = text.data() + fraction + "Z";
  const auto later = [&mark](const std::string& line) {
    const auto head = std::string_view(line).substr(0, mark.size());
    return head.size() == mark.size() && head.back() == 'Z' && head > mark;
  };
  return node.wait_for_line(stream::err, later).index;
}

bool node_statistics::quiesced() const {
  return leases == 0 && reservations == 0 &&
         std::all_of(ranks.begin(), ranks.end(), [](const auto& x) { return x.reserved == 0 && x.quarantined == 0; });
}

serving_node::serving_node(const std::filesystem::path& config, arguments more, launch how)
    : ranks_(ranks_of(config)), program_(serve(config, std::move(more), std::move(how))) {
  ready_line_ = program_.wait_for_line(stream::out, "\"ready\"").text;
  const auto actors = json::parse(ready_line_).value("actors", json::object());
  port_ = actors.value("port", std::uint16_t{0});
  socket_ = actors.value("socket", "");
}

node_statistics serving_node::next_statistics(std::size_t& from) {
  auto line = program_.wait_for_line(stream::err, " leases, ", from);
  const auto sums = numbers_after(line.text, " node: ", 6);
  node_statistics out{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], {}};
  while (out.ranks.size() < ranks_) {
    line = program_.wait_for_line(stream::err, " slots free, ", line.index + 1);
    const auto x = numbers_after(line.text, " rank ", 9);
    out.ranks.push_back({x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8]});
  }
  from = line.index + 1;
  return out;
}

node_statistics serving_node::wait_for_statistics(const std::function<bool(const node_statistics&)>& wanted) {
  auto from = log_mark();
  next_statistics(from); // may have been collected before this call, and logged after it
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto out = next_statistics(from);
    if (wanted(out))
      return out;
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("the statistics do not come to what is expected:\n" + log_so_far());
  }
}

node_statistics serving_node::wait_until_quiesced() {
  return wait_for_statistics([](const auto& x) { return x.clients == 0 && x.quiesced(); });
}

node_statistics serving_node::statistics() {
  return wait_for_statistics([](const auto&) { return true; });
}

int serving_node::stop() {
  program_.send(SIGTERM);
  return program_.wait();
}

// -- replays --------------------------------------------------------------------------------------------------------

launch replay_command(arguments what) {
  // What a test sets comes later, and counts.
  auto out = program_with(
      {"replay", "--json", "--quiet", "--set", std::string("caf.connection_timeout=") + patient_connections});
  out.arguments.insert(out.arguments.end(), what.begin(), what.end());
  return out;
}

replay_outcome result_of(process& running) {
  replay_outcome out;
  out.code = running.wait(5 * patience);
  out.err = running.text(stream::err);
  if (const auto text = running.text(stream::out); !text.empty())
    out.report = json::parse(text);
  return out;
}

replay_outcome run_replay(arguments what, const std::filesystem::path& directory) {
  auto command = replay_command(std::move(what));
  command.directory = directory;
  process running(command);
  return result_of(running);
}

void check_report(const replay_outcome& x, const node_shape& shape) {
  INFO("stderr: " << x.err);
  INFO("report: " << x.report.dump());
  REQUIRE(x.report.is_object());
  std::vector<std::string> keys;
  for (const auto& [key, value] : x.report.items())
    keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"blocks",
                                         "evicted_keys",
                                         "hit_blocks",
                                         "hit_ratio",
                                         "load_failure_codes",
                                         "load_failures",
                                         "load_gbps",
                                         "load_us",
                                         "loaded_bytes",
                                         "loaded_from_disk",
                                         "loaded_from_memory",
                                         "loaded_pages",
                                         "lookup_us",
                                         "requests",
                                         "save_failure_codes",
                                         "save_failures",
                                         "save_gbps",
                                         "save_us",
                                         "saved_bytes",
                                         "saved_pages",
                                         "seconds",
                                         "verify_failures"});
  CHECK(x.count("verify_failures") == 0);
  const auto blocks = x.count("blocks");
  const auto hits = x.count("hit_blocks");
  CHECK(hits <= blocks);
  const auto ratio = blocks == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(blocks);
  CHECK(std::abs(x.report.at("hit_ratio").get<double>() - ratio) < 1e-9);
  // Each block that was found is loaded on each rank, or counted as a failure.
  CHECK(x.count("loaded_pages") + x.count("load_failures") == hits * shape.ranks);
  CHECK(x.count("loaded_from_memory") + x.count("loaded_from_disk") == x.count("loaded_pages"));
  CHECK(x.count("loaded_bytes") == x.count("loaded_pages") * shape.page_bytes);
  CHECK(x.count("saved_bytes") == x.count("saved_pages") * shape.page_bytes);
  CHECK(x.count("saved_pages") + x.count("save_failures") <= blocks * shape.ranks);
  CHECK(x.report.at("seconds").get<double>() > 0);
  CHECK((x.report.at("load_gbps").get<double>() > 0) == (x.count("loaded_pages") > 0));
  CHECK((x.report.at("save_gbps").get<double>() > 0) == (x.count("saved_pages") > 0));
  for (const std::string direction : {"load", "save"}) {
    std::uint64_t failures = 0;
    for (const auto& [code, count] : x.report.at(direction + "_failure_codes").items())
      failures += count.get<std::uint64_t>();
    CHECK(failures == x.count((direction + "_failures").c_str()));
  }
  for (const auto* name : {"lookup_us", "load_us", "save_us"}) {
    const auto& times = x.report.at(name);
    REQUIRE(times.size() == 3);
    CHECK(times.at("p50").get<double>() <= times.at("p99").get<double>());
    CHECK(times.at("p99").get<double>() <= times.at("max").get<double>());
  }
}

void check_clean(const replay_outcome& x, const node_shape& shape) {
  check_report(x, shape);
  INFO("stderr: " << x.err);
  CHECK(x.code == 0);
  CHECK(x.count("load_failures") == 0);
  CHECK(x.count("save_failures") == 0);
}

expected_hits expected(const std::string& trace, std::optional<std::uint64_t> capacity,
                       std::optional<std::size_t> limit) {
  constexpr std::uint32_t block_tokens = 64; // the sizes that the program generates with
  const auto opened = replay::open_trace(trace, block_tokens, limit);
  if (!opened)
    throw std::runtime_error(opened.error().text);
  return expect_hits(opened->requests, capacity);
}

std::string write_trace(const std::filesystem::path& file, const std::vector<std::vector<std::uint64_t>>& requests) {
  std::ofstream out(file);
  std::uint64_t time = 0;
  for (const auto& x : requests)
    out << json{{"timestamp", time++}, {"input_length", 512 * x.size()}, {"output_length", 1}, {"hash_ids", x}}.dump()
        << '\n';
  return file.string();
}

bool there_is_ucx() {
  static const bool is_there = [] {
    const scratch_directory scratch;
    auto config = node_config(scratch.path());
    config["remote"] = {{"enabled", true}, {"transport", "ucx"}, {"ucx_interfaces", "lo"}};
    process node(program_with({"serve", "--config", write_config(scratch.path(), config)}));
    try {
      node.wait_for_line(process::stream::out, "ready");
      return true;
    } catch (const std::runtime_error&) {
      node.wait();
      return node.text(process::stream::err).find("UCX") == std::string::npos;
    }
  }();
  if (!is_there)
    WARN("skipped: there is no UCX");
  return is_there;
}

std::vector<std::uint64_t> ids(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> out(count);
  for (auto& x : out)
    x = first++;
  return out;
}

std::vector<std::string> entries(const std::filesystem::path& directory) {
  std::vector<std::string> out;
  for (const auto& x : std::filesystem::directory_iterator(directory))
    out.push_back(x.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

} // namespace troupe::test
