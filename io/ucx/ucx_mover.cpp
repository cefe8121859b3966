#include "io/ucx/ucx_engine.hpp"
#include "io/ucx/ucx_memory.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::io {

namespace {

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

result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options& options) {
  // A failure of the configuration is reported at once.
  if (auto trial = ucx_engine::start(options, admitted_peers{}); !trial)
    return tl::unexpected<error>(std::move(trial.error()));
  return std::make_shared<ucx_mover>(options);
}

} // namespace troupe::io
