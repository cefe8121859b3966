#include "io/ucx/ucx_engine.hpp"

#include "base/threads.hpp"

#include <array>
#include <cerrno>
#include <net/if.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::io {

result<std::unique_ptr<ucx_engine>> ucx_engine::start(const ucx_options& options, admitted_peers who) {
  const auto api = ucx_library::load();
  if (!api)
    return tl::unexpected<error>(api.error());
  std::unique_ptr<ucx_engine> out(new ucx_engine(*api));
  out->copied_by_kernel_ = options.transports == "tcp,self" || options.transports == "tcp";
  if (auto opened = out->open(options, std::move(who)); !opened)
    return tl::unexpected<error>(std::move(opened.error()));
  auto started = start_thread(thread_name("troupe-ucx"), "the thread of UCX", [engine = out.get()] { engine->run(); });
  if (!started)
    return tl::unexpected<error>(started.error());
  out->thread_ = std::move(*started);
  return out;
}

result<void> ucx_engine::open(const ucx_options& options, admitted_peers who) {
  ucp_config_t* config = nullptr;
  if (const auto status = api_->ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "reading the configuration"));
  const auto set = [&](const char* name, const std::string& value) {
    return api_->ucp_config_modify(config, name, value.c_str());
  };
  auto status = set("TLS", options.transports);
  if (status == UCS_OK && !options.interfaces.empty())
    status = set("NET_DEVICES", options.interfaces);
  // A peer that does not respond must not block the others.
  static_cast<void>(set("CONN_NB", "y"));
  // When one epoll_wait returns several events, UCX 1.13 uses a connection that it has destroyed for an earlier event:
  // seen where a network failed under several peers.
  static_cast<void>(set("MAX_POLL", "1"));
  // This leaves only one kind of address to admit.
  static_cast<void>(set("AF_PRIO", "inet"));
  static_cast<void>(set("KEEPALIVE_INTERVAL", "2s"));
  static_cast<void>(set("KEEPIDLE", "2s"));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  if (status == UCS_OK)
    status = api_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  api_->ucp_config_release(config);
  if (status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, ("starting with transports \"" + options.transports +
                                                       "\" and interfaces \"" + options.interfaces + "\"")
                                                          .c_str()));
  guard_.emplace(std::move(who));
  ucp_worker_params_t how{};
  how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (status = api_->ucp_worker_create(context_, &how, &worker_); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "creating a worker"));
  ucp_worker_attr_t facts{};
  facts.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  facts.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  if (status = api_->ucp_worker_query(worker_, &facts); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "getting an address"));
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(facts.address);
  address_.assign(bytes, bytes + facts.address_length);
  api_->ucp_worker_release_address(worker_, facts.address);
  const auto listeners = guard_->apply(address_);
  if (!listeners)
    return tl::unexpected<error>(listeners.error());
  // UCX only warns of an interface that does not exist or is down, which may change. RDMA interfaces have a port behind
  // a colon.
  if (*listeners == 0 && !options.interfaces.empty() && options.interfaces.find(':') == std::string::npos)
    return fail(::if_nametoindex(options.interfaces.c_str()) != 0 ? errc::unreachable : errc::io_error,
                "UCX has no transport of \"" + options.transports + "\" on \"" + options.interfaces +
                    "\" (remote.ucx_transports, remote.ucx_interfaces)");
  if (status = api_->ucp_worker_get_efd(worker_, &events_); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "getting the event descriptor"));
  wake_ = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_)
    return tl::unexpected<error>(system_error(errno, "cannot create an event descriptor"));
  return {};
}

bool ucx_engine::run_queue() {
  std::deque<std::function<void()>> todo;
  {
    const std::lock_guard guard(mutex_);
    todo.swap(queue_);
  }
  for (auto& x : todo)
    x();
  return !todo.empty();
}

void ucx_engine::sleep() {
  if (worker_ != nullptr && api_->ucp_worker_arm(worker_) == UCS_ERR_BUSY)
    return;
  // poll ignores a descriptor below 0.
  std::array<pollfd, 2> what{{{worker_ != nullptr ? events_ : -1, POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  static_cast<void>(::poll(what.data(), what.size(), -1));
  if ((what[1].revents & POLLIN) != 0)
    clear_event(wake_.get());
}

void ucx_engine::run() {
  for (;;) {
    // The queue is checked between any two steps: a stream of pages must not delay a close.
    while (run_queue() || (!halted_ && api_->ucp_worker_progress(worker_) != 0)) {
    }
    if (halted_ && worker_ != nullptr) {
      if (std::exchange(shut_, nullptr)()) {
        end_worker();
      } else {
        worker_ = nullptr;
        context_ = nullptr;
        // With transports other than TCP an adapter may still be transferring: then the end is never reported.
        if (!copied_by_kernel_)
          on_halted_ = nullptr;
      }
      if (const auto ended = std::exchange(on_halted_, nullptr))
        ended();
      continue;
    }
    {
      const std::lock_guard guard(mutex_);
      if (stopping_ && queue_.empty())
        return;
    }
    sleep();
  }
}

} // namespace troupe::io
