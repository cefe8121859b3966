#include "http/server/tokens.hpp"

#include "base/message_digest.hpp"
#include "base/private_file.hpp"

#include <algorithm>
#include <openssl/crypto.h>
#include <span>
#include <string>

namespace troupe::http {

namespace {

constexpr std::size_t max_tokens = 1024;
constexpr std::size_t min_token_bytes = 16;
constexpr std::size_t max_token_bytes = 512;

/// The characters of the scheme "Bearer", see RFC 6750.
bool is_token(std::string_view x) noexcept {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view{"-._~+/="}.find(c) != std::string_view::npos;
  };
  return x.size() >= min_token_bytes && x.size() <= max_token_bytes && std::ranges::all_of(x, fits);
}

constexpr std::size_t max_name_bytes = 64;
constexpr std::size_t max_namespaces = 64;

/// Like names of namespaces, and values of labels; plus these characters.
bool is_name(std::string_view x, std::string_view more = {}) noexcept {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto fits = [&](char c) {
    return is_alphanumeric(c) || std::string_view{"-_."}.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  };
  return !x.empty() && x.size() <= max_name_bytes && is_alphanumeric(x.front()) && std::ranges::all_of(x, fits);
}

/// The next word of the line; empty at its end.
std::string_view take_word(std::string_view& line) noexcept {
  constexpr std::string_view blanks = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  const auto word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

} // namespace

result<token_table::digest> token_table::digest_of(std::string_view token) {
  thread_local message_digest sha256{"SHA256"};
  digest x{};
  if (!sha256.digest({std::as_bytes(std::span(token))}, std::as_writable_bytes(std::span(x))))
    return fail(errc::internal, "OpenSSL has no SHA-256");
  return x;
}

std::string_view token_table::read_options(std::string_view line, caller& out) {
  constexpr std::string_view name_mark = "name=";
  constexpr std::string_view namespaces_mark = "namespaces=";
  for (auto word = take_word(line); !word.empty(); word = take_word(line)) {
    if (word.starts_with(name_mark) && out.name.empty()) {
      out.name = word.substr(name_mark.size());
      if (!is_name(out.name) || role_from(out.name) || out.name == anonymous_caller()->name ||
          out.name == unknown_caller()->name)
        return "a name must have 1 to 64 letters, digits, '-', '_' and '.', begin with a letter or digit, and be no "
               "role";
    } else if (word.starts_with(namespaces_mark) && out.namespaces.empty()) {
      for (auto rest = word.substr(namespaces_mark.size()); !rest.empty() || out.namespaces.empty();) {
        const auto comma = std::min(rest.find(','), rest.size());
        const auto pattern = rest.substr(0, comma);
        // A colon is in names that protocols of engines make of two.
        if (!is_name(pattern.ends_with('*') ? pattern.substr(0, pattern.size() - 1) : pattern, ":") ||
            comma + 1 == rest.size())
          return "namespaces are names separated by commas, each complete or with * at its end; leave out namespaces= "
                 "for all";
        if (out.namespaces.size() == max_namespaces)
          return "a token can have at most 64 names of namespaces; use * at the end of one for several";
        out.namespaces.emplace_back(pattern);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
    } else {
      return "a line has a role, a token, name= and namespaces=, each at most once";
    }
  }
  return {};
}

std::string_view token_table::contradiction(const caller& x) const {
  for (const auto& [sha256, who] : entries_)
    if (who->identity == x.identity && (who->grants != x.grants || who->namespaces != x.namespaces))
      return "an earlier line has this name with another role or other namespaces";
  return {};
}

result<token_table> token_table::parse(std::string_view text, std::string_view origin) {
  token_table table;
  std::size_t number = 0;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    const auto refuse = [&](std::string_view what) {
      return fail(errc::invalid_argument,
                  std::string{origin} + ", line " + std::to_string(number) + ": " + std::string{what});
    };
    const auto role_name = take_word(line);
    if (role_name.empty() || role_name.starts_with('#'))
      continue;
    const auto token = take_word(line);
    const auto grants = role_from(role_name);
    if (!grants)
      return refuse("expected a role, \"read\", \"write\" or \"admin\", and a token");
    if (!is_token(token))
      return refuse("the token must have 16 to 512 letters, digits and -._~+/=; `openssl rand -hex 32` generates one");
    caller who{*grants, {}, {}, {}};
    if (const auto wrong = read_options(line, who); !wrong.empty())
      return refuse(wrong);
    if (table.entries_.size() == max_tokens)
      return refuse("there are more than 1024 tokens");
    const auto sha256 = digest_of(token);
    if (!sha256)
      return tl::unexpected(sha256.error());
    if (std::ranges::find(table.entries_, *sha256, &entry::sha256) != table.entries_.end())
      return refuse("this token is on an earlier line");
    const auto* begin = reinterpret_cast<const char*>(sha256->data());
    who.identity = who.name.empty() ? "token " + std::string(begin, sha256->size()) : "name " + who.name;
    if (who.name.empty())
      who.name = role_name;
    if (const auto wrong = table.contradiction(who); !wrong.empty())
      return refuse(wrong);
    table.entries_.push_back({*sha256, std::make_shared<const caller>(std::move(who))});
  }
  if (table.entries_.empty())
    return fail(errc::invalid_argument, std::string{origin} + " has no token, so no caller would have access; add a " +
                                            "line like \"admin TOKEN\", or leave out http.tokens_file");
  return table;
}

result<token_table> token_table::load(const std::filesystem::path& file) {
  auto text = read_private_file(file, "tokens file", "tokens");
  if (!text)
    return tl::unexpected(text.error());
  auto table = parse(*text, "tokens file \"" + file.string() + "\"");
  OPENSSL_cleanse(text->data(), text->size());
  return table;
}

caller_ptr token_table::find(std::string_view token) const {
  // An impossible token is not hashed: its length reveals nothing about valid ones.
  if (token.size() < min_token_bytes || token.size() > max_token_bytes)
    return nullptr;
  const auto sha256 = digest_of(token);
  if (!sha256)
    return nullptr;
  std::size_t found = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    // No branch and no early end: the time does not reveal which token was similar.
    const auto is_equal =
        static_cast<std::size_t>(CRYPTO_memcmp(entries_[i].sha256.data(), sha256->data(), digest_bytes) == 0);
    found |= (std::size_t{0} - is_equal) & (i + 1);
  }
  return found == 0 ? nullptr : entries_[found - 1].who;
}

} // namespace troupe::http
