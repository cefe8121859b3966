#include "tests/catch.hpp"
#include "tests/integration/listener.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>

namespace status_test {

using namespace troupe::test;
using nlohmann::json;
using stream = process::stream;

namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// A node with slabs and HTTP.
std::filesystem::path config_with_http(const scratch_directory& directory, const json& http = json::object()) {
  auto config = node_config(directory.path());
  config["http"] = {{"enabled", true}, {"port", 0}};
  config["http"].update(http);
  return write_config(directory.path(), config);
}

std::string address_of(const serving_node& node) {
  return "127.0.0.1:" + std::to_string(json::parse(node.ready_line()).at("http").at("port").get<int>());
}

std::filesystem::path write_token(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text << '\n';
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  return file;
}

} // namespace

TEST_CASE("status: status reports the health of a node when unused, in use, damaged and stopped") {
  const scratch_directory directory;
  std::string address;
  {
    serving_node node(config_with_http(directory));
    address = address_of(node);
    const auto fresh = run(program_with({"status", address}));
    INFO(fresh.out << fresh.err);
    CHECK(fresh.code == 0);
    CHECK(contains(fresh.out, ": healthy\n"));
    CHECK(contains(fresh.out, "slabs: 1 file "));

    check_clean(run_replay({"--attach", node.address(), "--trace", "loogle:2,256,4,64"}), {});
    const auto used = run(program_with({"status", "http://" + address, "--json"}));
    CHECK(used.code == 0);
    const auto x = json::parse(used.out);
    CHECK(x.at("health") == "healthy");
    const auto& ns = x.at("namespaces").at(0);
    CHECK(ns.at("total").at("found_keys").get<int>() > 0);
    CHECK(ns.at("ranks").at(0).at("total").at("loaded_pages").get<int>() > 0);
    CHECK(ns.at("ranks").at(0).at("total").at("saved_pages") == ns.at("ranks").at(0).at("slots").at("live"));
    CHECK(x.at("last_minute").at("loaded_bytes").get<std::uint64_t>() ==
          4096 * ns.at("ranks").at(0).at("total").at("loaded_pages").get<std::uint64_t>());

    std::filesystem::remove(slab_path(node_config(directory.path())));
    node.program().wait_for_line(stream::err, "error ");
    const auto damaged = run(program_with({"status", address}));
    INFO(damaged.out);
    CHECK(damaged.code == 1);
    CHECK(contains(damaged.out, ": degraded\n"));
    CHECK(contains(damaged.out, "slab_damaged"));
    CHECK(contains(damaged.out, "see docs/operations.md#slab_damaged"));
    const auto line = run(program_with({"top", address, "--count", "2", "--interval", "0.1"}));
    CHECK(line.code == 1);
    CHECK(std::count(line.out.begin(), line.out.end(), '\n') == 2);
    CHECK(contains(line.out, "degraded: hits"));
    node.stop();
  }
  const auto gone = run(program_with({"status", address}));
  CHECK(gone.code == 2);
  CHECK(gone.out.empty());
  CHECK(contains(gone.err, "cannot connect"));
  CHECK(contains(gone.err, "is one running (`troupe serve`), and does its config have http.enabled?"));
  CHECK(run(program_with({"top", address, "--count", "1"})).code == 2);
}

TEST_CASE("status: status needs a token if the node requires one and role admin for config and log") {
  const scratch_directory directory;
  const auto tokens = write_token(directory / "tokens", "read a-token-that-reads\nadmin a-token-that-may-all");
  serving_node node(config_with_http(directory, {{"tokens_file", tokens.string()}}));
  const auto address = address_of(node);
  const auto refused = run(program_with({"status", address}));
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "needs a token: name its file with --token-file"));
  const auto reader = write_token(directory / "reader", "a-token-that-reads");
  CHECK(run(program_with({"status", address, "--token-file", reader.string()})).code == 0);
  CHECK(run(program_with({"status", address, "--token-file", (directory / "none").string()})).code == 2);
  CHECK(node.stop() == 0);
}

TEST_CASE("status: on the Unix socket the owner of a node needs no port and no token for status") {
  const scratch_directory directory;
  const auto data = std::filesystem::path(node_config(directory.path()).at("data_dir").get<std::string>());
  const auto socket = (data / "http.sock").string();
  const auto tokens = write_token(directory / "tokens", "read a-token-that-reads");
  const auto ask = [](const std::string& where) { return run(program_with({"status", where})).code; };
  {
    serving_node node(config_with_http(directory, {{"tokens_file", tokens.string()}}));
    CHECK(json::parse(node.ready_line()).at("http").at("socket") == socket);
    CHECK(std::filesystem::status(socket).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK(ask(address_of(node)) == 2);
    CHECK(ask(data.string()) == 0);
    CHECK(ask(socket) == 0);
    CHECK(ask("unix:" + socket) == 0);
    const auto other = run(program_with({"status", (data / "troupe.sock").string()}));
    INFO(other.err);
    CHECK(other.code == 2);
    CHECK(contains(other.err, "; a node answers at its http.sock"));
    // Requests for administrators only: no token has that role here.
    const auto namespaces = run(program_with({"list-namespaces", "--json", "--url", socket}));
    INFO(namespaces.out << namespaces.err);
    CHECK(namespaces.code == 0);
    CHECK(contains(namespaces.out, "\"salt\""));
    // All commands take the same words.
    for (const arguments& command : {arguments{"list-namespaces"}, arguments{"cluster", "status"}, arguments{"status"}})
      for (const auto& words : {arguments{data.string()}, arguments{"--url", socket}}) {
        auto all = command;
        all.insert(all.end(), words.begin(), words.end());
        CHECK(run(program_with(all)).code == 0);
      }
    CHECK(node.stop() == 0);
  }
  CHECK_FALSE(std::filesystem::exists(socket));
  const auto gone = run(program_with({"status", socket}));
  CHECK(gone.code == 2);
  CHECK(contains(gone.err, "there is no socket at " + socket));
  {
    serving_node node(config_with_http(directory, {{"port", "off"}}));
    const auto http = json::parse(node.ready_line()).at("http");
    CHECK(http.count("port") == 0);
    CHECK(http.at("socket") == socket);
    CHECK(ask(socket) == 0);
    node.program().send(SIGKILL);
    node.program().wait();
    CHECK(ask(socket) == 2);
  }
  {
    // The socket that the killed node left is replaced.
    serving_node node(config_with_http(directory, {{"port", "off"}}));
    CHECK(ask(socket) == 0);
    CHECK(node.stop() == 0);
  }
  std::ofstream(socket) << "something";
  const auto refused =
      run(program_with({"serve", "--config", config_with_http(directory, {{"port", "off"}}).string()}));
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "choose another http.socket"));
}

TEST_CASE("status: status reports a server that is no node") {
  const listener web(listener::manner::http);
  const auto address = "127.0.0.1:" + std::to_string(web.port());
  const auto found = run(program_with({"status", address}));
  INFO(found.err);
  CHECK(found.code == 2);
  CHECK(contains(found.err, "the server at http://" + address + " is not a Troupe node: status "));
}

TEST_CASE("status: status and top report errors of their command lines") {
  CHECK(run(program_with({"status", "not an address"})).code == 2);
  CHECK(run(program_with({"top", "127.0.0.1:1", "--count", "1", "--interval", "0"})).code == 2);
  CHECK(run(program_with({"status", "--jsno"})).code == 2);
}

} // namespace status_test
