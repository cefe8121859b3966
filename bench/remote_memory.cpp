// Pages between two processes over TCP (`io/tcp`), beside raw sockets with as many connections. One process exposes its
// memory as a client does, the other one moves pages to it and from it as a node does. Each way and each number of
// connections is measured in every round, one after the other, and medians are printed: bandwidth, and the cores that
// each end uses per GB/s.

#include "base/unique_descriptor.hpp"
#include "bench/measuring.hpp"
#include "io/memory/private_memory.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "workload/replay/text_table.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using clock_type = std::chrono::steady_clock;

constexpr auto loopback = host_address::ipv4_loopback();

struct settings {
  std::uint64_t page_bytes = 2ULL << 20U;
  std::uint64_t request_bytes = 128ULL << 20U;
  std::uint64_t memory_bytes = 512ULL << 20U;
  double seconds = 0.5;
  int rounds = 5;
  std::vector<unsigned> streams{1};
  std::vector<std::string> ways{"raw", "clear", "encrypted"};
};

struct outcome {
  double rate = 0;
  double cores_here = 0;
  double cores_there = 0;
};

void write_all(int descriptor, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const auto n = ::send(descriptor, at, bytes, MSG_NOSIGNAL);
    if (n <= 0)
      die("cannot send");
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

/// False at the end of the connection.
bool read_all(int descriptor, void* into, std::size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const auto n = ::recv(descriptor, at, bytes, 0);
    if (n <= 0)
      return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

io::private_memory touched(std::uint64_t bytes) {
  auto out = value_or_die(io::private_memory::get(bytes));
  std::fill(out.bytes().begin(), out.bytes().end(), std::byte{1});
  return out;
}

/// The process that exposes memory. Each message to it is answered with the CPU time that it has used so far.
class other_process {
public:
  explicit other_process(const std::function<void(int)>& serve) {
    std::array<int, 2> both{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, both.data()) != 0)
      die("cannot make a pair of sockets");
    process_ = ::fork();
    if (process_ < 0)
      die("cannot start a process");
    if (process_ == 0) {
      ::close(both[0]);
      serve(both[1]);
      ::_exit(0);
    }
    ::close(both[1]);
    line_ = unique_descriptor(both[0]);
  }
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;
  ~other_process() {
    line_.reset();
    ::waitpid(process_, nullptr, 0);
  }

  int line() const { return line_.get(); }
  double cpu() const {
    const char ask = 'c';
    double out = 0;
    write_all(line_.get(), &ask, 1);
    if (!read_all(line_.get(), &out, sizeof out))
      die("the other process has ended");
    return out;
  }

private:
  pid_t process_ = -1;
  unique_descriptor line_;
};

/// Answers until the other end of the line is closed.
void answer_cpu(int line) {
  for (char ask = 0; read_all(line, &ask, 1);) {
    const auto used = cpu_seconds();
    write_all(line, &used, sizeof used);
  }
}

outcome timed(const other_process& other, double seconds, const std::function<std::uint64_t()>& move_some) {
  move_some();
  const auto here = cpu_seconds();
  const auto there = other.cpu();
  const auto begun = clock_type::now();
  std::uint64_t bytes = 0;
  double lasted = 0;
  do {
    bytes += move_some();
    lasted = std::chrono::duration<double>(clock_type::now() - begun).count();
  } while (lasted < seconds);
  const auto gigabytes = static_cast<double>(bytes) / 1e9;
  return {gigabytes / lasted, (cpu_seconds() - here) / gigabytes, (other.cpu() - there) / gigabytes};
}

// -- io/tcp -----------------------------------------------------------------------------------------------------------

void expose(int line, const settings& how, bool encrypted, unsigned streams) {
  const std::array from{loopback};
  const auto memory =
      value_or_die(io::make_tcp_exposer({loopback}, encrypted, streams)->expose(how.request_bytes, from));
  std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{1});
  const auto& name = memory->name();
  for (const auto* x : {&name.address, &name.key}) {
    const std::uint64_t size = x->size();
    write_all(line, &size, sizeof size);
    write_all(line, x->data(), x->size());
  }
  answer_cpu(line);
}

io::remote_memory_name heard_name(int line, const settings& how) {
  io::remote_memory_name out;
  out.bytes = how.request_bytes;
  for (auto* x : {&out.address, &out.key}) {
    std::uint64_t size = 0;
    if (!read_all(line, &size, sizeof size))
      die("the other process has ended");
    x->resize(size);
    read_all(line, x->data(), size);
  }
  return out;
}

class mover_pair {
public:
  mover_pair(const settings& how, bool encrypted, unsigned streams)
      : how_(how), other_([&](int line) { expose(line, how, encrypted, streams); }), memory_(touched(how.memory_bytes)),
        mover_(value_or_die(io::make_tcp_mover({0, encrypted, streams}))),
        peer_(value_or_die(mover_->connect(heard_name(other_.line(), how), [](const error&) {}))) {}

  outcome measure(io::remote_direction direction) {
    return timed(other_, how_.seconds, [&] {
      std::vector<io::remote_move> moves;
      for (std::uint64_t at = 0; at < how_.request_bytes; at += how_.page_bytes)
        moves.push_back({memory_.bytes().subspan((begin_ + at) % how_.memory_bytes, how_.page_bytes), at});
      begin_ = (begin_ + how_.request_bytes) % how_.memory_bytes;
      std::promise<result<void>> ended;
      peer_->move(direction, std::move(moves), [&](result<void> x) { ended.set_value(std::move(x)); });
      if (const auto x = ended.get_future().get(); !x)
        die(to_string(x.error()));
      return how_.request_bytes;
    });
  }

private:
  const settings& how_;
  other_process other_;
  io::private_memory memory_;
  std::shared_ptr<io::remote_mover> mover_;
  std::shared_ptr<io::remote_peer> peer_;
  std::uint64_t begin_ = 0;
};

// -- raw sockets ------------------------------------------------------------------------------------------------------

/// Accepts as many connections, and takes their bytes, a thread for each; an answer of one byte for each part.
void sink(int line, int listener, unsigned streams, std::uint64_t part) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < streams; ++i) {
    const int connection = ::accept(listener, nullptr, nullptr);
    threads.emplace_back([connection, part] {
      const auto memory = touched(part);
      while (read_all(connection, memory.bytes().data(), part))
        write_all(connection, "", 1);
      ::close(connection);
    });
  }
  answer_cpu(line);
  for (auto& x : threads)
    x.join();
}

class raw_pair {
public:
  raw_pair(const settings& how, unsigned streams)
      : how_(how), part_(how.request_bytes / streams), memory_(touched(how.memory_bytes)) {
    listener_ = unique_descriptor(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in name{};
    socklen_t size = sizeof name;
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(loopback.ipv4());
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener_.get(), 64) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
      die("cannot listen");
    other_ = std::make_unique<other_process>([&](int line) { sink(line, listener_.get(), streams, part_); });
    for (unsigned i = 0; i < streams; ++i) {
      connections_.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
      if (::connect(connections_.back().get(), reinterpret_cast<sockaddr*>(&name), size) != 0)
        die("cannot connect");
    }
  }

  outcome measure() {
    return timed(*other_, how_.seconds, [&] {
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < connections_.size(); ++i)
        threads.emplace_back([&, i] {
          const auto from = (begin_ + i * part_) % (how_.memory_bytes - part_);
          write_all(connections_[i].get(), memory_.bytes().data() + from, part_);
          char answer = 0;
          if (!read_all(connections_[i].get(), &answer, 1))
            die("the other process has ended");
        });
      for (auto& x : threads)
        x.join();
      begin_ = (begin_ + how_.request_bytes) % how_.memory_bytes;
      return part_ * connections_.size();
    });
  }

private:
  const settings& how_;
  std::uint64_t part_;
  io::private_memory memory_;
  unique_descriptor listener_;
  std::unique_ptr<other_process> other_;
  std::vector<unique_descriptor> connections_;
  std::uint64_t begin_ = 0;
};

// -- the table --------------------------------------------------------------------------------------------------------

struct row {
  std::string way;
  unsigned streams = 0;
  std::vector<outcome> puts{};
  std::vector<outcome> gets{};
};

void measure(row& x, const settings& how) {
  if (x.way == "raw") {
    x.puts.push_back(raw_pair(how, x.streams).measure());
    return;
  }
  mover_pair pair(how, x.way == "encrypted", x.streams);
  x.puts.push_back(pair.measure(io::remote_direction::put));
  x.gets.push_back(pair.measure(io::remote_direction::get));
}

std::string median(const std::vector<outcome>& all, double outcome::*what) {
  if (all.empty())
    return "-";
  std::vector<double> values;
  for (const auto& x : all)
    values.push_back(x.*what);
  std::ranges::sort(values);
  return fmt::format("{:.2f}", values[values.size() / 2]);
}

} // namespace

int main(int count, char** arguments) {
  settings how;
  std::uint64_t page_kibibytes = how.page_bytes >> 10U;
  std::uint64_t request_mebibytes = how.request_bytes >> 20U;
  CLI::App app("Pages between two processes over TCP, beside raw sockets with as many connections");
  app.add_option("--page-kibibytes", page_kibibytes, "size of a page");
  app.add_option("--request-mebibytes", request_mebibytes, "pages that move at once");
  app.add_option("--seconds", how.seconds, "of one measurement");
  app.add_option("--rounds", how.rounds, "number of rounds");
  app.add_option("--streams", how.streams, "connections of an attachment");
  app.add_option("--ways", how.ways, "raw, clear, encrypted");
  CLI11_PARSE(app, count, arguments);
  how.page_bytes = page_kibibytes << 10U;
  how.request_bytes = request_mebibytes << 20U;
  how.memory_bytes = std::max<std::uint64_t>(4 * how.request_bytes, 512ULL << 20U);
  std::vector<row> rows;
  for (const auto streams : how.streams)
    for (const auto& way : how.ways)
      rows.push_back({way, streams});
  for (int i = 0; i < how.rounds; ++i)
    for (auto& x : rows)
      measure(x, how);
  replay::text_table table(
      {"way", "connections", "put, GB/s", "cores per GB/s here", "there", "get, GB/s", "cores per GB/s here", "there"});
  for (const auto& x : rows)
    table.row({x.way, std::to_string(x.streams), median(x.puts, &outcome::rate), median(x.puts, &outcome::cores_here),
               median(x.puts, &outcome::cores_there), median(x.gets, &outcome::rate),
               median(x.gets, &outcome::cores_here), median(x.gets, &outcome::cores_there)});
  std::printf("%s", table.str().c_str());
}
