#include "connector/capi/connection.hpp"

#include "base/log.hpp"
#include "config/schema.hpp"
#include "connector/capi/conversions.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

using namespace troupe;

namespace troupe::capi {

namespace {

/// Few threads, because the engine needs its cores, and each of its workers has a connection of its own.
constexpr std::uint32_t threads_default = 4;
constexpr std::uint64_t window_bytes_default = std::uint64_t{512} << 20U;

std::atomic<bool> level_is_set{false};

result<void> set_level(std::string_view level) {
  if (!log::set_level(level))
    return fail(errc::invalid_argument,
                "'" + std::string(level) + "' is not a log level: trace, debug, info, warn, error or off");
  level_is_set = true;
  return {};
}

/// The engine has a log of its own, where only warnings of a library are useful.
void set_first_level() {
  if (level_is_set)
    return;
  const char* wanted = std::getenv("TROUPE_LOG");
  if (wanted == nullptr || !set_level(wanted))
    static_cast<void>(set_level("warn"));
}

result<connector::runtime_options> runtime_options_of(const troupe_connect_options* said) {
  const auto x = read(said, "options");
  if (!x)
    return tl::unexpected(x.error());
  connector::runtime_options out;
  const auto address = text_of(x->address, "options.address");
  const auto certificate = text_of(x->certificate, "options.certificate");
  const auto key = text_of(x->key, "options.key");
  const auto authorities = text_of(x->authorities, "options.authorities");
  const auto name = text_of(x->client_name, "options.client_name");
  const auto encoding = text_of(x->encoding, "options.encoding");
  for (const auto* text : {&address, &certificate, &key, &authorities, &name, &encoding})
    if (!*text)
      return tl::unexpected(text->error());
  if (address->empty())
    return fail(errc::invalid_argument, "options.address is empty; give HOST:PORT, the path of a node's socket, or its "
                                        "data_dir");
  if (!encoding->empty() && std::ranges::find(config::page_encodings, *encoding) == config::page_encodings.end())
    return fail(errc::invalid_argument,
                "options.encoding is '" + std::string(*encoding) + "'; give \"auto\", \"raw\" or \"bf16\"");
  if (x->threads > 1024)
    return fail(errc::invalid_argument,
                "options.threads is " + std::to_string(x->threads) + "; at most 1024 are allowed");
  const bool waits = !(x->wait_for_node_seconds < 0);
  const auto wait = waits
                        ? seconds_of(x->wait_for_node_seconds, std::chrono::seconds(5), "options.wait_for_node_seconds")
                        : result<duration>(duration::zero());
  if (!wait)
    return tl::unexpected(wait.error());
  const auto timeout = seconds_of(x->request_timeout_seconds, out.request_timeout, "options.request_timeout_seconds");
  if (!timeout)
    return tl::unexpected(timeout.error());
  out.node = *address;
  out.certificate = *certificate;
  out.key = *key;
  out.authorities = *authorities;
  if (!name->empty())
    out.client_name = *name;
  if (!encoding->empty())
    out.encoding = *encoding;
  out.threads = x->threads == 0 ? threads_default : x->threads;
  out.window_bytes = x->window_bytes == 0 ? window_bytes_default : x->window_bytes;
  out.attach_limit = *wait;
  out.node_may_be_absent = true;
  out.request_timeout = *timeout;
  return out;
}

} // namespace

result<std::shared_ptr<connection_core>> core_of(troupe_connection* connection) {
  if (connection == nullptr)
    return fail(errc::invalid_argument, "the connection is NULL");
  if (auto sound = connection->check(); !sound)
    return tl::unexpected(sound.error());
  return connection->core;
}

} // namespace troupe::capi

std::uint32_t troupe_interface_version(void) {
  return TROUPE_INTERFACE_VERSION;
}

const char* troupe_library_version(void) {
  return TROUPE_VERSION;
}

const char* troupe_code_name(std::int32_t code) {
  if (code < 0 || code >= errc_count)
    return "unknown";
  return to_string(static_cast<errc>(code)).data(); // a literal
}

std::int32_t troupe_connect(const troupe_connect_options* options, troupe_connection** out, troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    auto how = capi::runtime_options_of(options);
    if (!how)
      return tl::unexpected(how.error());
    capi::watch_forks();
    capi::set_first_level();
    auto made = connector::runtime::create(*how);
    if (!made)
      return tl::unexpected(made.error());
    auto handle = std::make_unique<troupe_connection>();
    handle->core = std::make_shared<capi::connection_core>();
    handle->core->runtime = std::move(*made);
    *out = handle.release();
    return {};
  });
}

void troupe_connection_destroy(troupe_connection* connection) {
  capi::destroy(connection);
}

std::int32_t troupe_set_log_level(const char* level, troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    const auto text = capi::text_of(level, "level");
    return text ? capi::set_level(*text) : tl::unexpected(text.error());
  });
}
