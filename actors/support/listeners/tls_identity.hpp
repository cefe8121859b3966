#pragma once

#include <filesystem>

namespace troupe {

/// The certificate of this process for TLS, and the authorities that it accepts. PEM files.
struct tls_identity {
  /// The certificate, followed by its chain.
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path authorities;
};

} // namespace troupe
