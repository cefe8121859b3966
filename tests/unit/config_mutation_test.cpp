#include "config/document.hpp"
#include "config/node_config.hpp"
#include "config/outline.hpp"
#include "tests/unit/config_support.hpp"

#include <array>
#include <random>

namespace config_mutation_test {

using namespace troupe;
using namespace troupe::config;

namespace {

using generator = std::mt19937_64;

std::size_t below(generator& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

/// Every path of the document itself.
void collect_paths(const element& x, const std::string& path, std::vector<std::string>& paths) {
  for (std::size_t i = 0; i < x.children.size(); ++i) {
    const auto& child = x.children[i];
    const auto here = x.is<json_list>() ? join(path, i) : join(path, child.key);
    paths.push_back(here);
    collect_paths(child, here, paths);
  }
}

/// The path with `[i]` for every index, as in the schema.
std::string without_indexes(const std::string& path) {
  std::string result;
  for (std::size_t i = 0; i < path.size(); ++i) {
    result += path[i];
    if (path[i] == '[' && i + 1 < path.size() && path[i + 1] != '"') {
      result += 'i';
      i = path.find(']', i) - 1;
    }
  }
  return result;
}

void collect_schema(const outline_node& node, const std::string& path, std::vector<std::string>& paths) {
  for (const auto& x : node.children) {
    auto here = join(path, x.key);
    paths.push_back(here);
    if (x.form == outline_node::shape::list)
      paths.push_back(here += "[i]");
    collect_schema(x, here, paths);
  }
}

bool names_something(const std::string& path, const std::string& text) {
  if (path == "mutant.json")
    return true;
  std::vector<std::string> paths;
  collect_schema(outline(), {}, paths);
  if (std::ranges::find(paths, without_indexes(path)) != paths.end())
    return true;
  paths.clear();
  if (const auto document = read_document(text, "mutant.json"))
    collect_paths(*document, {}, paths);
  else
    // Keys that are there twice are named by the same error, and stand in no tree.
    return std::ranges::any_of(document.error(), [&](const problem& p) { return p.path == path; });
  return std::ranges::find(paths, path) != paths.end();
}

/// Changes bytes: mostly breaks the syntax.
std::string mutate_bytes(std::string text, generator& random) {
  static constexpr std::string_view alphabet = "{}[]\",:0123456789.-+eE \n\t/*\\utrfnaKMGTiBs\0\x80\xff";
  const auto count = 1 + below(random, 4);
  for (std::size_t i = 0; i < count && !text.empty(); ++i) {
    const auto at = below(random, text.size());
    switch (below(random, 4)) {
    case 0:
      text[at] = alphabet[below(random, alphabet.size())];
      break;
    case 1:
      text.erase(at, 1 + below(random, 20));
      break;
    case 2:
      text.insert(at, 1, alphabet[below(random, alphabet.size())]);
      break;
    default:
      text.insert(at, text.substr(below(random, text.size()), 1 + below(random, 40)));
    }
  }
  return text;
}

/// Changes whole tokens: mostly stays JSON.
std::string mutate_tokens(std::string text, generator& random) {
  static constexpr std::array<std::string_view, 24> values{
      "null",     "true",     "[]",      "{}",        "0",        "-1",    "1e3",    "18446744073709551615",
      "1e-400",   "\"\"",     "\"0 B\"", "\"4 MiB\"", "\"30 s\"", "\"/\"", "\"..\"", "\"\\u0000\"",
      "\"auto\"", "[[[[]]]]", "0.5",     "65536",     "1024",     "[{}]",  "[null]", "{\"name\":{}}"};
  const auto count = 1 + below(random, 3);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::pair<std::size_t, std::size_t>> tokens;
    for (std::size_t at = 0; at < text.size();) {
      const auto first = text.find_first_not_of(" \n,:[]{}", at);
      if (first == std::string::npos)
        break;
      auto end = text[first] == '"' ? text.find('"', first + 1) : text.find_first_of(" \n,:[]{}", first);
      end = end == std::string::npos ? text.size() : end + (text[first] == '"' ? 1 : 0);
      tokens.emplace_back(first, end - first);
      at = end;
    }
    if (tokens.empty())
      break;
    const auto [at, size] = tokens[below(random, tokens.size())];
    const auto [other_at, other_size] = tokens[below(random, tokens.size())];
    const auto other = text.substr(other_at, other_size);
    text.replace(at, size, below(random, 2) == 0 ? values[below(random, values.size())] : std::string_view{other});
  }
  return text;
}

} // namespace

TEST_CASE("config mutation: a randomly damaged config loads or reports the error", "[config]") {
  auto whole = good(small_config);
  whole.namespaces[0].geometry.further = {{1, {1, 1, 132, 1}}, {1, {2, 2, 64, 2}}};
  const auto valid = to_json(whole);
  const auto first_seed = std::random_device{}();
  std::size_t loaded = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto seed = first_seed + i;
    INFO("seed " << seed);
    generator random{seed};
    const auto text = i % 2 == 0 ? mutate_bytes(valid, random) : mutate_tokens(valid, random);
    INFO(text);
    const auto config = parse(text, "mutant.json");
    if (config) {
      ++loaded;
      CHECK(good(to_json(*config)) == *config);
      continue;
    }
    REQUIRE_FALSE(config.error().empty());
    for (const auto& p : config.error()) {
      INFO(to_string(p));
      CHECK_FALSE(p.text.empty());
      CHECK(names_something(p.path, text));
    }
  }
  // Both ways out were taken.
  CHECK(loaded > 0);
  CHECK(loaded < 4000);
}

TEST_CASE("config mutation: randomly damaged overrides are applied or refused", "[config]") {
  const auto first_seed = std::random_device{}();
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto seed = first_seed + i;
    INFO("seed " << seed);
    generator random{seed};
    const auto keys = documented_keys();
    auto text = keys[below(random, keys.size())].path + "=" + mutate_tokens("1 \"4 MiB\"", random);
    for (auto index = text.find("[i]"); index != std::string::npos; index = text.find("[i]"))
      text[index + 1] = static_cast<char>('0' + below(random, 4));
    if (below(random, 2) == 0)
      text = mutate_bytes(text, random);
    INFO(text);
    const std::vector<std::string> overrides{text};
    const auto config = parse(small_config, "mutant.json", overrides);
    if (config)
      continue;
    REQUIRE_FALSE(config.error().empty());
    for (const auto& p : config.error()) {
      CHECK_FALSE(p.path.empty());
      CHECK_FALSE(p.text.empty());
    }
  }
}

} // namespace config_mutation_test
