#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "http/explain/explanation.hpp"
#include "http/explain/unix_clock.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/server/caller.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::http::explain {

/// The lookups that a caller asks about: all criteria apply.
struct question {
  /// The name of a client, or its owner id as in the node's log.
  std::string client;
  std::optional<ticket> lookup;
  /// The beginning of the engine's name for its request; empty: all.
  std::string request;
  /// Empty: all that the caller may use.
  std::string namespace_name;
  std::size_t last = 20;
};

/// The most lookups of one answer.
inline constexpr std::size_t last_most = 1000;
/// The most other namespaces in which missing keys are looked up.
inline constexpr std::size_t others_most = 32;

/// Answers why lookups did not find more: joins what the shards recorded, and asks them for the present state of the
/// missing keys, in their namespace and in others. Thread-safe; no call blocks. Created by `make`, since pending
/// requests keep it alive.
class explain_service : public std::enable_shared_from_this<explain_service> {
public:
  static std::shared_ptr<const explain_service> make(const node_services& services,
                                                     std::shared_ptr<const metadata_service> service);

  /// The document of `/v1/explain`, with the namespaces that the caller may use, and digests of keys for
  /// administrators only. `then` is called once, in any thread. not_found for an unknown client or namespace.
  void ask(const question& wanted, caller_ptr who, std::function<void(result<std::string>)> then) const;

private:
  struct answer;
  struct key_question;

  explain_service(const node_services& services, std::shared_ptr<const metadata_service> service);

  result<void> collect(answer& to, const question& wanted) const;
  std::vector<key_question> questions_of(const answer& x) const;
  void look_up(answer x, std::function<void(result<std::string>)> then) const;
  std::string text_of(const answer& x) const;

  const std::shared_ptr<const metadata_service> service_;
  const std::vector<std::shared_ptr<const lookup_history>> histories_;
  const std::shared_ptr<const client_names> clients_;
  const timestamp started_;
  mutable unix_clock clock_;
};

} // namespace troupe::http::explain
