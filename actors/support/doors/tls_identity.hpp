#pragma once

#include <filesystem>

namespace troupe {

/// Who this process is over TLS, and whose certificates it accepts. PEM files.
struct tls_identity {
  /// With the chain behind it.
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path authorities;
};

} // namespace troupe
