#include "tests/integration/clusters.hpp"

#include "tests/catch.hpp"
#include "tests/integration/free_ports.hpp"

#include <sstream>
#include <utility>

namespace troupe::test {

test_cluster::test_cluster(std::size_t nodes, node_shape of, std::string called, const network* over)
    : hosts(over), ports(over != nullptr ? std::vector<std::uint16_t>(nodes, 7000) : free_ports(nodes)), shape(of),
      name(std::move(called)), all(nodes) {}

nlohmann::json test_cluster::config(std::size_t i) {
  const auto address_of = [&](std::size_t n) { return hosts != nullptr ? network::address(n) : "127.0.0.1"; };
  const auto at = scratch.path() / std::to_string(i);
  std::filesystem::create_directories(at);
  auto out = node_config(at, shape);
  out["node_name"] = "node-" + std::to_string(i);
  out["actors"]["host"] = address_of(i);
  out["actors"]["port"] = ports[i];
  if (!insecure)
    out["actors"].erase("insecure");
  out["remote"] = {{"enabled", true}, {"stall_time", "2 s"}};
  out["attach"] = {{"always_remote", true}, {"reconnect_backoff_max", "500 ms"}};
  out["caf"]["heartbeat_interval"] = "200 ms";
  out["caf"]["connection_timeout"] = fails_soon ? "1 s" : "5 s";
  out["cluster"] = {{"name", name},
                    {"hello_interval", fails_soon ? "300 ms" : "2 s"},
                    {"fetch_time", fails_soon ? "4 s" : "60 s"},
                    {"ask_time", fails_soon ? "1 s" : "20 s"}};
  out["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  for (std::size_t n = 0; n < ports.size(); ++n)
    out["cluster"]["seeds"].push_back({{"host", address_of(n)}, {"port", ports[n]}});
  if (shared) {
    out["storage"]["shared"] = true;
    out["storage"]["shared_directory"] = scratch.path().string();
    if (!claim_lease.empty())
      out["storage"]["claim_lease"] = claim_lease;
  }
  out["cluster"].update(options);
  if (options.contains("etcd"))
    out["cluster"].erase("seeds");
  change(i, out);
  return out;
}

void test_cluster::start(std::size_t i, const arguments& more) {
  const auto file = write_config(scratch.path() / std::to_string(i), config(i));
  launch where;
  if (hosts != nullptr)
    where.arguments = hosts->on(i);
  all[i].emplace(file, more, where);
}

void test_cluster::start_all() {
  for (std::size_t i = 0; i < all.size(); ++i)
    start(i);
  for (std::size_t i = 0; i < all.size(); ++i)
    wait_for_peers(i, all.size() - 1);
}

void test_cluster::wait_for_peers(std::size_t i, std::size_t count, std::size_t from) {
  for (std::size_t n = 0; n < count; ++n)
    from = node(i).program().wait_for_line(process::stream::err, "peer session opened", from).index + 1;
}

launch test_cluster::engine(std::size_t i, const std::string& trace, const arguments& more) {
  auto out = replay_command(arguments{"--attach", node(i).address(), "--trace", trace} + more);
  return hosts != nullptr ? hosts->on(i, std::move(out)) : out;
}

replay_outcome test_cluster::replay(std::size_t i, const std::string& trace, const arguments& more) {
  process running(engine(i, trace, more));
  return result_of(running);
}

std::string test_cluster::status(std::size_t i) {
  const auto port = nlohmann::json::parse(node(i).ready_line()).at("http").at("port").get<int>();
  auto what = program_with({"cluster", "status", "--url", "http://127.0.0.1:" + std::to_string(port)});
  const auto said = run(hosts != nullptr ? hosts->on(i, std::move(what)) : std::move(what));
  INFO(said.err);
  CHECK(said.code == (said.out.find(" unreachable") == std::string::npos ? 0 : 1));
  return said.out;
}

std::string test_cluster::status_in_one_line(std::size_t i) {
  std::istringstream words(status(i));
  std::string out;
  for (std::string word; words >> word;)
    out.append(out.empty() ? "" : " ").append(word);
  return out;
}

void test_cluster::stop_all() {
  for (auto& x : all)
    if (x)
      CHECK(x->stop() == 0);
}

} // namespace troupe::test
