#include "actors/node/namespaces/namespace_names.hpp"
#include "tests/catch.hpp"

namespace namespace_names_test {

using namespace troupe;

TEST_CASE("namespace names: a namespace is found by its name, and its name by its id", "[namespaces]") {
  namespace_names names;
  CHECK_FALSE(names.find("a"));
  CHECK_FALSE(names.name_of({1, 1}));
  names.add({1, 1}, "a");
  names.add({2, 2}, "b");
  CHECK(names.find("a") == namespace_id{1, 1});
  CHECK(names.find("b") == namespace_id{2, 2});
  CHECK_FALSE(names.find("A"));
  CHECK_FALSE(names.find(""));
  CHECK(names.name_of({2, 2}) == "b");

  names.remove({1, 1});
  names.remove({1, 1});
  CHECK_FALSE(names.find("a"));
  CHECK_FALSE(names.name_of({1, 1}));
  // The name is free for another one.
  names.add({3, 3}, "a");
  CHECK(names.find("a") == namespace_id{3, 3});
}

TEST_CASE("namespace names: a namespace keeps the name that it had first", "[namespaces]") {
  namespace_names names;
  names.add({1, 1}, "a");
  names.add({1, 1}, "b");
  CHECK(names.find("a") == namespace_id{1, 1});
  CHECK_FALSE(names.find("b"));
  CHECK(names.name_of({1, 1}) == "a");
}

TEST_CASE("namespace names: names are counted by prefix", "[namespaces]") {
  namespace_names names;
  CHECK(names.count_with_prefix("") == 0);
  for (std::uint64_t i = 1; const auto* name : {"hf3fs", "hf3fs-", "hf3fs-a", "hf3fs-b", "hf3f", "hf3ft", "sglang-a"})
    names.add({i, i++}, name);
  CHECK(names.count_with_prefix("") == 7);
  CHECK(names.count_with_prefix("hf3fs-") == 3);
  CHECK(names.count_with_prefix("hf3fs") == 4);
  CHECK(names.count_with_prefix("sglang-") == 1);
  CHECK(names.count_with_prefix("x") == 0);
}

} // namespace namespace_names_test
