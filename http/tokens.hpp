#pragma once

#include "base/error.hpp"
#include "http/role.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Which token has which role. Keeps digests, not tokens. Immutable, so any thread may read.
class token_table {
public:
  /// Reads "role token" lines; empty lines and those that begin with # count for nothing. Refused: a token that is
  /// short or there twice, a role that there is not, no token at all. `origin` is for messages, which never show
  /// tokens.
  static result<token_table> parse(std::string_view text, std::string_view origin);

  /// The same from a file, which must not be readable by everybody on the machine.
  static result<token_table> load(const std::filesystem::path& file);

  /// The role of a token; none if it is not known. Takes the same time for each token of the same length.
  role find(std::string_view token) const;

private:
  static constexpr std::size_t digest_bytes = 32;
  using digest = std::array<unsigned char, digest_bytes>;

  struct entry {
    digest sha256;
    role grants;
  };

  static result<digest> digest_of(std::string_view token);

  std::vector<entry> entries_;
};

} // namespace troupe::http
