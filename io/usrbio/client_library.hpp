#pragma once

#include "base/error.hpp"
#include "io/usrbio/client_interface.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <sys/resource.h>

namespace troupe::io::usrbio {

/// How many descriptors a process may have that loads the library. It makes a table with an entry for each one that the
/// hard limit allows, zeroed, before `main` or in `dlopen`: a container that allows a thousand million pays gigabytes.
inline constexpr rlim_t most_descriptors = rlim_t{1} << 20U;

/// The limits to load it with.
rlimit capped(rlimit found) noexcept;

/// 3FS's client library, loaded at run time.
class client_library {
public:
  /// Loads it, or gives the one that is loaded: once a process has it, it keeps it. Lowers the limit of descriptors to
  /// `most_descriptors` where that is higher, for good, as the library trusts that there is none beyond its table.
  ///
  /// `path`: a path, or a name as `dlopen` finds it. Errors: `unsupported` where it is missing, or lacks a function.
  static result<std::shared_ptr<const client_library>> load(const std::string& path);

  const client_functions& functions() const noexcept { return functions_; }
  const std::string& path() const noexcept { return path_; }

private:
  client_library() = default;

  client_functions functions_;
  std::string path_;
};

} // namespace troupe::io::usrbio
