#pragma once

#include "base/error.hpp"
#include "handshake/tensor_ranks.hpp"
#include "messages/handshake_messages.hpp"

#include <cstdint>
#include <string>

namespace troupe::handshake {

/// The ranks of one engine that a fetch requests.
class rank_scope {
public:
  /// invalid_argument if the sizes do not allow it.
  static result<rank_scope> make(const handshake_fetch_request& x, const handshake_sizes& sizes);
  /// A description for people.
  static std::string describe(const handshake_fetch_request& x);

  bool contains(const handshake_rank& x) const noexcept;
  /// The number of these ranks in a completely published engine.
  std::uint64_t count() const noexcept;
  /// Whether the engine has any of them.
  bool exists() const noexcept;

private:
  rank_scope(handshake_scope scope, const handshake_rank& rank, const handshake_sizes& sizes)
      : scope_(scope), rank_(rank), sizes_(sizes) {}

  handshake_scope scope_;
  handshake_rank rank_;
  handshake_sizes sizes_;
  /// For the scope `peers`.
  rank_range met_;
};

} // namespace troupe::handshake
