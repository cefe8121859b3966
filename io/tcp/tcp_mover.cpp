#include "base/processors.hpp"
#include "base/threads.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/tcp/tcp_peer.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <sys/eventfd.h>
#include <system_error>
#include <utility>

namespace troupe::io {

namespace {

using namespace tcp;

class tcp_peer final : public remote_peer {
public:
  explicit tcp_peer(std::shared_ptr<tcp_streams> streams) : streams_(std::move(streams)) {}
  ~tcp_peer() override {
    streams_->close([] {});
  }

  void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) override {
    streams_->move(direction, moves, std::move(end));
  }
  std::uint64_t progress() const noexcept override { return streams_->moved(); }
  void close(std::function<void()> closed) override { streams_->close(std::move(closed)); }

private:
  std::shared_ptr<tcp_streams> streams_;
};

class tcp_mover final : public remote_mover {
public:
  explicit tcp_mover(const tcp_mover_options& options) : options_(options) {}
  // The connections of a peer are in several loops, which post to each other until all have ended.
  ~tcp_mover() override {
    for (const auto& x : loops_)
      x->stop();
    for (const auto& x : loops_)
      x->join();
  }

  result<void> open() {
    const auto streams = chosen_streams(options_.streams);
    const auto threads = options_.threads > 0 ? options_.threads : std::max(streams, 2U);
    for (unsigned i = 0; i < threads; ++i) {
      unique_descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!wake)
        return tl::unexpected<error>(system_error(errno, "cannot create an event descriptor"));
      try {
        loops_.push_back(std::make_unique<tcp_loop>(std::move(wake)));
      } catch (const std::system_error& e) {
        return tl::unexpected<error>(no_thread("the thread that moves pages between hosts", e.code().value()));
      }
    }
    return {};
  }

  result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                               std::function<void(const error&)> lost) override {
    const auto place = memory_place::parse(name);
    if (!place)
      return tl::unexpected<error>(place.error());
    if (options_.encrypted && !place->encrypted)
      return fail(errc::unsupported, "this node requires encryption, and the client has none: set remote.encrypt "
                                     "for the client");
    stream_options how;
    how.streams = std::min(chosen_streams(options_.streams, place->where.size()), place->streams);
    how.silence = options_.silence;
    how.reopen = options_.reopen;
    auto streams = std::make_shared<tcp_streams>(how, name.bytes, std::move(lost), counts_);
    connection_token token;
    std::ranges::transform(name.key, token.begin(), [](auto x) { return std::byte{x}; });
    streams->open(*place, token, loops_, next_.fetch_add(how.streams), options_.addresses);
    return std::make_shared<tcp_peer>(std::move(streams));
  }

  connections connection_counts() const noexcept override { return {counts_->lost.load(), counts_->reopened.load()}; }

private:
  tcp_mover_options options_;
  std::shared_ptr<tcp::connection_counts> counts_ = std::make_shared<tcp::connection_counts>();
  std::vector<std::unique_ptr<tcp_loop>> loops_;
  std::atomic<std::uint32_t> next_ = 0;
};

} // namespace

std::uint32_t chosen_streams(std::uint32_t wanted, std::size_t addresses) noexcept {
  if (wanted > 0)
    return std::min(wanted, streams_most);
  return std::max(std::clamp(usable_processors() / 2, 1U, 8U),
                  static_cast<std::uint32_t>(std::min(addresses, addresses_most)));
}

result<std::shared_ptr<remote_mover>> make_tcp_mover(const tcp_mover_options& options) {
  const auto out = std::make_shared<tcp_mover>(options);
  if (auto opened = out->open(); !opened)
    return tl::unexpected<error>(std::move(opened.error()));
  return out;
}

} // namespace troupe::io
