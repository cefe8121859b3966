#include "tests/catch.hpp"
#include "tests/unit/code_sizes.hpp"

#include <string_view>
#include <vector>

namespace code_sizes_test {

/// Sizes of functions and classes, as the tests of style count them.

using troupe::test::sized_code;
using troupe::test::sizes_of;
using sizes = std::vector<sized_code>;

namespace {

sizes functions_of(std::string_view text) {
  return sizes_of(text).functions;
}

sizes classes_of(std::string_view text) {
  return sizes_of(text).classes;
}

} // namespace

TEST_CASE("sizes: the lines of a function are those of its body", "[style]") {
  CHECK(functions_of("int f() {\n  return 1;\n}\n") == sizes{{"f", 3}});
  CHECK(functions_of("result<void> a::b::f(int x) const noexcept {\n}\nvoid g() {}\n") ==
        sizes{{"a::b::f", 2}, {"g", 1}});
  // Braces in comments, literals and values are no bodies.
  CHECK(functions_of("void f() {\n  // }\n  call(\"}\", '}', {1, 2});\n  auto x = R\"(\n}})\";\n}\n") ==
        sizes{{"f", 6}});
  CHECK(functions_of("int f();\nconst std::array<int, 2> x{{1, 2}};\nconst y z = {\n  1};\n").empty());
  CHECK(functions_of("auto x = 1'000;\nvoid f() {\n}\nauto y = 1'000;\n") == sizes{{"f", 2}});
}

TEST_CASE("sizes: lambdas are a part of their function", "[style]") {
  CHECK(functions_of("void f() {\n  const auto g = [](int x) {\n    return x;\n  };\n}\n") == sizes{{"f", 5}});
}

TEST_CASE("sizes: a constructor's members do not end its head", "[style]") {
  CHECK(functions_of("a::a(int x)\n    : b(x), c_{x}, d_(x) {\n  run();\n}\n") == sizes{{"a::a", 3}});
  CHECK(functions_of("class a {\n  void f() {\n  }\n};\nnamespace n {\nvoid g() {\n}\n}\n") ==
        sizes{{"a::f", 2}, {"g", 2}});
}

TEST_CASE("sizes: members of a class are its own", "[style]") {
  CHECK(classes_of("class a : public b<c> {\npublic:\n  void f();\n\nprivate:\n  int x_ = 0;\n  std::map<int, b> y_;\n"
                   "  std::vector<int> z_{1, 2};\n  static int s_;\n};\n") == sizes{{"a", 3}});
  CHECK(classes_of("struct a {\n  struct b {\n    int x_;\n    int y_;\n  };\n  b z_;\n  int f() const { return q_; }\n"
                   "};\n") == sizes{{"a::b", 2}, {"a", 1}});
  CHECK(classes_of("class a;\nenum class e : int {\n  one_,\n};\n") == sizes{{"e", 0}});
  CHECK(classes_of("template <class T>\nclass a final {\n  const std::shared_ptr<T> x_;\n  T* y_ = nullptr;\n"
                   "  std::array<T, 3> z_{};\n  std::function<void(T)> w_;\n};\n") == sizes{{"a", 4}});
}

TEST_CASE("sizes: namespaces and macros before them are no functions", "[style]") {
  CHECK(functions_of(
            "LIST(a, b)\nnamespace a::b {\n\nnamespace {\nvoid f() {\n}\n}\n}\nextern \"C\" {\nvoid g() {\n}\n}\n") ==
        sizes{{"f", 2}, {"g", 2}});
}

} // namespace code_sizes_test
