#pragma once

#include "tests/conformance/slot_node.hpp"
#include "tests/unit/http_support.hpp"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

namespace troupe::test {

inline std::unique_ptr<slot_node> started_node(const slot_node_options& options = {}) {
  auto node = slot_node::start(options);
  INFO((node ? std::string{} : node.error().text));
  REQUIRE(node);
  return std::move(*node);
}

/// One exchange of a conversation: a POST and its expected reply, byte for byte.
struct exchange {
  std::string_view path;
  std::string_view body;
  int code = 200;
  std::string_view answer = {};
};

/// Runs a conversation; a refusal is checked by its code and by being `{"detail":"…"}`.
inline void talk(http::client& to, std::initializer_list<exchange> lines) {
  for (const auto& x : lines) {
    INFO(x.path << " " << x.body);
    const auto got = to.call(http::post(x.path, x.body));
    CHECK(got.code == x.code);
    if (x.code < 400)
      CHECK(got.body == x.answer);
    else
      CHECK(got.body.starts_with(R"({"detail":")"));
  }
}

/// All that the registry knows, as text that can be compared.
inline std::string contents(const slot_node& node) {
  auto namespaces = node.describe();
  std::ranges::sort(namespaces, {}, [](const namespace_info& x) { return x.spec.name; });
  std::ostringstream out;
  for (const auto& x : namespaces) {
    out << x.spec.name << ": " << x.keys << " keys, " << x.complete_keys << " complete, " << x.evicted_keys
        << " evicted, " << x.leases << " leases, " << x.reservations << " reservations;";
    for (const auto& rank : x.ranks)
      out << " rank " << rank.rank << " of " << rank.slots << ": " << rank.pages << " pages, " << rank.reserved
          << " reserved, " << rank.withheld << " withheld;";
    out << '\n';
  }
  return out.str();
}

} // namespace troupe::test
