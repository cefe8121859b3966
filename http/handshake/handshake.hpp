#pragma once

#include "base/clock.hpp"
#include "http/server/router.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::http::handshake {

struct options {
  std::uint64_t max_payload_bytes = 0;
  /// How long a fetch may wait, on top of what any answer may take.
  duration max_wait{};
  /// The paths of vLLM's draft as well.
  bool vllm_draft = false;
  /// Of answers with payloads and of lists on their way out, all together; more get 503. One that is larger goes alone.
  std::uint64_t max_answer_bytes = std::uint64_t{256} << 20U;
};

/// Adds `/v1/handshake/…`. docs/handshake.md explains it. The actor system must outlive what is under way.
void add_routes(router& routes, caf::actor_system& system, const directory_actor& directory, const options& options);

struct described_route {
  http::method method = http::method::get;
  std::string_view pattern;
  std::string_view name;
  role needs = role::admin;
  /// Only there with `vllm_draft`.
  bool is_of_draft = false;
};

/// What `add_routes` adds, the draft's included.
std::span<const described_route> described_routes() noexcept;

} // namespace troupe::http::handshake
