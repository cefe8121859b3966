#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"
#include "http/hf3fs/hf3fs.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/server/server.hpp"
#include "http/sglang/sglang.hpp"

#include <cstdint>
#include <memory>

namespace troupe::test {

/// The settings of a `slot_node`.
struct slot_node_options {
  std::uint32_t shards = 1;
  http::hf3fs::options hf3fs;
  http::sglang::options sglang;
  /// How long slots are quarantined whose writer may be late.
  duration rest = std::chrono::seconds{10};
  config::http_config http = any_port();

  static config::http_config any_port() {
    config::http_config c;
    c.hosts = "test"; // as the tests call it
    c.enabled = true;
    c.port = 0;
    return c;
  }
};

/// The part of a node that serves engines with slab files of their own: registry shards, their allocators, and both
/// protocols of slot clients over HTTP on the loopback interface. It runs in this process, with the threads and clocks
/// of the product.
class slot_node {
public:
  static result<std::unique_ptr<slot_node>> start(const slot_node_options& options = {});
  ~slot_node();
  slot_node(const slot_node&) = delete;
  slot_node& operator=(const slot_node&) = delete;

  std::uint16_t port() const noexcept;
  const metadata_service& service() const noexcept;

  /// The registry's statistics over all namespaces. Waits for the answer.
  std::vector<namespace_info> describe() const;

private:
  struct implementation;
  explicit slot_node(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> implementation_;
};

} // namespace troupe::test
