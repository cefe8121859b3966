#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::cluster {

/// What an etcd is asked with: certificates, and a login. Files are read each time anew, so that those that have been
/// replaced count without a restart; what is wrong with one says its error, with the key of the config. Any thread.
class etcd_access {
public:
  explicit etcd_access(const config::etcd_config& config)
      : tls_(config.tls), user_(config.user), password_file_(config.password_file.value_or("")) {}

  /// Whether everything is said over TLS; nothing is ever said without it then.
  bool has_tls() const noexcept { return tls_.ca.has_value(); }
  /// Where there is TLS.
  result<std::shared_ptr<boost::asio::ssl::context>> load_tls() const;

  bool has_login() const noexcept { return !user_.empty(); }
  /// What is said to log in, password and all: whoever has it wipes it. Where there is a login.
  result<std::string> read_login() const;

  /// Whether all files that there are can be used, now.
  result<void> check() const;

private:
  config::etcd_tls_config tls_;
  std::string user_;
  std::filesystem::path password_file_;
};

/// The password in the text of a file: its one line. Errors: invalid_argument, which says what it has instead.
result<std::string_view> password_in(std::string_view text);

} // namespace troupe::cluster
