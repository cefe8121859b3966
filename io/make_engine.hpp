#pragma once

#include "base/error.hpp"
#include "io/engine/engine.hpp"

#include <memory>

namespace troupe::io {

/// Starts an engine of the kind in the options. Errors: `invalid_argument` for options out of range, `io_error` when no
/// thread can be started, `unsupported` where the kernel refuses io_uring or 3FS is missing and there is no fallback.
result<std::unique_ptr<engine>> make_engine(const engine_options& options, completion_sink sink);

} // namespace troupe::io
