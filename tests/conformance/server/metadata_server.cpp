// Serves both foreign wires on the loopback interface until its standard input ends; prints its port first. What the
// conformance tests run clients against.

#include "tests/conformance/foreign_node.hpp"

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  troupe::test::foreign_node_options options;
  options.rest = std::chrono::milliseconds{1};
  const auto node = troupe::test::foreign_node::start(options);
  if (!node) {
    std::cerr << troupe::to_string(node.error()) << '\n';
    return 1;
  }
  std::cout << (*node)->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}
