#pragma once

#include "io/page.hpp"

#include <array>

namespace troupe::test {

/// A change of one field in the identity of a page.
struct identity_change {
  const char* field;
  void (*make)(io::page_identity&);
};

/// Changes each field, and both halves of those that have two.
inline constexpr std::array identity_changes{
    identity_change{"namespace, high half", [](io::page_identity& x) { x.ns.hi ^= 1; }},
    identity_change{"namespace, low half", [](io::page_identity& x) { x.ns.lo ^= 1; }},
    identity_change{"key, high half", [](io::page_identity& x) { x.key.hi ^= 1; }},
    identity_change{"key, low half", [](io::page_identity& x) { x.key.lo ^= 1; }},
    identity_change{"rank", [](io::page_identity& x) { x.rank += 1; }},
    identity_change{"slot", [](io::page_identity& x) { x.where.slot += 1; }},
    identity_change{"a later generation", [](io::page_identity& x) { x.where.generation += 1; }},
    identity_change{"an earlier generation", [](io::page_identity& x) { x.where.generation -= 1; }},
    identity_change{"a longer payload", [](io::page_identity& x) { x.payload_bytes += 1; }},
    identity_change{"a shorter payload", [](io::page_identity& x) { x.payload_bytes -= 1; }},
};

} // namespace troupe::test
