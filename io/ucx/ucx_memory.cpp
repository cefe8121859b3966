#include "io/ucx/ucx_memory.hpp"

#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/ucx/listener_guard.hpp"
#include "io/ucx/ucx_library.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

/// How long the end of a worker waits for endpoints to close. Those that do not are ended with it.
constexpr auto close_patience = std::chrono::seconds(5);

/// A context and a worker of UCX, and the one thread that ever calls them once they are made. It sleeps on the event
/// descriptor of the worker while nothing happens.
class ucx_engine {
public:
  static result<std::unique_ptr<ucx_engine>> start(const ucx_options& options, admitted_peers who);

  ucx_engine(const ucx_engine&) = delete;
  ucx_engine& operator=(const ucx_engine&) = delete;
  ~ucx_engine() {
    stop();
    if (worker_ != nullptr)
      api_->ucp_worker_destroy(worker_);
    if (context_ != nullptr)
      api_->ucp_cleanup(context_);
  }

  const ucx_library& api() const noexcept { return *api_; }
  ucp_worker_h worker() const noexcept { return worker_; }
  ucp_context_h context() const noexcept { return context_; }
  const std::vector<std::uint8_t>& address() const noexcept { return address_; }

  /// Has the thread do it, in the order of the calls. False, and it is not done, when the thread is ending.
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

  /// Called by the thread between any two steps: says whether it has something to wait for. With that, the thread does
  /// not end, but for a while.
  void watch(std::function<bool()> look) { look_ = std::move(look); }

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

  void wake() {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
  }

  void run();
  bool run_queue();
  void sleep(bool short_nap);

  const ucx_library* api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::uint8_t> address_;
  int events_ = -1;
  unique_descriptor wake_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::function<bool()> look_;
  std::thread thread_;
};

result<std::unique_ptr<ucx_engine>> ucx_engine::start(const ucx_options& options, admitted_peers who) {
  const auto api = ucx_library::load();
  if (!api)
    return tl::unexpected<error>(api.error());
  std::unique_ptr<ucx_engine> out(new ucx_engine(*api));
  if (auto opened = out->open(options, std::move(who)); !opened)
    return tl::unexpected<error>(std::move(opened.error()));
  out->thread_ = std::thread([engine = out.get()] { engine->run(); });
  ::pthread_setname_np(out->thread_.native_handle(), "ucx");
  return out;
}

result<void> ucx_engine::open(const ucx_options& options, admitted_peers who) {
  ucp_config_t* config = nullptr;
  if (const auto status = api_->ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "reading its configuration"));
  const auto set = [&](const char* name, const std::string& value) {
    return api_->ucp_config_modify(config, name, value.c_str());
  };
  auto status = set("TLS", options.transports);
  if (status == UCS_OK && !options.interfaces.empty())
    status = set("NET_DEVICES", options.interfaces);
  // Whoever does not answer must not hold up the others.
  static_cast<void>(set("CONN_NB", "y"));
  // So that there is one kind of address to admit.
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
  listener_guard guard(std::move(who));
  ucp_worker_params_t how{};
  how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (status = api_->ucp_worker_create(context_, &how, &worker_); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "making a worker"));
  ucp_worker_attr_t facts{};
  facts.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  facts.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  if (status = api_->ucp_worker_query(worker_, &facts); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "asking for an address"));
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(facts.address);
  address_.assign(bytes, bytes + facts.address_length);
  api_->ucp_worker_release_address(worker_, facts.address);
  const auto listeners = guard.apply(address_);
  if (!listeners)
    return tl::unexpected<error>(listeners.error());
  // It only warns of an interface that is not there. Those of RDMA have a port behind a colon.
  if (*listeners == 0 && !options.interfaces.empty() && options.interfaces.find(':') == std::string::npos)
    return fail(errc::io_error, "UCX knows no transport of \"" + options.transports + "\" on \"" + options.interfaces +
                                    "\" (remote.transports, remote.interfaces)");
  if (status = api_->ucp_worker_get_efd(worker_, &events_); status != UCS_OK)
    return tl::unexpected<error>(api_->failed(status, "asking for its events"));
  wake_ = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_)
    return tl::unexpected<error>(system_error(errno, "cannot make an event descriptor"));
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

void ucx_engine::sleep(bool short_nap) {
  if (api_->ucp_worker_arm(worker_) == UCS_ERR_BUSY)
    return;
  std::array<pollfd, 2> what{{{events_, POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  static_cast<void>(::poll(what.data(), what.size(), short_nap ? 10 : -1));
  if ((what[1].revents & POLLIN) != 0) {
    std::uint64_t ignored = 0;
    static_cast<void>(::read(wake_.get(), &ignored, sizeof ignored));
  }
}

void ucx_engine::run() {
  auto end = std::chrono::steady_clock::time_point::max();
  for (;;) {
    // What is to be done is looked for between any two steps: a stream of pages must not keep a close waiting.
    bool waits = false;
    do
      waits = look_ && look_();
    while (run_queue() || api_->ucp_worker_progress(worker_) != 0);
    bool ending = false;
    {
      const std::lock_guard guard(mutex_);
      ending = stopping_ && queue_.empty();
    }
    if (ending) {
      const auto now = std::chrono::steady_clock::now();
      if (end == std::chrono::steady_clock::time_point::max())
        end = now + close_patience;
      if (!waits || now >= end)
        return;
    }
    sleep(waits || ending);
  }
}

// -- the client's end -------------------------------------------------------------------------------------------------

class ucx_exposed_memory final : public exposed_memory {
public:
  explicit ucx_exposed_memory(std::unique_ptr<ucx_engine> engine) : engine_(std::move(engine)) {}

  // The worker goes first: with its connections ends all that may be on its way here. Over TCP there is nobody else
  // who could stop it, since keys are not looked at.
  ~ucx_exposed_memory() override {
    engine_->stop();
    if (mapped_ != nullptr)
      static_cast<void>(engine_->api().ucp_mem_unmap(engine_->context(), mapped_));
    engine_.reset();
    if (bytes_.data() != nullptr)
      ::munmap(bytes_.data(), bytes_.size());
  }

  result<void> open(std::uint64_t bytes) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return tl::unexpected<error>(system_error(errno, "cannot get " + std::to_string(bytes) + " bytes for pages"));
    bytes_ = {static_cast<std::byte*>(memory), bytes};
    ::madvise(memory, bytes, MADV_HUGEPAGE); // where it can be had
    const auto& api = engine_->api();
    ucp_mem_map_params_t how{};
    how.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    how.address = memory;
    how.length = bytes;
    if (const auto status = api.ucp_mem_map(engine_->context(), &how, &mapped_); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "exposing memory"));
    void* key = nullptr;
    std::size_t key_bytes = 0;
    if (const auto status = api.ucp_rkey_pack(engine_->context(), mapped_, &key, &key_bytes); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "packing a key"));
    const auto* const first = static_cast<const std::uint8_t*>(key);
    name_ = {engine_->address(), {first, first + key_bytes}, reinterpret_cast<std::uint64_t>(memory), bytes};
    api.ucp_rkey_buffer_release(key);
    return {};
  }

  std::span<std::byte> bytes() noexcept override { return bytes_; }
  const remote_memory_name& name() const noexcept override { return name_; }

private:
  std::unique_ptr<ucx_engine> engine_;
  std::span<std::byte> bytes_;
  ucp_mem_h mapped_ = nullptr;
  remote_memory_name name_;
};

class ucx_exposer final : public memory_exposer {
public:
  explicit ucx_exposer(ucx_options options) : options_(std::move(options)) {}

  result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const std::uint32_t> from) override {
    if (bytes == 0 || bytes % page_alignment != 0)
      return fail(errc::invalid_argument, "exposed memory is whole pages");
    auto engine = ucx_engine::start(options_, admitted_peers{{from.begin(), from.end()}});
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

/// Everything below belongs to the thread of the engine.
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
        return end(fail(errc::out_of_range, "this is not the memory of the other end"));
    auto* const batch = new moving{shared_from_this(), std::move(end), 1, std::nullopt};
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
      // A put has ended when its bytes may be used again here. They are there when the flush has ended.
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
      how.cb.send = one_ended;
      how.user_data = batch;
      take(batch, api().ucp_ep_flush_nbx(endpoint_, &how));
    }
    part_ended(batch, UCS_OK);
  }

  void close(std::function<void()> closed) {
    if (closed_)
      return closed();
    on_closed_.push_back(std::move(closed));
    closing_wanted_ = true;
    fail_with({errc::unreachable, "closed"});
  }

  bool closed() const noexcept { return closed_; }

  /// Goes on with what cannot be done from within a callback of the library. Whether there is more to wait for.
  bool look() {
    if (closed_ || !closing_wanted_)
      return false;
    if (endpoint_ != nullptr && !std::exchange(closing_, true)) {
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      // The key belongs to the endpoint, which reads it for what is under way.
      close_request_ = api().ucp_ep_close_nbx(endpoint_, &how);
      if (!UCS_PTR_IS_PTR(close_request_))
        close_request_ = nullptr;
    }
    if (close_request_ != nullptr) {
      if (api().ucp_request_check_status(close_request_) == UCS_INPROGRESS)
        return true;
      api().ucp_request_free(close_request_);
      close_request_ = nullptr;
    }
    if (under_way_ > 0)
      return true;
    if (key_ != nullptr)
      api().ucp_rkey_destroy(std::exchange(key_, nullptr));
    closed_ = true;
    lost_ = nullptr;
    for (auto& x : std::exchange(on_closed_, {}))
      x();
    return false;
  }

private:
  /// A call of `move`.
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
    --self.under_way_;
    self.part_ended(batch, status);
  }

  void take(moving* batch, ucs_status_ptr_t request) {
    ++batch->parts;
    if (UCS_PTR_IS_PTR(request)) {
      ++under_way_;
      return;
    }
    part_ended(batch, UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK);
  }

  void part_ended(moving* batch, ucs_status_t status) {
    if (status != UCS_OK && !batch->failed)
      batch->failed = status;
    if (--batch->parts > 0)
      return;
    const std::unique_ptr<moving> done(batch);
    if (!done->failed)
      return done->end({});
    if (!failure_)
      broken(*done->failed);
    done->end(tl::unexpected<error>(*failure_));
  }

  void broken(ucs_status_t status) {
    fail_with({errc::unreachable,
               std::string("the memory of the other end cannot be reached: ") + api().ucs_status_string(status)});
  }

  void fail_with(error why) {
    if (failure_)
      return;
    failure_ = std::move(why);
    if (const auto tell = std::exchange(lost_, nullptr); tell && !closing_wanted_)
      tell(*failure_);
  }

  ucx_engine& engine_;
  remote_memory_name name_;
  std::function<void(const error&)> lost_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::optional<error> failure_;
  /// Requests that the library has not ended.
  std::size_t under_way_ = 0;
  bool closing_wanted_ = false;
  bool closing_ = false;
  bool closed_ = false;
  ucs_status_ptr_t close_request_ = nullptr;
  std::vector<std::function<void()>> on_closed_;
};

/// The engine and its endpoints. Peers keep it, so that whoever has one may use it.
class ucx_endpoints {
public:
  static result<std::shared_ptr<ucx_endpoints>> start(const ucx_options& options) {
    auto engine = ucx_engine::start(options, admitted_peers{});
    if (!engine)
      return tl::unexpected<error>(std::move(engine.error()));
    return std::make_shared<ucx_endpoints>(std::move(*engine));
  }

  explicit ucx_endpoints(std::unique_ptr<ucx_engine> engine) : engine_(std::move(engine)) {
    engine_->post([this] { engine_->watch([this] { return look(); }); });
  }
  ucx_endpoints(const ucx_endpoints&) = delete;
  ucx_endpoints& operator=(const ucx_endpoints&) = delete;

  ~ucx_endpoints() {
    engine_->post([this] {
      for (const auto& x : all_)
        x->close([] {});
    });
    engine_->stop();
  }

  ucx_engine& engine() noexcept { return *engine_; }

  /// In the thread of the engine.
  void add(const std::shared_ptr<ucx_endpoint>& x) {
    all_.push_back(x);
    x->connect();
  }

private:
  bool look() {
    bool waits = false;
    for (const auto& x : all_)
      waits = x->look() || waits;
    std::erase_if(all_, [](const auto& x) { return x->closed(); });
    return waits;
  }

  std::unique_ptr<ucx_engine> engine_;
  /// Of the thread of the engine, all that are not closed.
  std::vector<std::shared_ptr<ucx_endpoint>> all_;
};

class ucx_peer final : public remote_peer {
public:
  ucx_peer(std::shared_ptr<ucx_endpoints> all, std::shared_ptr<ucx_endpoint> endpoint)
      : all_(std::move(all)), endpoint_(std::move(endpoint)) {}

  ~ucx_peer() override {
    all_->engine().post([endpoint = endpoint_] { endpoint->close([] {}); });
  }

  void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) override {
    const auto shared = std::make_shared<remote_end>(std::move(end));
    if (!all_->engine().post([endpoint = endpoint_, direction, moves = std::move(moves), shared] {
          endpoint->move(direction, moves, std::move(*shared));
        }))
      (*shared)(fail(errc::unreachable, "the transport is ending"));
  }

  void close(std::function<void()> closed) override {
    all_->engine().post([endpoint = endpoint_, closed = std::move(closed)] { endpoint->close(closed); });
  }

private:
  std::shared_ptr<ucx_endpoints> all_;
  std::shared_ptr<ucx_endpoint> endpoint_;
};

class ucx_mover final : public remote_mover {
public:
  explicit ucx_mover(std::shared_ptr<ucx_endpoints> all) : all_(std::move(all)) {}

  result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                               std::function<void(const error&)> lost) override {
    // What these hold is read by the library without a look at their lengths.
    if (name.address.size() < address_bytes_least || name.key.size() < key_bytes_least || name.bytes == 0 ||
        name.base + name.bytes < name.base)
      return fail(errc::invalid_argument, "this names no memory");
    auto endpoint = std::make_shared<ucx_endpoint>(all_->engine(), name, std::move(lost));
    all_->engine().post([all = all_.get(), endpoint] { all->add(endpoint); });
    return std::make_shared<ucx_peer>(all_, std::move(endpoint));
  }

private:
  static constexpr std::size_t address_bytes_least = 16;
  static constexpr std::size_t key_bytes_least = 8;

  std::shared_ptr<ucx_endpoints> all_;
};

} // namespace

result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options& options) {
  if (const auto api = ucx_library::load(); !api)
    return tl::unexpected<error>(api.error());
  return std::make_shared<ucx_exposer>(options);
}

result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options& options) {
  auto all = ucx_endpoints::start(options);
  if (!all)
    return tl::unexpected<error>(std::move(all.error()));
  return std::make_shared<ucx_mover>(std::move(*all));
}

} // namespace troupe::io
