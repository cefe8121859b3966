#include "http/server/tokens.hpp"
#include "tests/unit/http_support.hpp"

#include <random>

namespace http_tokens_test {

using namespace troupe;
using namespace troupe::http;

namespace {

const std::string a = "aaaaaaaaaaaaaaaa";
const std::string b = "bbbbbbbbbbbbbbbb";
const std::string c = "cccccccccccccccc.-_~+/=";

role role_of(const result<token_table>& table, std::string_view token) {
  const auto who = table->find(token);
  return who ? who->grants : role::none;
}

std::string refusal(std::string_view text) {
  const auto x = token_table::parse(text, "tokens");
  return x ? std::string{} : x.error().text;
}

} // namespace

TEST_CASE("http tokens: each token has the role of its line", "[http]") {
  const auto table =
      token_table::parse("# comment\n\n read  " + a + "\r\nwrite\t" + b + "  \n#admin x\nadmin " + c, "tokens");
  REQUIRE(table);
  CHECK(role_of(table, a) == role::read);
  CHECK(role_of(table, b) == role::write);
  CHECK(role_of(table, c) == role::admin);
  CHECK(role_of(table, "dddddddddddddddd") == role::none);
  CHECK(role_of(table, "") == role::none);
  CHECK(role_of(table, a + "a") == role::none);
  CHECK(role_of(table, a.substr(1)) == role::none);
  CHECK(role_of(table, std::string(100'000, 'a')) == role::none);
}

TEST_CASE("http tokens: a role can have several tokens, and a token has one role", "[http]") {
  const auto table = token_table::parse("read " + a + "\nread " + b + "\n", "tokens");
  REQUIRE(table);
  CHECK(role_of(table, a) == role::read);
  CHECK(role_of(table, b) == role::read);
  CHECK(refusal("read " + a + "\nadmin " + a + "\n") == "tokens, line 2: this token is on an earlier line");
}

TEST_CASE("http tokens: invalid token lines are refused without printing them", "[http]") {
  CHECK(refusal("root " + a).starts_with("tokens, line 1: expected a role"));
  CHECK(refusal("none " + a).starts_with("tokens, line 1: expected a role"));
  CHECK(refusal(a).starts_with("tokens, line 1: expected a role"));
  CHECK(refusal("read " + a + "\n\nwrite").starts_with("tokens, line 3: the token must have 16"));
  CHECK(refusal("read short").starts_with("tokens, line 1: the token must have 16"));
  CHECK(refusal("read " + std::string(513, 'x')).starts_with("tokens, line 1: the token must have 16"));
  CHECK(refusal("read aaaaaaaaaaaaaaaa\xc3\xa9").starts_with("tokens, line 1: the token must have 16"));
  CHECK(refusal("read " + a + " " + b) ==
        "tokens, line 1: a line has a role, a token, name= and namespaces=, each at most once");
  CHECK(refusal("# nobody\n").starts_with("tokens has no token"));
  CHECK(refusal("").starts_with("tokens has no token"));
  for (const auto& text : {"root " + a, "read " + a + "\nread " + a, "read " + a + " " + b})
    CHECK(refusal(text).find(a) == std::string::npos);
}

TEST_CASE("http tokens: a token can have a name and be limited to namespaces", "[http]") {
  const auto table =
      token_table::parse("read " + a + " namespaces=llama,team-* name=alice\nwrite " + b + "\n", "tokens");
  REQUIRE(table);
  const auto alice = table->find(a);
  REQUIRE(alice);
  CHECK(alice->name == "alice");
  CHECK(alice->is_limited());
  CHECK(alice->may_use("llama"));
  CHECK(alice->may_use("team-"));
  CHECK(alice->may_use("team-7"));
  CHECK_FALSE(alice->may_use("llama2"));
  CHECK_FALSE(alice->may_use("lla"));
  CHECK_FALSE(alice->may_use("team"));
  CHECK_FALSE(alice->may_use("my-team-7"));
  CHECK_FALSE(alice->may_use(""));
  const auto other = table->find(b);
  REQUIRE(other);
  CHECK(other->name == "write");
  CHECK_FALSE(other->is_limited());
  CHECK(other->may_use("llama"));
}

TEST_CASE(
    "http tokens: a token can be limited to the namespaces of one SGLang model, excluding models with the same prefix",
    "[http]") {
  const auto table = token_table::parse("write " + a + " namespaces=sglang-qwen:*,sglang-llama:kv\n", "tokens");
  REQUIRE(table);
  const auto model = table->find(a);
  REQUIRE(model);
  CHECK(model->may_use("sglang-qwen:kv"));
  CHECK(model->may_use("sglang-qwen:mamba"));
  CHECK(model->may_use("sglang-llama:kv"));
  CHECK_FALSE(model->may_use("sglang-qwen"));
  CHECK_FALSE(model->may_use("sglang-qwen2:kv"));
  CHECK_FALSE(model->may_use("sglang-llama:mamba"));
}

TEST_CASE("http tokens: tokens with the same name are one caller, and others are not", "[http]") {
  const auto table =
      token_table::parse("read " + a + " name=x namespaces=n\nread " + b + " namespaces=n name=x\nread " + c, "tokens");
  REQUIRE(table);
  CHECK(table->find(a)->identity == table->find(b)->identity);
  CHECK(table->find(a)->identity != table->find(c)->identity);
  const auto unnamed = token_table::parse("read " + a + "\nread " + b + "\n", "tokens");
  REQUIRE(unnamed);
  CHECK(unnamed->find(a)->identity != unnamed->find(b)->identity);
  // The same token is the same caller after a reload, at any line.
  const auto again = token_table::parse("# moved\nwrite " + b + "\nread " + a + "\n", "tokens");
  REQUIRE(again);
  CHECK(again->find(a)->identity == unnamed->find(a)->identity);
  // No log line contains a token.
  CHECK(unnamed->find(a)->name == "read");
  CHECK(refusal("read " + a + " name=x\nwrite " + b + " name=x\n") ==
        "tokens, line 2: an earlier line has this name with another role or other namespaces");
  CHECK_FALSE(refusal("read " + a + " name=x\nread " + b + " name=x namespaces=n\n").empty());
}

TEST_CASE("http tokens: invalid names and namespaces of tokens are refused", "[http]") {
  for (const std::string bad :
       {"name=", "name=-a", "name=a,b", "name=admin", "name=anonymous", "name=unknown", "namespaces=", "namespaces=a,",
        "namespaces=,a", "namespaces=*", "namespaces=a*b", "namespaces=a,,b", "namespaces=a/b", "namespaces=:a",
        "name=a:b", "name=a name=b", "namespaces=a namespaces=b", "namespace=a", "x"}) {
    INFO(bad);
    CHECK(refusal("read " + a + " " + bad).starts_with("tokens, line 1: "));
  }
  std::string many = "read " + a + " namespaces=n0";
  for (int i = 1; i < 64; ++i)
    many += ",n" + std::to_string(i);
  CHECK(refusal(many).empty());
  CHECK(refusal(many + ",n64").find("at most 64") != std::string::npos);
}

TEST_CASE("http tokens: a world-accessible tokens file is refused", "[http]") {
  const scratch_directory directory;
  const auto file = directory.write("tokens", "admin " + a + "\n");
  const auto load = [&] { return token_table::load(file); };
  REQUIRE(load());
  CHECK(role_of(load(), a) == role::admin);
  using std::filesystem::perms;
  std::filesystem::permissions(file, perms::owner_read | perms::group_read);
  CHECK(load());
  for (const auto others : {perms::others_read, perms::others_write, perms::others_exec}) {
    std::filesystem::permissions(file, perms::owner_read | others);
    const auto refused = load();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().text.find("chmod o=") != std::string::npos);
  }
  std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
  directory.write("tokens", std::string(1024 * 1024 + 1, '#'));
  CHECK(load().error().code == errc::limit_exceeded);
  CHECK(token_table::load(file.parent_path()).error().code == errc::invalid_argument);
  CHECK(token_table::load(file.string() + ".none").error().code == errc::io_error);
}

TEST_CASE("http tokens: random tokens match nothing but themselves", "[http]") {
  const auto seed = GENERATE(51U, 52U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const std::string letters = "abcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
  std::vector<std::string> tokens;
  std::string text;
  for (int i = 0; i < 100; ++i) {
    auto& x = tokens.emplace_back();
    for (std::size_t n = 16 + random() % 50; n > 0; --n)
      x += letters[random() % letters.size()];
    text += std::string{to_string(static_cast<role>(1 + i % 3))} + " " + x + "\n";
  }
  const auto table = token_table::parse(text, "tokens");
  REQUIRE(table);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CHECK(role_of(table, tokens[i]) == static_cast<role>(1 + i % 3));
    auto changed = tokens[i];
    changed[random() % changed.size()] ^= 1;
    CHECK(role_of(table, changed) == role::none);
  }
}

} // namespace http_tokens_test
