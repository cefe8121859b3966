// Serves both protocols of slot clients on the loopback interface until its standard input ends; prints its port first.
// The conformance tests run clients against it.

#include "tests/conformance/slot_node.hpp"

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  troupe::test::slot_node_options options;
  options.rest = std::chrono::milliseconds{1};
  const auto node = troupe::test::slot_node::start(options);
  if (!node) {
    std::cerr << troupe::to_string(node.error()) << '\n';
    return 1;
  }
  std::cout << (*node)->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}
