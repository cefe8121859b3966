#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/bound_socket.hpp"
#include "base/log.hpp"
#include "events/counters.hpp"
#include "http/node_http.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"
#include "tests/unit/io_support.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

/// A whole node with slabs of its own, from the side of HTTP clients.

namespace troupe::test {

inline constexpr std::uint32_t world_size = 2;
inline constexpr std::uint64_t node_slots = 64;

struct http_reply {
  int code = 0;
  std::string text;

  nlohmann::json body() const { return nlohmann::json::parse(text, nullptr, false); }
  bool says(std::string_view what) const { return text.find(what) != std::string::npos; }
};

struct node_with_http {
  scratch_directory directory;
  config::node_config options;
  system_config how{options.caf};
  caf::actor_system system{how};
  std::unique_ptr<running_node> node;
  std::unique_ptr<http::node_http> web;

  explicit node_with_http(bool at_once = true) {
    log::set_level("off");
    options.data_dir = directory.path() / "data";
    options.statistics_interval = duration::zero();
    options.namespaces = {small_namespace(world_size)};
    options.namespaces[0].dtype = "bfloat16";
    const auto slot = io::slot_bytes(options.namespaces[0].geometry.page_bytes());
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
      options.storage.ranks.push_back({node_slots * slot + io::page_alignment, {}});
    options.registry.memory_bytes = 8 * config::mebibyte;
    options.http = http::test_config();
    options.hf3fs.vllm = true;
    if (at_once)
      start();
  }

  void start() {
    for (const auto& wrong : config::validate(options))
      FAIL(to_string(wrong));
    auto started = start_node(
        system, options,
        {.lmcache = std::make_shared<lmcache::counters>(), .events = std::make_shared<const events::counters>()});
    INFO((started ? "" : to_string(started.error())));
    REQUIRE(started);
    node = std::move(*started);
    auto port = bound_socket::open("http", options.http.host, static_cast<std::uint16_t>(options.http.port));
    REQUIRE(port);
    auto served = http::node_http::start(system, node->services(), options, {"test"}, std::move(*port));
    REQUIRE(served);
    web = std::move(*served);
  }

  void stop() {
    if (!node)
      return;
    web->stop(std::chrono::seconds(20));
    web.reset();
    CHECK(node->stop(system, std::chrono::seconds(20)));
    node.reset();
  }

  ~node_with_http() {
    stop();
    log::set_level("info");
  }

  http_reply call(std::string_view method, std::string_view path, const nlohmann::json& body = nullptr) const {
    http::client c{web->port()};
    std::string request{method};
    request.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    const auto text = body.is_null() ? std::string() : body.dump();
    if (!text.empty())
      request.append("Content-Length: ").append(std::to_string(text.size())).append("\r\n");
    const auto reply = c.call(request + "\r\n" + text);
    return {reply.code, reply.body};
  }
  http_reply get(std::string_view path) const { return call("GET", path); }
  http_reply post(std::string_view path, const nlohmann::json& body) const { return call("POST", path, body); }

  static nlohmann::json spec() {
    return {{"name", "small"},
            {"model", "model"},
            {"dtype", "bfloat16"},
            {"world_size", world_size},
            {"kv_cache",
             {{"layers", 2}, {"parts", 2}, {"heads", 2}, {"head_size", 8}, {"element_bytes", 2}, {"block_tokens", 4}}}};
  }

  template <class Reply, class Request>
  result<Reply> ask_shards(const Request& request) {
    result<Reply> out = fail(errc::internal, "no request was sent");
    caf::scoped_actor self{system};
    for (const auto& shard : node->services().shards)
      self->request(shard, std::chrono::seconds(60), request)
          .receive([&](Reply& x) { out = std::move(x); },
                   [&](const caf::error& e) { out = tl::unexpected<error>(from_caf(e)); });
    return out;
  }
};

} // namespace troupe::test
