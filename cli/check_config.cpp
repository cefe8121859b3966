#include "actors/cluster/etcd/etcd_access.hpp"
#include "actors/node/supervisor/memory_placement.hpp"
#include "actors/support/listeners/tls_channel.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "config/memory_rules.hpp"
#include "http/server/tls.hpp"
#include "http/server/tokens.hpp"
#include "io/data_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// What prevents a rank's slabs in `directory`; empty if nothing does, as far as can be checked without writing.
std::string fault_of_slab_directory(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored))
    return {}; // it will be created, in the data directory or beside an existing one
  if (!fs::is_directory(directory, ignored))
    return directory.string() + "is not a directory";
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    return system_error(errno, directory.string()).text;
  return {};
}

} // namespace

std::vector<config::problem> faults_of_files(const config::node_config& config) {
  std::vector<config::problem> out;
  const auto note = [&](std::string path, std::string text) { out.push_back({std::move(path), std::move(text), {}}); };
  if (const auto sound = io::check_data_directory(config.data_dir); !sound)
    note("data_dir", sound.error().text);
  for (std::size_t i = 0; i < config.storage.ranks.size(); ++i)
    if (const auto& directory = config.storage.ranks[i].directory)
      if (auto fault = fault_of_slab_directory(config.data_dir / *directory); !fault.empty())
        note("storage.ranks[" + std::to_string(i) + "].directory", std::move(fault));
  std::ranges::move(faults_of_numa_nodes(config, io::usable_numa_nodes()), std::back_inserter(out));
  const auto look_at_server = [&](const auto& x, const std::string& path) {
    if (x.tokens_file)
      if (const auto tokens = http::token_table::load(*x.tokens_file); !tokens)
        note(path + ".tokens_file", tokens.error().text);
    if (x.tls.certificate)
      if (const auto tls = http::load_tls(x.tls); !tls)
        note(path + ".tls", tls.error().text);
  };
  look_at_server(config.http, "http");
  look_at_server(config.handshake.http, "handshake.http");
  if (const auto& tls = config.actors.tls; tls.certificate && tls.key && tls.ca)
    if (const auto loaded = tls_context::load({*tls.certificate, *tls.key, *tls.ca}); !loaded)
      note("actors.tls", loaded.error().text);
  return out;
}

std::vector<config::problem> faults_of_host(const config::node_config& config) {
  auto out = faults_of_memory(config, memory_bound_of_process(), io::room_for(huge_pages_for(config)));
  if (!config.cluster.etcd.endpoints.empty())
    if (const auto usable = cluster::etcd_access(config.cluster.etcd).check(); !usable)
      out.push_back({"cluster.etcd", usable.error().text, {}});
  return out;
}

void print_problems(std::span<const config::problem> problems) {
  for (const auto& x : problems)
    std::cerr << config::to_string(x) << '\n';
}

int check_config(const check_config_options& options) {
  const auto loaded = config::load(options.config, options.overrides);
  if (!loaded) {
    print_problems(loaded.error());
    return exit_usage;
  }
  auto faults = faults_of_files(*loaded);
  std::ranges::move(faults_of_host(*loaded), std::back_inserter(faults));
  if (!faults.empty()) {
    print_problems(faults);
    return exit_usage;
  }
  if (const auto notice = config::notice_of_unusable_memory(*loaded))
    std::cerr << "warning: " << config::to_string(*notice) << '\n';
  return print(config::to_json(*loaded)) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
