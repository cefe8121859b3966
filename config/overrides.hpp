#pragma once

#include "config/document.hpp"

#include <span>
#include <string>
#include <vector>

namespace troupe::config {

/// Applies overrides, "PATH=VALUE" each, to a document before it is read. Reports overrides that are malformed, name no
/// key of the schema, or leave a gap in a list. If the document has another type than the object or list in a path, it
/// is left unchanged: reading the document reports that.
void apply_overrides(element& root, std::span<const std::string> overrides, std::vector<problem>& problems);

} // namespace troupe::config
