#include "base/event_signal.hpp"
#include "base/threads.hpp"
#include "io/memory/page_alignment.hpp"
#include "io/memory/private_memory.hpp"
#include "io/tcp/exposed_streams.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <string>
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

iovec piece_of(std::span<std::byte> x) {
  return {x.data(), x.size()};
}

/// Memory of this process with a listener. All members below `run` belong to its threads, which live as long as the
/// object.
///
/// Invariant: only these threads read and write bytes of the memory. So nothing can reach them after they have ended.
class tcp_exposed_memory final : public exposed_memory {
public:
  tcp_exposed_memory(private_memory memory, std::vector<listener> listening, connection_token token, bool encrypted,
                     std::uint32_t streams_allowed, std::vector<host_address> from)
      : memory_(std::move(memory)), listening_(std::move(listening)), token_(token), encrypted_(encrypted),
        from_(std::move(from)), streams_(streams_allowed) {
    memory_place place{{}, encrypted, streams_allowed};
    for (const auto& x : listening_)
      place.where.push_back(x.where);
    name_.address = place.bytes();
    for (const auto x : token_)
      name_.key.push_back(std::to_integer<std::uint8_t>(x));
    name_.bytes = memory_.bytes().size();
  }

  ~tcp_exposed_memory() override {
    if (!thread_.joinable())
      return;
    streams_.stop();
    signal_event(stop_.get());
    thread_.join();
    for (auto& [number, x] : more_threads_)
      x.join();
  }

  result<void> start() {
    stop_ = unique_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_)
      return tl::unexpected<error>(system_error(errno, "cannot create an event descriptor"));
    auto started = start_exposer([this] { run(); });
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

  template <class F>
  static result<std::thread> start_exposer(F run) {
    return start_thread(thread_name("troupe-exposer"), "the thread that exposes memory", std::move(run));
  }

  void run() {
    block_broken_pipes();
    auto* const last = wait_for_node();
    listening_.clear();
    if (last != nullptr)
      serve(*last);
  }

  /// Serves the connections of the node, each in a thread, until the memory is being destroyed; then null. A node that
  /// makes a single one does not open it again, so that one is returned, to be served by this thread.
  served_stream* wait_for_node() {
    std::vector<caller> callers;
    bool accept_pauses = false;
    for (;;) {
      const bool is_open = callers.size() < callers_most && !accept_pauses;
      std::vector<pollfd> what{{stop_.get(), POLLIN, 0}};
      for (const auto& x : listening_)
        what.push_back({is_open ? x.descriptor.get() : -1, POLLIN, 0});
      for (const auto& x : callers)
        what.push_back({x.stream.descriptor(), x.stream.events(false), 0});
      const auto patience = std::exchange(accept_pauses, false) ? static_cast<int>(accept_pause.count())
                            : callers.empty()                   ? -1
                                                                : 500;
      static_cast<void>(::poll(what.data(), what.size(), patience));
      if (what[0].revents != 0)
        return nullptr;
      for (auto& x : callers) {
        const auto who = listen_to(x);
        if (who == standing::node) {
          if (auto* const joined = streams_.join(x.words, std::move(x.stream))) {
            if (streams_.count() == 1)
              return joined;
            serve_in_thread(*joined);
          }
        }
        if (who != standing::unknown)
          x.stream = {};
      }
      std::erase_if(callers, [](const caller& x) { return !x.stream; });
      for (std::size_t i = 0; i < listening_.size(); ++i)
        if (what[1 + i].revents != 0 && !accept(listening_[i], callers))
          accept_pauses = true;
    }
  }

  /// False without a descriptor for it.
  bool accept(const listener& from, std::vector<caller>& callers) const {
    auto stream = tcp_stream::accept(from.descriptor.get());
    if (!stream)
      return false;
    if (may_come(stream.peer_address()) && (!encrypted_ || stream.encrypt(tcp_stream::role::answers, token_)))
      callers.push_back({std::move(stream), {}, 0, time_source::now() + hello_time});
    return true;
  }

  /// Without a thread the connection ends, and the node uses the others.
  void serve_in_thread(served_stream& x) {
    // The thread of the one before has left it, and returns.
    if (auto before = more_threads_.extract(x.number); !before.empty())
      before.mapped().join();
    auto started = start_exposer([this, &x] {
      block_broken_pipes();
      serve(x);
    });
    if (started)
      more_threads_.emplace(x.number, std::move(*started));
    else
      streams_.leave(x);
  }

  bool may_come(const std::optional<host_address>& address) const {
    return address && std::ranges::find(from_, *address) != from_.end();
  }

  enum class standing : std::uint8_t { unknown, stranger, node };

  standing listen_to(caller& x) const {
    const std::array<iovec, 1> rest{piece_of(bytes_of(x.words).subspan(x.heard))};
    const auto got = x.stream.read(rest);
    x.heard += got.bytes;
    if (got.ended || x.until < time_source::now())
      return standing::stranger;
    if (x.heard < sizeof x.words)
      return standing::unknown;
    return x.words.protocol == hello::this_protocol && same_token(x.words.token, token_) ? standing::node
                                                                                         : standing::stranger;
  }

  void serve(served_stream& node) {
    order what;
    while (read_all(node, bytes_of(what)) && carry_out(node, what)) {
    }
    streams_.leave(node);
  }

  bool carry_out(served_stream& node, const order& what) {
    if (!is_sound(what, memory_.bytes().size()))
      return false;
    answer done{what.kind, what.number, what.length};
    std::array<iovec, 2> reply{piece_of(bytes_of(done)), iovec{nullptr, 0}};
    if (what.kind == order_kind::end_stream)
      return streams_.end(node, stream_name::of_offset(what.offset)) && write_all(node, reply);
    const auto place = memory_.bytes().subspan(what.offset, what.length);
    if (what.kind == order_kind::get)
      reply[1] = piece_of(place);
    return (what.kind != order_kind::put || read_all(node, place)) && write_all(node, reply);
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

  bool read_all(served_stream& node, std::span<std::byte> into) const {
    while (!into.empty()) {
      if (node.is_ending())
        return false;
      const std::array<iovec, 1> rest{piece_of(into)};
      const auto got = node.stream.read(rest);
      if (got.ended)
        return false;
      if (got.bytes == 0)
        wait(node.stream, false);
      into = into.subspan(got.bytes);
    }
    return !node.is_ending();
  }

  bool write_all(served_stream& node, std::span<iovec> from) const {
    while (!from.empty()) {
      if (from.front().iov_len == 0) {
        from = from.subspan(1);
        continue;
      }
      if (node.is_ending())
        return false;
      const auto put = node.stream.write(from);
      if (put.ended)
        return false;
      if (put.bytes == 0)
        wait(node.stream, true);
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
  std::vector<listener> listening_;
  /// Ends the waits of all threads.
  unique_descriptor stop_;
  connection_token token_;
  bool encrypted_;
  std::vector<host_address> from_;
  remote_memory_name name_;
  exposed_streams streams_;
  std::thread thread_;
  /// By the number of their connection. Changed by the first thread, until it has ended.
  std::map<std::uint32_t, std::thread> more_threads_;
};

class tcp_exposer final : public memory_exposer {
public:
  tcp_exposer(std::vector<host_address> addresses, bool encrypted, std::uint32_t streams)
      : addresses_(std::move(addresses)), encrypted_(encrypted), streams_(chosen_streams(streams, addresses_.size())) {}

  result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const host_address> from) override {
    if (bytes == 0 || bytes % page_alignment != 0)
      return fail(errc::invalid_argument, "exposed memory must be whole pages");
    connection_token token;
    if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
      return tl::unexpected<error>(system_error(errno, "cannot generate a token"));
    auto memory = private_memory::get(bytes);
    if (!memory)
      return tl::unexpected<error>(std::move(memory.error()));
    if (addresses_.empty() || addresses_.size() > addresses_most)
      return fail(errc::invalid_argument, "memory is exposed at 1 to " + std::to_string(addresses_most) + " addresses");
    std::vector<listener> listening;
    for (const auto& x : addresses_) {
      auto made = listen_on(x);
      if (!made)
        return tl::unexpected<error>(std::move(made.error()));
      listening.push_back(std::move(*made));
    }
    const auto out =
        std::make_shared<tcp_exposed_memory>(std::move(*memory), std::move(listening), token, encrypted_, streams_,
                                             std::vector<host_address>(from.begin(), from.end()));
    if (auto started = out->start(); !started)
      return tl::unexpected<error>(std::move(started.error()));
    return out;
  }

private:
  std::vector<host_address> addresses_;
  bool encrypted_;
  std::uint32_t streams_;
};

} // namespace

std::shared_ptr<memory_exposer> make_tcp_exposer(std::vector<host_address> addresses, bool encrypted,
                                                 std::uint32_t streams) {
  return std::make_shared<tcp_exposer>(std::move(addresses), encrypted, streams);
}

} // namespace troupe::io
