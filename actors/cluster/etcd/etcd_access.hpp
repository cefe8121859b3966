#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::cluster {

/// The credentials for etcd: certificates, and a login. Files are read anew for each use, so that replaced files take
/// effect without a restart. An error names the config key of the file. Any thread.
class etcd_access {
public:
  explicit etcd_access(const config::etcd_config& config)
      : tls_(config.tls), user_(config.user), password_file_(config.password_file.value_or("")) {}

  /// Whether connections use TLS; then they never fall back to plain text.
  bool has_tls() const noexcept { return tls_.ca.has_value(); }
  /// Only where there is TLS.
  result<std::shared_ptr<boost::asio::ssl::context>> load_tls() const;

  bool has_login() const noexcept { return !user_.empty(); }
  /// The body of a login request, with the password; the caller wipes it. Only where there is a login.
  result<std::string> read_login() const;

  /// Whether all configured files are usable now.
  result<void> check() const;

private:
  config::etcd_tls_config tls_;
  std::string user_;
  std::filesystem::path password_file_;
};

/// The password in the text of a file: its one line. Errors: invalid_argument, which describes the content instead.
result<std::string_view> password_in(std::string_view text);

} // namespace troupe::cluster
