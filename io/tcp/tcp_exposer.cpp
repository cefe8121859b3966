#include "base/event_signal.hpp"
#include "base/threads.hpp"
#include "io/memory/private_memory.hpp"
#include "io/page.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/tcp_connection.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::io {

namespace {

using namespace tcp;
using time_source = std::chrono::steady_clock;

/// The time within which a new connection must authenticate.
constexpr auto hello_time = std::chrono::seconds(5);
/// The most connections that have not authenticated.
constexpr std::size_t callers_most = 16;
/// The pause when no descriptor is left for a waiting connection, which poll would otherwise report again at once.
constexpr auto accept_pause = std::chrono::milliseconds(100);

iovec piece(std::span<std::byte> x) {
  return {x.data(), x.size()};
}

/// Memory of this process with a listener. All members below `run` belong to its thread, which lives as long as the
/// object.
///
/// Invariant: only that thread reads and writes bytes of the memory. So nothing can reach them after it has ended.
class tcp_exposed_memory final : public exposed_memory {
public:
  tcp_exposed_memory(private_memory memory, listener listening, connection_token token, bool encrypted,
                     std::vector<std::uint32_t> from)
      : memory_(std::move(memory)), listening_(std::move(listening.descriptor)), token_(token), encrypted_(encrypted),
        from_(std::move(from)) {
    name_.address = tcp_address(listening.where, encrypted);
    for (const auto x : token_)
      name_.key.push_back(std::to_integer<std::uint8_t>(x));
    name_.bytes = memory_.bytes().size();
  }

  ~tcp_exposed_memory() override {
    if (!thread_.joinable())
      return;
    stopping_ = true;
    signal_event(stop_.get());
    thread_.join();
  }

  result<void> start() {
    stop_ = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_)
      return tl::unexpected<error>(system_error(errno, "cannot create an event descriptor"));
    auto started = start_thread(thread_name("troupe-exposer"), "the thread that exposes memory", [this] { run(); });
    if (!started)
      return tl::unexpected<error>(started.error());
    thread_ = std::move(*started);
    return {};
  }

  std::span<std::byte> bytes() noexcept override { return memory_.bytes(); }
  const remote_memory_name& name() const noexcept override { return name_; }

private:
  /// A connection that has not authenticated yet.
  struct caller {
    tcp_stream stream;
    hello words;
    std::size_t heard = 0;
    time_source::time_point until;
  };

  void run() {
    block_broken_pipes();
    auto node = wait_for_node();
    listening_.reset();
    if (node)
      serve(node);
  }

  /// Empty when the memory is being destroyed.
  tcp_stream wait_for_node() {
    std::vector<caller> callers;
    bool accept_pauses = false;
    for (;;) {
      const bool is_open = callers.size() < callers_most && !accept_pauses;
      std::vector<pollfd> what{{stop_.get(), POLLIN, 0}, {is_open ? listening_.get() : -1, POLLIN, 0}};
      for (const auto& x : callers)
        what.push_back({x.stream.descriptor(), x.stream.events(false), 0});
      const auto patience = std::exchange(accept_pauses, false) ? static_cast<int>(accept_pause.count())
                            : callers.empty()                   ? -1
                                                                : 500;
      static_cast<void>(::poll(what.data(), what.size(), patience));
      if (what[0].revents != 0)
        return {};
      for (auto& x : callers)
        switch (listen_to(x)) {
        case standing::node:
          return std::move(x.stream);
        case standing::stranger:
          x.stream = {};
          break;
        case standing::unknown:
          break;
        }
      std::erase_if(callers, [](const caller& x) { return !x.stream; });
      if (what[1].revents == 0)
        continue;
      auto stream = tcp_stream::accept(listening_.get());
      accept_pauses = !stream;
      if (stream && may_come(stream.peer_address()) &&
          (!encrypted_ || stream.encrypt(tcp_stream::role::answers, token_)))
        callers.push_back({std::move(stream), {}, 0, time_source::now() + hello_time});
    }
  }

  bool may_come(std::uint32_t address) const { return std::find(from_.begin(), from_.end(), address) != from_.end(); }

  enum class standing : std::uint8_t { unknown, stranger, node };

  standing listen_to(caller& x) const {
    const std::array<iovec, 1> rest{piece(bytes_of(x.words).subspan(x.heard))};
    const auto got = x.stream.read(rest);
    x.heard += got.bytes;
    if (got.ended || x.until < time_source::now())
      return standing::stranger;
    if (x.heard < sizeof x.words)
      return standing::unknown;
    return x.words.protocol == hello::this_protocol && same_token(x.words.token, token_) ? standing::node
                                                                                         : standing::stranger;
  }

  void serve(tcp_stream& node) {
    order what;
    while (read_all(node, bytes_of(what)) && is_sound(what, memory_.bytes().size())) {
      const auto place = memory_.bytes().subspan(what.offset, what.length);
      answer done{what.kind, what.number, what.length};
      if (what.kind == order_kind::put && !read_all(node, place))
        return;
      std::array<iovec, 2> reply{piece(bytes_of(done)),
                                 what.kind == order_kind::get ? piece(place) : iovec{nullptr, 0}};
      if (!write_all(node, reply))
        return;
    }
  }

  /// Returns also when the memory is being destroyed.
  void wait(const tcp_stream& node, bool writing) const {
    auto events = node.events(writing);
    // Nothing is read while an answer is being sent.
    if (writing && (events & POLLOUT) != 0)
      events = POLLOUT;
    std::array<pollfd, 2> what{{{stop_.get(), POLLIN, 0}, {node.descriptor(), events, 0}}};
    static_cast<void>(::poll(what.data(), what.size(), -1));
  }

  bool read_all(tcp_stream& node, std::span<std::byte> into) const {
    while (!into.empty()) {
      const std::array<iovec, 1> rest{piece(into)};
      const auto got = node.read(rest);
      if (got.ended || stopping_)
        return false;
      if (got.bytes == 0)
        wait(node, false);
      into = into.subspan(got.bytes);
    }
    return true;
  }

  bool write_all(tcp_stream& node, std::span<iovec> from) const {
    while (!from.empty()) {
      if (from.front().iov_len == 0) {
        from = from.subspan(1);
        continue;
      }
      const auto put = node.write(from);
      if (put.ended || stopping_)
        return false;
      if (put.bytes == 0)
        wait(node, true);
      auto left = put.bytes;
      for (auto& x : from) {
        const auto n = std::min(left, x.iov_len);
        x.iov_base = static_cast<std::byte*>(x.iov_base) + n;
        x.iov_len -= n;
        left -= n;
      }
    }
    return true;
  }

  private_memory memory_;
  unique_descriptor listening_;
  /// Ends the waits, and also a stream of orders without a pause.
  unique_descriptor stop_;
  std::atomic<bool> stopping_ = false;
  connection_token token_;
  bool encrypted_;
  std::vector<std::uint32_t> from_;
  remote_memory_name name_;
  std::thread thread_;
};

class tcp_exposer final : public memory_exposer {
public:
  tcp_exposer(std::uint32_t address, bool encrypted) : address_(address), encrypted_(encrypted) {}

  result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const std::uint32_t> from) override {
    if (bytes == 0 || bytes % page_alignment != 0)
      return fail(errc::invalid_argument, "exposed memory must be whole pages");
    connection_token token;
    if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
      return tl::unexpected<error>(system_error(errno, "cannot generate a token"));
    auto memory = private_memory::get(bytes);
    if (!memory)
      return tl::unexpected<error>(std::move(memory.error()));
    auto listening = listen_on(address_);
    if (!listening)
      return tl::unexpected<error>(std::move(listening.error()));
    const auto out = std::make_shared<tcp_exposed_memory>(std::move(*memory), std::move(*listening), token, encrypted_,
                                                          std::vector<std::uint32_t>(from.begin(), from.end()));
    if (auto started = out->start(); !started)
      return tl::unexpected<error>(std::move(started.error()));
    return out;
  }

private:
  std::uint32_t address_;
  bool encrypted_;
};

} // namespace

std::shared_ptr<memory_exposer> make_tcp_exposer(std::uint32_t address, bool encrypted) {
  return std::make_shared<tcp_exposer>(address, encrypted);
}

} // namespace troupe::io
