#include "http/server/server.hpp"

#include "base/descriptors.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"
#include "http/server/listener.hpp"
#include "http/server/shared_state.hpp"
#include "http/server/worker.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <csignal>
#include <exception>
#include <mutex>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::http {

namespace asio = boost::asio;

namespace {

/// The number from the config; by default one that leaves cores for the actors.
std::uint32_t threads_of(const config::http_config& config) {
  return config.threads > 0 ? config.threads : std::clamp(usable_processors() / 2, 1U, 4U);
}

/// The config with no more connections than there are file descriptors for.
config::http_config within_descriptors(config::http_config config) {
  const auto log = log::get("http");
  const auto limit = raise_descriptor_limit();
  if (!limit) {
    log->warn("cannot compare the number of connections with the limit of open files: {}", to_string(limit.error()));
    return config;
  }
  const auto open = open_descriptors() + set_aside_descriptors();
  const auto fitting =
      connections_within(limit->now, open, worker::max_reserve * threads_of(config), config.limits.connections);
  if (fitting < config.limits.connections)
    log->warn("http.limits.connections is {}, reduced to {}: of {} files that may be open, {} are open or reserved, "
              "and the node may need more; raise the limit (ulimit -n, LimitNOFILE=)",
              config.limits.connections, fitting, limit->now, open);
  else if (limit->now > limit->before)
    log->info("raised the limit of open files from {} to {}: room for {} connections", limit->before, limit->now,
              fitting);
  config.limits.connections = fitting;
  return config;
}

/// Starts a thread that leaves signals to others.
template <class F>
std::thread start_thread(F f) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread result{std::move(f)};
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

} // namespace

struct server::implementation {
  implementation(const config::http_config& config, router routes, observer* watcher)
      : shared(config, std::move(routes), watcher) {
    for (std::uint32_t i = 0; i < threads_of(config); ++i)
      workers.push_back(std::make_unique<worker>(shared));
    for (auto* x : {&at_port, &at_file})
      *x = std::make_unique<listener>(shared, workers);
  }

  void start() {
    asio::post(workers.front()->context(), [this] {
      at_port->start();
      at_file->start();
    });
    for (auto& x : workers)
      threads.push_back(start_thread(named(thread_name("troupe-http"), [&w = *x] { w.run(); })));
  }

  void stop(duration patience) {
    const std::lock_guard guard{stopping};
    if (is_stopped)
      return;
    is_stopped = true;
    const auto deadline = later(std::chrono::steady_clock::now(), patience);
    asio::post(workers.front()->context(), [this, deadline] {
      at_port->close();
      at_file->close();
      // Posted after the connections that were handed over, so none of them comes after it.
      for (auto& x : workers)
        asio::post(x->context(), [&w = *x, deadline] { w.drain(deadline); });
    });
    for (auto& x : threads)
      x.join();
    threads.clear();
  }

  shared_state shared;
  std::vector<std::unique_ptr<worker>> workers;
  std::unique_ptr<listener> at_port;
  std::unique_ptr<listener> at_file;
  std::vector<std::thread> threads;
  std::mutex stopping;
  bool is_stopped = false;
};

server::server(std::unique_ptr<implementation> x) : implementation_(std::move(x)) {}

server::~server() {
  stop(duration::zero());
}

result<std::optional<bound_socket>> server::prepare(const config::http_config& config) {
  if (const auto sound = credentials(config).reload(); !sound)
    return tl::unexpected(sound.error());
  if (!config.has_port())
    return std::nullopt;
  auto bound = bound_socket::open("http", config.host, static_cast<std::uint16_t>(config.port));
  if (!bound)
    return tl::unexpected(std::move(bound.error()));
  return std::move(*bound);
}

result<std::unique_ptr<server>> server::start(const config::http_config& config, router routes, observer* watcher) {
  auto port = prepare(config);
  if (!port)
    return tl::unexpected(port.error());
  return start(config, std::move(routes), watcher, {std::move(*port), std::nullopt});
}

result<std::unique_ptr<server>> server::start(const config::http_config& config, router routes, observer* watcher,
                                              listening_sockets where) {
  if (const auto& sound = routes.check(); !sound)
    return tl::unexpected(sound.error());
  try {
    auto x = std::make_unique<implementation>(within_descriptors(config), std::move(routes), watcher);
    if (const auto loaded = x->shared.keys.reload(); !loaded)
      return tl::unexpected(loaded.error());
    if (where.port)
      if (const auto opened = x->at_port->open(std::move(*where.port)); !opened)
        return tl::unexpected(opened.error());
    if (where.local)
      if (const auto opened = x->at_file->open(std::move(*where.local)); !opened)
        return tl::unexpected(opened.error());
    if (config.has_port() && config.tokens_file && !config.tls.certificate)
      x->shared.log->info("tokens are sent without TLS: an eavesdropper on the network can use them");
    std::unique_ptr<server> started{new server{std::move(x)}};
    // If a thread cannot be started, the destructor stops those that were.
    started->implementation_->start();
    return started;
  } catch (const std::exception& e) { // for example, no threads or file descriptors are left
    return tl::unexpected<error>(error_of(e, "cannot start the HTTP server"));
  }
}

std::uint16_t server::port() const noexcept {
  return implementation_->at_port->port();
}

result<void> server::reload_tokens() {
  return implementation_->shared.keys.reload();
}

void server::replace_local(local_listener to_listen) {
  // Posted functions must be copyable.
  const auto kept = std::make_shared<local_listener>(std::move(to_listen));
  asio::post(implementation_->workers.front()->context(),
             [x = implementation_.get(), kept] { x->at_file->replace(std::move(*kept)); });
}

void server::stop(duration patience) {
  implementation_->stop(patience);
}

} // namespace troupe::http
