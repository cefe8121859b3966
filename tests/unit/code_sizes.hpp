#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// A function or a class in the text of a source file.
struct sized_code {
  /// As it is written there, with the class for a member function: `world::tick`.
  std::string name;
  /// Of a function: lines from its opening brace to its closing one. Of a class: its data members, those of classes in
  /// it not included.
  std::size_t size = 0;

  friend bool operator==(const sized_code&, const sized_code&) = default;
};

struct code_sizes {
  /// The functions with a body, in the order of their ends. Functions inside of others, such as lambdas, count as a
  /// part of these.
  std::vector<sized_code> functions;
  /// The classes and structs with a body, in the order of their ends. A data member is one whose name ends in `_`.
  std::vector<sized_code> classes;
};

/// Recognizes C++ as clang-format writes it: a space precedes the brace of a body, and none that of an initializer.
code_sizes sizes_of(std::string_view text);

} // namespace troupe::test
