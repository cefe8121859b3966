#include "tests/catch.hpp"
#include "tests/http_client/metadata_client.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <csignal>
#include <fstream>

namespace http_serve_test {

using namespace troupe;
using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* first_token = "first-token-of-a-test";
constexpr const char* second_token = "second-token-of-a-test";

void write_tokens(const std::filesystem::path& file, const std::string& token) {
  std::ofstream(file) << "write " << token << '\n';
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

std::filesystem::path service_config(const scratch_directory& directory, const nlohmann::json& http) {
  nlohmann::json config{{"data_dir", (directory / "data").string()},
                        {"actors", {{"socket", "off"}}},
                        {"http", {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}}},
                        {"hf3fs", {{"vllm", true}}}};
  config["http"].update(http);
  const auto file = directory / "node.json";
  std::ofstream(file) << config;
  return file;
}

int http_port(const serving_node& node) {
  return nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
}

std::unique_ptr<metadata_client> client_with(const serving_node& node, const std::string& token) {
  metadata_client_options options;
  options.url = "http://127.0.0.1:" + std::to_string(http_port(node));
  options.token = token;
  options.retries = 0;
  auto made = metadata_client::make(options);
  REQUIRE(made);
  return std::move(*made);
}

errc asked_with(const serving_node& node, const std::string& token) {
  const std::vector<std::string> keys{"a"};
  const auto answer = client_with(node, token)->batch_key_exists(keys);
  return answer ? errc::ok : answer.error().code;
}

} // namespace

TEST_CASE("serve: SIGHUP reloads the tokens and keeps the old ones if the new are invalid") {
  const scratch_directory directory;
  const auto tokens = directory / "tokens";
  write_tokens(tokens, first_token);
  serving_node node(service_config(directory, {{"tokens_file", tokens.string()}}));
  CHECK(asked_with(node, first_token) == errc::ok);
  CHECK(asked_with(node, second_token) == errc::not_owner);
  CHECK(asked_with(node, "") == errc::not_owner);

  write_tokens(tokens, second_token);
  node.program().send(SIGHUP);
  node.program().wait_for_line(stream::err, "reloaded tokens and certificates");
  CHECK(asked_with(node, second_token) == errc::ok);
  CHECK(asked_with(node, first_token) == errc::not_owner);

  std::ofstream(tokens) << "nonsense\n";
  node.program().send(SIGHUP);
  node.program().wait_for_line(stream::err, "the previous ones stay in use");
  CHECK(asked_with(node, second_token) == errc::ok);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: an HTTP port in use is a startup error that names it") {
  const scratch_directory directory;
  serving_node first(service_config(directory, nlohmann::json::object()));
  const scratch_directory other;
  const auto ended =
      run(program_with({"serve", "--config", service_config(other, {{"port", http_port(first)}}).string()}));
  CHECK(ended.code == 1);
  CHECK(ended.err.find(std::to_string(http_port(first))) != std::string::npos);
  CHECK(ended.err.find("http.port") != std::string::npos);
}

TEST_CASE("serve: HTTP for other machines without tokens or certificates is refused before startup") {
  const scratch_directory directory;
  const auto ended =
      run(program_with({"serve", "--config", service_config(directory, {{"host", "0.0.0.0"}}).string()}));
  CHECK(ended.code == 2);
  CHECK(ended.err.find("http.host") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "data"));
}

TEST_CASE("serve: a second node on one index is refused") {
  const scratch_directory directory;
  const auto config = service_config(directory, nlohmann::json::object());
  serving_node first(config, {"--set", "registry.durability=strict"});
  const auto ended = run(program_with({"serve", "--config", config.string(), "--set", "registry.durability=strict"}));
  CHECK(ended.code == 1);
  CHECK(ended.err.find("in use") != std::string::npos);
}

} // namespace http_serve_test
