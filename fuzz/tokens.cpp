#include "fuzz/tokens.hpp"

#include "fuzz/check.hpp"
#include "http/server/tokens.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace troupe::fuzz {

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out(1);
  for (const auto c : text)
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

} // namespace

int read_tokens(std::string_view text) {
  const auto table = http::token_table::parse(text, "fuzz");
  const auto again = http::token_table::parse(std::string{text} + "\n# the end", "fuzz");
  demand(table.has_value() == again.has_value(), "a comment makes a difference");
  if (!table) {
    demand(table.error().text.starts_with("fuzz"), "a refusal without a place");
    return 0;
  }
  int found = 0;
  for (const auto& word : words_of(text)) {
    const auto who = table->find(word);
    if (!who)
      continue;
    ++found;
    demand(word.size() >= 16, "a short token");
    demand(who->grants != http::role::none && !who->name.empty(), "a token without a name or a role");
    demand(who->namespaces.size() <= 64, "more namespaces than are allowed");
    for (const auto& x : who->namespaces)
      demand(x.size() > (x.ends_with('*') ? 1U : 0U), "a limit that permits all namespaces");
    demand(who->is_limited() != who->may_use(""), "a limit without effect");
    demand(who->identity == again->find(word)->identity, "a comment makes another caller");
  }
  demand(found > 0, "a file without a token");
  demand(!table->find("") && !table->find("no token of any file !"), "an unknown token is accepted");
  return 1;
}

} // namespace troupe::fuzz
