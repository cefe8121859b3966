#include "tests/http_client/metadata_client.hpp"

#include "tests/http_client/connection_pool.hpp"
#include "tests/http_client/wire.hpp"

#include <algorithm>
#include <boost/asio/ssl/context.hpp>
#include <random>
#include <thread>
#include <utility>

namespace troupe {

namespace {

using namespace client_detail;
namespace ssl = boost::asio::ssl;

timestamp now() {
  return std::chrono::steady_clock::now();
}

/// Visible characters only, so that it stays one header.
bool is_token(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

result<std::unique_ptr<ssl::context>> make_tls(const metadata_client_options& options) {
  auto out = std::make_unique<ssl::context>(ssl::context::tls_client);
  const auto wrong = [](std::string_view what, const boost::system::error_code& code) {
    return fail(errc::invalid_argument, std::string(what) + ": " + code.message());
  };
  boost::system::error_code code;
  out->set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::no_compression, code);
  if (options.ca)
    out->load_verify_file(options.ca->string(), code);
  else
    out->set_default_verify_paths(code);
  if (code)
    return wrong(options.ca ? "cannot load authorities from " + options.ca->string()
                            : std::string("cannot load the system's authorities"),
                 code);
  if (options.certificate.has_value() != options.key.has_value())
    return fail(errc::invalid_argument, "a client certificate is of use only with its key, and the other way round");
  if (options.certificate) {
    out->use_certificate_chain_file(options.certificate->string(), code);
    if (code)
      return wrong("cannot load the certificate " + options.certificate->string(), code);
    out->use_private_key_file(options.key->string(), ssl::context::pem, code);
    if (code)
      return wrong("cannot load the key " + options.key->string(), code);
  }
  return out;
}

/// Whether the same request may get another answer later.
bool is_transient(unsigned status) {
  return status >= 500 && status != 501;
}

error error_of(unsigned status, const std::string& body) {
  const auto code = [&] {
    switch (status) {
    case 400:
    case 422:
      return errc::invalid_argument;
    case 401:
    case 403:
      return errc::not_owner;
    case 404:
      return errc::not_found;
    case 409:
      return errc::identity_mismatch;
    case 413:
    case 429:
      return errc::limit_exceeded;
    case 501:
      return errc::unsupported;
    case 504:
      return errc::timeout;
    default:
      return status >= 500 ? errc::unreachable : errc::internal;
    }
  }();
  return {code, "the server answers " + std::to_string(status) + ": " + read_detail(body)};
}

/// Whether a request may be sent again when its outcome is unknown.
enum class repeat : std::uint8_t { yes, no };

} // namespace

struct metadata_client::implementation {
  implementation(metadata_client_options x, endpoint where_to, std::unique_ptr<ssl::context> context)
      : options(std::move(x)), where(std::move(where_to)), tls(std::move(context)),
        pool(options.connections, options.max_idle_time) {}

  /// The body of the answer, from as many attempts as it takes.
  result<std::string> post(std::string_view path, const std::string& body, repeat repeatable) {
    const auto request = text_of(path, body);
    auto pause = options.first_pause;
    for (std::uint32_t retries = 0;; ++retries) {
      auto tried = attempt_once(request, repeatable);
      if (tried && tried->status >= 200 && tried->status < 300)
        return std::move(tried->body);
      const bool again = tried ? is_transient(tried->status) && repeatable == repeat::yes
                               : repeatable == repeat::yes || !tried.error().may_have_arrived;
      auto why = tried ? error_of(tried->status, tried->body) : std::move(tried.error().why);
      if (!again || why.code == errc::limit_exceeded || retries == options.retries) {
        if (retries > 0)
          why.text += " (after " + std::to_string(retries + 1) + " attempts)";
        return tl::unexpected(std::move(why));
      }
      wait(pause);
      pause = std::min(2 * pause, options.max_pause);
    }
  }

  client_detail::attempt<answer> attempt_once(const std::string& request, repeat repeatable) {
    const auto connect_deadline = later(now(), options.connect_time);
    auto place = pool.take(connect_deadline);
    if (!place)
      return tl::unexpected(attempt_failure{{errc::limit_exceeded, "all " + std::to_string(options.connections) +
                                                                       " connections of this client are in use"},
                                            false});
    // The server may have closed a connection that was unused, which shows when a request is on its way.
    if (repeatable == repeat::yes && place->open() != nullptr) {
      auto tried = place->open()->exchange(request, options.max_answer_bytes, later(now(), options.answer_time));
      if (tried || tried.error().why.code != errc::unreachable)
        return tried;
      pool.forget_idle();
    }
    place->set(nullptr);
    auto opened = connection::open(where, tls.get(), later(now(), options.connect_time));
    if (!opened)
      return tl::unexpected(std::move(opened.error()));
    place->set(std::move(*opened));
    return place->open()->exchange(request, options.max_answer_bytes, later(now(), options.answer_time));
  }

  std::string text_of(std::string_view path, const std::string& body) const {
    std::string out = "POST ";
    out.append(where.prefix).append(path).append(" HTTP/1.1\r\nHost: ").append(where.authority);
    out.append("\r\nContent-Type: application/json\r\nContent-Length: ").append(std::to_string(body.size()));
    if (!options.token.empty())
      out.append("\r\nAuthorization: Bearer ").append(options.token);
    out.append("\r\n\r\n").append(body);
    return out;
  }

  void wait(duration pause) const {
    thread_local std::minstd_rand random{std::random_device{}()};
    const auto half = pause.count() / 2;
    const duration drawn{half + std::uniform_int_distribution<duration::rep>{0, half}(random)};
    if (options.pause)
      options.pause(drawn);
    else
      std::this_thread::sleep_for(drawn);
  }

  const metadata_client_options options;
  const endpoint where;
  const std::unique_ptr<ssl::context> tls;
  connection_pool pool;
};

metadata_client::metadata_client(std::unique_ptr<implementation> x) : implementation_(std::move(x)) {}

metadata_client::~metadata_client() = default;

result<std::unique_ptr<metadata_client>> metadata_client::make(metadata_client_options options) {
  auto where = parse_url(options.url);
  if (!where)
    return tl::unexpected(std::move(where.error()));
  if (!is_token(options.token))
    return fail(errc::invalid_argument, "the token has blanks or other characters that a token cannot have");
  if (options.connections == 0)
    return fail(errc::invalid_argument, "a client needs at least one connection");
  if (!where->tls && (options.ca || options.certificate || options.key))
    return fail(errc::invalid_argument, "certificates are of use with https only, and the URL is " + options.url);
  std::unique_ptr<ssl::context> tls;
  if (where->tls) {
    auto made = make_tls(options);
    if (!made)
      return tl::unexpected(std::move(made.error()));
    tls = std::move(*made);
  }
  return std::unique_ptr<metadata_client>(
      new metadata_client(std::make_unique<implementation>(std::move(options), std::move(*where), std::move(tls))));
}

result<void> metadata_client::initialize(rank_number rank, std::uint64_t pages, client_role role) {
  const auto path = "/rank/" + std::to_string(rank) + "/initialize";
  if (auto done = implementation_->post(path, initialize_body(pages, role), repeat::yes); !done)
    return tl::unexpected(std::move(done.error()));
  return {};
}

result<std::vector<metadata_client::allocation>>
metadata_client::allocate_pages_for_keys(rank_number rank, std::span<const key_and_prefix> keys) {
  auto body = implementation_->post("/keys/batch_allocate", allocate_body(rank, keys), repeat::yes);
  if (!body)
    return tl::unexpected(std::move(body.error()));
  return read_allocations(std::move(*body), keys);
}

result<void> metadata_client::confirm_write_for_keys(rank_number rank, std::span<const key_and_page> confirmations,
                                                     std::span<const slot_number> pages_to_release) {
  const std::string path = "/keys/confirm_write";
  if (!confirmations.empty())
    if (auto done = implementation_->post(path, confirm_body(rank, confirmations, {}), repeat::yes); !done)
      return tl::unexpected(std::move(done.error()));
  if (!pages_to_release.empty())
    if (auto done = implementation_->post(path, confirm_body(rank, {}, pages_to_release), repeat::no); !done)
      return tl::unexpected(std::move(done.error()));
  return {};
}

result<std::vector<bool>> metadata_client::batch_key_exists(std::span<const std::string> keys) {
  auto body = implementation_->post("/keys/batch_exists", exists_body(keys), repeat::yes);
  if (!body)
    return tl::unexpected(std::move(body.error()));
  return read_exists(std::move(*body), keys.size());
}

result<std::vector<std::optional<slot_number>>> metadata_client::get_key_locations(rank_number rank,
                                                                                   std::span<const std::string> keys) {
  auto body = implementation_->post("/keys/get_locations", locations_body(rank, keys), repeat::yes);
  if (!body)
    return tl::unexpected(std::move(body.error()));
  return read_locations(std::move(*body), keys.size());
}

std::size_t metadata_client::idle_connections() const {
  return implementation_->pool.idle();
}

} // namespace troupe
