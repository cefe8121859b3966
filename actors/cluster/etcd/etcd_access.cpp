#include "actors/cluster/etcd/etcd_access.hpp"

#include "actors/cluster/etcd/etcd_protocol.hpp"
#include "base/private_file.hpp"
#include "config/document.hpp"
#include "http_client/client_tls.hpp"

#include <cstddef>
#include <openssl/crypto.h>

namespace troupe::cluster {

namespace {

constexpr std::size_t max_password_bytes = 1024;

tl::unexpected<error> about(std::string_view key, error why) {
  why.text.append(" (").append(key).append(")");
  return tl::unexpected(std::move(why));
}

} // namespace

result<std::shared_ptr<boost::asio::ssl::context>> etcd_access::load_tls() const {
  auto out = client_detail::load_client_tls({tls_.ca, tls_.certificate, tls_.key});
  if (!out)
    return about("cluster.etcd.tls", std::move(out.error()));
  return out;
}

result<std::string> etcd_access::read_login() const {
  constexpr std::string_view key = "cluster.etcd.password_file";
  auto text = read_private_file(password_file_, "password file", "password");
  if (!text)
    return about(key, std::move(text.error()));
  auto out = [&]() -> result<std::string> {
    const auto password = password_in(*text);
    if (!password)
      return about(
          key, {password.error().code, "password file \"" + password_file_.string() + "\" " + password.error().text});
    return login_body(user_, *password);
  }();
  OPENSSL_cleanse(text->data(), text->size());
  return out;
}

result<void> etcd_access::check() const {
  if (has_tls())
    if (const auto loaded = load_tls(); !loaded)
      return tl::unexpected(loaded.error());
  if (has_login()) {
    auto login = read_login();
    if (!login)
      return tl::unexpected(login.error());
    OPENSSL_cleanse(login->data(), login->size());
  }
  return {};
}

result<std::string_view> password_in(std::string_view text) {
  if (text.ends_with('\n'))
    text.remove_suffix(1);
  if (text.ends_with('\r'))
    text.remove_suffix(1);
  if (text.empty())
    return fail(errc::invalid_argument, "is empty; it must have one line, the password");
  if (text.find('\n') != std::string_view::npos)
    return fail(errc::invalid_argument, "has more than one line; it must have only the password");
  if (text.size() > max_password_bytes || !config::is_plain_text(text))
    return fail(errc::invalid_argument, "is not a password of up to 1024 bytes of UTF-8 without control characters");
  return text;
}

} // namespace troupe::cluster
