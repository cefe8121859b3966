#pragma once

#include "base/unique_descriptor.hpp"
#include "io/slab/occupied_slots.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>
#include <filesystem>

namespace troupe::test {

/// Whether files in this directory can be sparse slab files; says so where not. Leaves an empty file there.
inline bool can_be_sparse_in(const std::filesystem::path& directory) {
  const unique_descriptor probe(::open((directory / "probe").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool out = io::can_be_sparse(probe.get());
  if (!out)
    WARN("skipped: the file system of the temporary directory cannot have sparse slab files");
  return out;
}

} // namespace troupe::test
