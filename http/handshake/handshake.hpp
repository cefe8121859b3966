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
  /// How long a fetch may wait, in addition to the time limit of any answer.
  duration max_wait{};
  /// Also serve the paths of vLLM's draft.
  bool vllm_draft = false;
  /// Limit of all answers with payloads and of lists that are being sent; more get 503. A larger one is sent alone.
  std::uint64_t max_answer_bytes = std::uint64_t{256} << 20U;
};

/// Adds `/v1/handshake/…`; see docs/handshake.md. The actor system must outlive pending requests.
void add_routes(router& routes, caf::actor_system& system, const directory_actor& directory, const options& options);

struct described_route {
  http::method method = http::method::get;
  std::string_view pattern;
  std::string_view name;
  role needs = role::admin;
  /// Served only with `vllm_draft`.
  bool is_of_draft = false;
};

/// The routes of `add_routes`, including the draft's.
std::span<const described_route> described_routes() noexcept;

} // namespace troupe::http::handshake
