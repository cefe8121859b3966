#pragma once

#include "base/error.hpp"
#include "io/usrbio/client_interface.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <sys/resource.h>

namespace troupe::io::usrbio {

/// The most descriptors of a process that loads the library. The library allocates a zeroed table with an entry for
/// each descriptor that the hard limit allows, before `main` or in `dlopen`: with a limit of 10^9, as in some
/// containers, that takes gigabytes.
inline constexpr rlim_t most_descriptors = rlim_t{1} << 20U;

/// The limits to load it with.
rlimit capped(rlimit found) noexcept;

/// 3FS's client library, loaded at run time.
class client_library {
public:
  /// Loads the library, or returns the loaded one: it is never unloaded. Lowers the limit of descriptors to
  /// `most_descriptors` if it is higher, for good, since the library relies on having no descriptor beyond its table.
  ///
  /// `path`: a path, or a name that `dlopen` finds. Errors: `unsupported` where the library is missing, or lacks a
  /// function.
  static result<std::shared_ptr<const client_library>> load(const std::string& path);

  const client_functions& functions() const noexcept { return functions_; }
  const std::string& path() const noexcept { return path_; }

private:
  client_library() = default;

  client_functions functions_;
  std::string path_;
};

} // namespace troupe::io::usrbio
