#include "io/ucx/ucx_memory.hpp"

#include "base/event_signal.hpp"
#include "base/threads.hpp"
#include "base/unique_descriptor.hpp"
#include "io/memory/page_alignment.hpp"
#include "io/memory/private_memory.hpp"
#include "io/ucx/listener_guard.hpp"
#include "io/ucx/ucx_library.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <net/if.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <unordered_set>
#include <utility>

namespace troupe::io {

namespace {

/// A context and a worker of UCX, and the thread that makes all calls on them after their creation. It sleeps on the
/// event descriptor of the worker while nothing happens.
class ucx_engine {
public:
  static result<std::unique_ptr<ucx_engine>> start(const ucx_options& options, admitted_peers who);

  ucx_engine(const ucx_engine&) = delete;
  ucx_engine& operator=(const ucx_engine&) = delete;
  ~ucx_engine() {
    stop();
    end_worker();
    end_context();
  }

  const ucx_library& api() const noexcept { return *api_; }
  ucp_worker_h worker() const noexcept { return worker_; }
  ucp_context_h context() const noexcept { return context_; }
  const std::vector<std::uint8_t>& address() const noexcept { return address_; }

  /// Runs `what` on the thread, in the order of the calls. Returns false, without running it, when the thread is
  /// ending.
  bool post(std::function<void()> what) {
    {
      const std::lock_guard guard(mutex_);
      if (stopping_)
        return false;
      queue_.push_back(std::move(what));
    }
    wake();
    return true;
  }

  /// Stops progress; called on the thread. `shut` says whether the worker may be destroyed; otherwise it is leaked and
  /// never called again. Then `ended` is called. Posted functions run as before.
  void halt(std::function<bool()> shut, std::function<void()> ended) {
    if (std::exchange(halted_, true))
      return;
    shut_ = std::move(shut);
    on_halted_ = std::move(ended);
  }

  /// To be called after `stop`: the worker is leaked, and cannot be reached any more.
  void abandon() {
    if (guard_)
      guard_->shut();
    worker_ = nullptr;
    context_ = nullptr;
  }

  void stop() {
    if (!thread_.joinable())
      return;
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }

private:
  explicit ucx_engine(const ucx_library* api) : api_(api) {}

  result<void> open(const ucx_options& options, admitted_peers who);

  void wake() { signal_event(wake_.get()); }

  void end_worker() {
    if (worker_ != nullptr)
      api_->ucp_worker_destroy(std::exchange(worker_, nullptr));
  }
  void end_context() {
    if (context_ != nullptr)
      api_->ucp_cleanup(std::exchange(context_, nullptr));
  }

  void run();
  bool run_queue();
  void sleep();

  const ucx_library* api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::uint8_t> address_;
  std::optional<listener_guard> guard_;
  int events_ = -1;
  unique_descriptor wake_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  bool halted_ = false;
  bool copied_by_kernel_ = false;
  std::function<bool()> shut_;
  std::function<void()> on_halted_;
  std::thread thread_;
};

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

// -- the client's end -------------------------------------------------------------------------------------------------

class ucx_exposed_memory final : public exposed_memory {
public:
  explicit ucx_exposed_memory(std::unique_ptr<ucx_engine> engine) : engine_(std::move(engine)) {}

  // The worker stops first: without progress nothing is written over TCP, which is the only protection there, since UCX
  // does not check keys. An RDMA adapter checks the key, which is destroyed next. The worker is not destroyed: UCX 1.13
  // ends the whole process if the network fails while the node connects.
  ~ucx_exposed_memory() override {
    engine_->stop();
    if (mapped_ != nullptr)
      static_cast<void>(engine_->api().ucp_mem_unmap(engine_->context(), mapped_));
    if (!name_.key.empty())
      engine_->abandon();
  }

  result<void> open(std::uint64_t bytes) {
    auto got = private_memory::get(bytes);
    if (!got)
      return tl::unexpected<error>(std::move(got.error()));
    memory_ = std::move(*got);
    const auto& api = engine_->api();
    ucp_mem_map_params_t how{};
    how.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    how.address = memory_.bytes().data();
    how.length = bytes;
    if (const auto status = api.ucp_mem_map(engine_->context(), &how, &mapped_); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "exposing memory"));
    void* key = nullptr;
    std::size_t key_bytes = 0;
    if (const auto status = api.ucp_rkey_pack(engine_->context(), mapped_, &key, &key_bytes); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "packing a key"));
    const auto* const first = static_cast<const std::uint8_t*>(key);
    name_ = {
        engine_->address(), {first, first + key_bytes}, reinterpret_cast<std::uint64_t>(memory_.bytes().data()), bytes};
    api.ucp_rkey_buffer_release(key);
    return {};
  }

  std::span<std::byte> bytes() noexcept override { return memory_.bytes(); }
  const remote_memory_name& name() const noexcept override { return name_; }

private:
  private_memory memory_;
  std::unique_ptr<ucx_engine> engine_;
  ucp_mem_h mapped_ = nullptr;
  remote_memory_name name_;
};

class ucx_exposer final : public memory_exposer {
public:
  explicit ucx_exposer(ucx_options options) : options_(std::move(options)) {}

  result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const host_address> from) override {
    if (bytes == 0 || bytes % page_alignment != 0)
      return fail(errc::invalid_argument, "exposed memory must be whole pages");
    admitted_peers admitted;
    for (const auto& x : from)
      if (x.is_ipv4())
        admitted.addresses.push_back(x.ipv4());
    auto engine = ucx_engine::start(options_, std::move(admitted));
    if (!engine)
      return tl::unexpected<error>(std::move(engine.error()));
    const auto out = std::make_shared<ucx_exposed_memory>(std::move(*engine));
    if (auto opened = out->open(bytes); !opened)
      return tl::unexpected<error>(std::move(opened.error()));
    return out;
  }

private:
  ucx_options options_;
};

// -- the node's end ---------------------------------------------------------------------------------------------------

/// One connection to a peer. All members below belong to the thread of the engine.
class ucx_endpoint : public std::enable_shared_from_this<ucx_endpoint> {
public:
  ucx_endpoint(ucx_engine& engine, remote_memory_name name, std::function<void(const error&)> lost)
      : engine_(engine), name_(std::move(name)), lost_(std::move(lost)) {}

  void connect() {
    ucp_ep_params_t how{};
    how.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    how.address = reinterpret_cast<const ucp_address_t*>(name_.address.data());
    how.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    how.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
      static_cast<ucx_endpoint*>(self)->broken(status);
    };
    how.err_handler.arg = this;
    if (const auto status = api().ucp_ep_create(engine_.worker(), &how, &endpoint_); status != UCS_OK) {
      endpoint_ = nullptr;
      return broken(status);
    }
    if (const auto status = api().ucp_ep_rkey_unpack(endpoint_, name_.key.data(), &key_); status != UCS_OK) {
      key_ = nullptr;
      broken(status);
    }
  }

  void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) {
    if (failure_)
      return end(tl::unexpected<error>(*failure_));
    for (const auto& x : moves)
      if (x.there > name_.bytes || name_.bytes - x.there < x.here.size())
        return end(fail(errc::out_of_range, "the range is outside the memory of the other end"));
    auto* const batch = new moving{shared_from_this(), std::move(end), 1, std::nullopt};
    open_.insert(batch);
    for (const auto& x : moves) {
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
      how.cb.send = one_ended;
      how.user_data = batch;
      const auto there = name_.base + x.there;
      take(batch, direction == remote_direction::put
                      ? api().ucp_put_nbx(endpoint_, x.here.data(), x.here.size(), there, key_, &how)
                      : api().ucp_get_nbx(endpoint_, x.here.data(), x.here.size(), there, key_, &how));
    }
    if (direction == remote_direction::put) {
      // A finished put means that its bytes may be reused here. They have arrived when the flush has ended.
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
      how.cb.send = one_ended;
      how.user_data = batch;
      take(batch, api().ucp_ep_flush_nbx(endpoint_, &how));
    }
    part_ended(batch, UCS_OK);
  }

  /// Any thread.
  std::uint64_t parts_ended() const noexcept { return parts_ended_.load(std::memory_order_relaxed); }

  void close(std::function<void()> closed) {
    if (closed_)
      return closed();
    on_closed_.push_back(std::move(closed));
    closing_ = true;
    fail_with({errc::unreachable, "closed"});
  }

private:
  /// One call of `move`.
  struct moving {
    std::shared_ptr<ucx_endpoint> owner;
    remote_end end;
    std::size_t parts;
    std::optional<ucs_status_t> failed;
  };

  const ucx_library& api() const noexcept { return engine_.api(); }

  static void one_ended(void* request, ucs_status_t status, void* user) {
    auto* const batch = static_cast<moving*>(user);
    auto& self = *batch->owner;
    self.api().ucp_request_free(request);
    self.part_ended(batch, status);
  }

  void take(moving* batch, ucs_status_ptr_t request) {
    ++batch->parts;
    if (!UCS_PTR_IS_PTR(request))
      part_ended(batch, UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK);
  }

  void part_ended(moving* batch, ucs_status_t status) {
    parts_ended_.fetch_add(1, std::memory_order_relaxed);
    if (status != UCS_OK && !batch->failed)
      batch->failed = status;
    if (--batch->parts > 0)
      return;
    if (batch->failed) {
      // The rest of it may be in progress: it ends with the worker.
      broken(*batch->failed);
      return;
    }
    open_.erase(batch);
    const std::unique_ptr<moving> done(batch);
    done->end({});
  }

  void broken(ucs_status_t status) {
    fail_with({errc::unreachable,
               std::string("the memory of the other end is unreachable: ") + api().ucs_status_string(status)});
  }

  // After a failure this peer makes no more progress: UCX 1.13 uses destroyed connections where a network failed, and
  // cannot destroy a worker that has requests. Without progress no memory is touched: the kernel has copied what it
  // sends.
  void fail_with(error why) {
    if (failure_)
      return;
    failure_ = std::move(why);
    engine_.halt([self = shared_from_this()] { return self->shut(); }, [self = shared_from_this()] { self->ended(); });
    if (const auto tell = std::exchange(lost_, nullptr); tell && !closing_)
      tell(*failure_);
  }

  /// Whether the worker may be destroyed.
  bool shut() {
    if (!open_.empty())
      return false;
    if (key_ != nullptr)
      api().ucp_rkey_destroy(std::exchange(key_, nullptr));
    if (endpoint_ == nullptr)
      return true;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const auto closing = api().ucp_ep_close_nbx(endpoint_, &how);
    if (!UCS_PTR_IS_PTR(closing))
      return true;
    const bool done = api().ucp_request_check_status(closing) != UCS_INPROGRESS;
    api().ucp_request_free(closing);
    return done;
  }

  /// This peer no longer uses memory of this process.
  void ended() {
    closed_ = true;
    for (auto* const batch : std::exchange(open_, {})) {
      const std::unique_ptr<moving> done(batch);
      done->end(tl::unexpected<error>(*failure_));
    }
    for (auto& x : std::exchange(on_closed_, {}))
      x();
  }

  ucx_engine& engine_;
  remote_memory_name name_;
  std::function<void(const error&)> lost_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::optional<error> failure_;
  /// Moves whose `end` was not called.
  std::unordered_set<moving*> open_;
  bool closing_ = false;
  bool closed_ = false;
  std::vector<std::function<void()>> on_closed_;
  std::atomic<std::uint64_t> parts_ended_{0};
};

/// A peer with an engine of its own, which ends with it or before.
class ucx_peer final : public remote_peer {
public:
  ucx_peer(std::unique_ptr<ucx_engine> engine, const remote_memory_name& name, std::function<void(const error&)> lost)
      : engine_(std::move(engine)), endpoint_(std::make_shared<ucx_endpoint>(*engine_, name, std::move(lost))) {
    engine_->post([endpoint = endpoint_] { endpoint->connect(); });
  }

  ~ucx_peer() override {
    engine_->post([endpoint = endpoint_] { endpoint->close([] {}); });
    engine_->stop();
  }

  void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) override {
    const auto shared = std::make_shared<remote_end>(std::move(end));
    engine_->post([endpoint = endpoint_, direction, moves = std::move(moves), shared] {
      endpoint->move(direction, moves, std::move(*shared));
    });
  }

  std::uint64_t progress() const noexcept override { return endpoint_->parts_ended(); }

  void close(std::function<void()> closed) override {
    engine_->post([endpoint = endpoint_, closed = std::move(closed)] { endpoint->close(closed); });
  }

private:
  std::unique_ptr<ucx_engine> engine_;
  std::shared_ptr<ucx_endpoint> endpoint_;
};

class ucx_mover final : public remote_mover {
public:
  explicit ucx_mover(ucx_options options) : options_(std::move(options)) {}

  result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                               std::function<void(const error&)> lost) override {
    // The library reads these without checking their lengths.
    if (name.address.size() < address_bytes_least || name.key.size() < key_bytes_least || name.bytes == 0 ||
        name.base + name.bytes < name.base)
      return fail(errc::invalid_argument, "the name of the memory is not valid");
    auto engine = ucx_engine::start(options_, admitted_peers{});
    if (!engine)
      return tl::unexpected<error>(std::move(engine.error()));
    return std::make_shared<ucx_peer>(std::move(*engine), name, std::move(lost));
  }

private:
  static constexpr std::size_t address_bytes_least = 16;
  static constexpr std::size_t key_bytes_least = 8;

  ucx_options options_;
};

} // namespace

result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options& options) {
  if (const auto api = ucx_library::load(); !api)
    return tl::unexpected<error>(api.error());
  return std::make_shared<ucx_exposer>(options);
}

result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options& options) {
  // A failure of the configuration is reported at once.
  if (auto trial = ucx_engine::start(options, admitted_peers{}); !trial)
    return tl::unexpected<error>(std::move(trial.error()));
  return std::make_shared<ucx_mover>(options);
}

} // namespace troupe::io
