#pragma once

#include "config/document.hpp"

#include <span>
#include <string>
#include <vector>

namespace troupe::config {

/// Puts overrides, "PATH=VALUE" each, into a document before it is read. Reports those that are malformed, name no
/// key of the schema, or leave a gap in a list. Where the document has something else than the object or list that a
/// path goes through, it is left alone: reading the document reports that.
void apply_overrides(element& root, std::span<const std::string> overrides, std::vector<problem>& problems);

} // namespace troupe::config
