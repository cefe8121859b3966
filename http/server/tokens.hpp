#pragma once

#include "base/error.hpp"
#include "http/server/caller.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// The callers by their tokens. Keeps digests, not tokens. Immutable, so any thread may read.
class token_table {
public:
  /// Reads "role token" lines; empty lines and those that begin with # are ignored. After a token there may be
  /// "name=NAME", and "namespaces=NAME,NAME*,…". Refused: a token that is short or repeated, an unknown role, a name
  /// with another role or other namespaces, no token at all. `origin` is for messages, which never show tokens.
  static result<token_table> parse(std::string_view text, std::string_view origin);

  /// The same from a file, which other users of the machine must not be able to read.
  static result<token_table> load(const std::filesystem::path& file);

  /// The caller with the token; null if it is not known. Takes the same time for each token of the same length.
  caller_ptr find(std::string_view token) const;

private:
  static constexpr std::size_t digest_bytes = 32;
  using digest = std::array<unsigned char, digest_bytes>;

  struct entry {
    digest sha256;
    caller_ptr who;
  };

  static result<digest> digest_of(std::string_view token);
  /// The error in the words after a token; empty if there is none.
  static std::string_view read_options(std::string_view line, caller& out);
  /// The contradiction with an earlier line; empty if there is none.
  std::string_view contradiction(const caller& x) const;

  std::vector<entry> entries_;
};

} // namespace troupe::http
