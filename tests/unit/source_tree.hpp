#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// The sources as text, for tests of the rules of CONTRIBUTING.md: path from the root → text.
using source_tree = std::map<std::string, std::string>;

/// The sources of this repository: C++, CMake and scripts.
const source_tree& sources();

/// The text of another file of this repository.
std::string page_of_sources(std::string_view path);

/// False, with a warning, where the tests run without the sources.
bool have_sources();

/// Fails for each of them.
void expect_none(const std::vector<std::string>& complaints);

bool is_cpp(std::string_view path);
/// C++ outside of tests and benchmarks.
bool is_product(std::string_view path);

std::string concat(std::initializer_list<std::string_view> parts);
std::vector<std::string> lines_of(const std::string& text);

/// The names in `#include "name"` or `#include <name>`, with their delimiters.
std::vector<std::string> includes_of(const std::string& text);

} // namespace troupe::test
