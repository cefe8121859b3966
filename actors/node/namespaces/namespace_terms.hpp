#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "config/node_config.hpp"
#include "io/memory/extent_source.hpp"

#include <string>

namespace troupe {

/// Whether a node with this config and arena can keep pages of a namespace that a client creates; the bounds are those
/// of `namespaces` in a config. invalid_argument or unsupported, with a sentence that says what to change.
result<void> judge_namespace(const config::node_config& options, const io::arena_facts& arena,
                             const namespace_spec& ns);

/// The names of the parts in which two identities differ. Values are left out, since a salt is confidential.
std::string differing_parts(const namespace_spec& a, const namespace_spec& b);

} // namespace troupe
