#include "actors/cluster/etcd/etcd_access.hpp"
#include "actors/node/namespaces/slab_places.hpp"
#include "actors/node/supervisor/memory_placement.hpp"
#include "actors/support/listeners/tls_channel.hpp"
#include "base/bound_socket.hpp"
#include "base/size_text.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "config/memory_rules.hpp"
#include "config/rules.hpp"
#include "http/server/tls.hpp"
#include "http/server/tokens.hpp"
#include "io/data_directory.hpp"
#include "io/slab/disk_shortage.hpp"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <sys/stat.h>
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
    return directory.string() + " is not a directory";
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    return system_error(errno, directory.string()).text;
  return {};
}

/// The bytes that the files in a directory take.
std::uint64_t bytes_in(const fs::path& directory) {
  std::uint64_t out = 0;
  std::error_code bad;
  for (fs::directory_iterator at(directory, bad), end; !bad && at != end; at.increment(bad))
    if (struct stat found{}; ::lstat(at->path().c_str(), &found) == 0)
      out += static_cast<std::uint64_t>(found.st_blocks) * 512;
  return out;
}

/// Where the disk of `data_dir` has less room than `storage.disk_bytes` says.
std::optional<config::problem> notice_of_disk(const config::node_config& config) {
  const auto wanted = config.storage.disk_bytes;
  std::error_code ignored;
  auto at = fs::absolute(made_slabs(config), ignored);
  while (at.has_relative_path() && !fs::exists(at, ignored))
    at = at.parent_path();
  const auto free = io::free_bytes(at);
  if (!keeps_made_slabs(config) || !free)
    return std::nullopt;
  const auto room = *free - std::min(*free, config.storage.spare_bytes) + bytes_in(made_slabs(config));
  if (room >= wanted)
    return std::nullopt;
  return config::problem{"storage.disk_bytes",
                         "is " + size_text(wanted) + ", and the disk of " + at.string() + " has room for " +
                             size_text(room) + ", if " + size_text(config.storage.spare_bytes) +
                             " stay free (storage.spare_bytes): the rest is never used",
                         {}};
}

/// Ports that a process of this host uses already, which may be this very node.
std::vector<config::problem> notices_of_ports(const config::node_config& config) {
  std::vector<config::problem> out;
  const auto look_at = [&](bool wanted, const char* section, const std::string& host, std::int64_t port) {
    if (!wanted || port <= 0)
      return;
    // Binding tells: a port with a listener cannot be bound.
    if (const auto bound = bound_socket::open(section, host, static_cast<std::uint16_t>(port)); !bound)
      out.push_back({std::string(section) + ".port", bound.error().text + " (it may be this node, if it runs)", {}});
  };
  look_at(config.http.has_port(), "http", config.http.host, config.http.port);
  look_at(config.handshake.http.enabled, "handshake.http", config.handshake.http.host, config.handshake.http.port);
  look_at(config.lmcache.enabled, "lmcache", config.lmcache.host, config.lmcache.port);
  look_at(true, "actors", config.actors.host, config.actors.port);
  return out;
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
  auto notices = notices_of_ports(*loaded);
  for (const auto& notice : {config::notice_of_unusable_memory(*loaded), config::notice_of_client_bytes(*loaded),
                             config::notice_of_experimental(*loaded), notice_of_disk(*loaded)})
    if (notice)
      notices.push_back(*notice);
  for (const auto& x : notices)
    std::cerr << "warning: " << config::to_string(x) << '\n';
  return print(config::to_json(*loaded)) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
