// Loads any server of LMCache's multi-process mode as clients of that protocol do: engine-driven, through shared
// memory. bench/lmcache/run.py runs it. Prints one line of JSON.

#include "lmcache/protocol/msgpack_reader.hpp"
#include "lmcache/protocol/msgpack_writer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <zmq.h>

namespace {

using troupe::lmcache::protocol::msgpack_reader;
using troupe::lmcache::protocol::msgpack_writer;
using bench_clock = std::chrono::steady_clock;

constexpr std::uint32_t chunk_tokens = 256;

[[noreturn]] void stop_with(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

double seconds_since(bench_clock::time_point from) {
  return std::chrono::duration<double>(bench_clock::now() - from).count();
}

class client {
public:
  client(void* context, const std::string& port) : socket_(zmq_socket(context, ZMQ_DEALER)) {
    const int linger = 0;
    const int limit = 60000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &limit, sizeof limit);
    if (zmq_connect(socket_, ("tcp://127.0.0.1:" + port).c_str()) != 0)
      stop_with("cannot connect");
  }
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  ~client() { zmq_close(socket_); }

  /// Returns the third frame of the answer, empty where there is none.
  std::string call(std::uint64_t operation, const std::vector<std::string>& payloads) {
    send(msgpack_writer().natural(++last_).take(), true);
    send(msgpack_writer().natural(operation).take(), !payloads.empty());
    for (std::size_t i = 0; i < payloads.size(); ++i)
      send(payloads[i], i + 1 < payloads.size());
    std::string out;
    int part = 0;
    for (int more = 1; more != 0; ++part) {
      zmq_msg_t frame;
      zmq_msg_init(&frame);
      if (zmq_msg_recv(&frame, socket_, 0) < 0)
        stop_with("no answer to operation " + std::to_string(operation));
      if (part == 2)
        out.assign(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      more = zmq_msg_more(&frame);
      zmq_msg_close(&frame);
    }
    return out;
  }

private:
  void send(const std::string& frame, bool more) {
    if (zmq_send(socket_, frame.data(), frame.size(), more ? ZMQ_SNDMORE : 0) < 0)
      stop_with("cannot send");
  }

  void* socket_;
  std::uint64_t last_ = 0;
};

std::string key_of(std::uint32_t sequence, std::uint32_t tokens, bool of_worker, const std::string& request) {
  const auto end = tokens / chunk_tokens * chunk_tokens;
  msgpack_writer out;
  out.map(10).text("model_name").text("bench").text("world_size").natural(1).text("worker_id");
  of_worker ? out.natural(0) : out.nil();
  out.text("token_ids").array(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i)
    out.natural((sequence * 7919 + i) % 120000);
  out.text("start").natural(0).text("end").natural(end).text("request_id").text(request);
  out.text("cache_salt").text("").text("request_configs").nil().text("num_kv_readers").natural(1);
  return out.take();
}

struct slot {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// The slots in an answer to prepare_store or prepare_retrieve.
std::vector<slot> slots_of(const std::string& answer) {
  std::vector<slot> out;
  msgpack_reader in(std::as_bytes(std::span(answer)));
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    if (in.text() != "context") {
      in.skip();
      continue;
    }
    for (auto parts = in.map(); parts > 0 && in.ok(); --parts) {
      if (in.text() != "slots") {
        in.skip();
        continue;
      }
      for (auto count = in.array(); count > 0 && in.ok(); --count) {
        auto& x = out.emplace_back();
        for (auto each = in.map(); each > 0 && in.ok(); --each) {
          const auto name = in.text();
          if (name == "offset")
            x.offset = in.natural();
          else if (name == "length")
            x.length = in.natural();
          else
            in.skip();
        }
      }
    }
  }
  return out;
}

struct worker {
  client protocol;
  std::string instance;
  std::span<std::byte> pool;

  worker(void* context, const std::string& port, std::uint32_t hidden) : protocol(context, port) {
    const auto id = static_cast<std::uint64_t>(::getpid());
    instance = msgpack_writer().natural(id).take();
    msgpack_writer said;
    said.map(9).text("instance_id").natural(id).text("model_name").text("bench").text("world_size").natural(1);
    said.text("block_size").natural(128).text("num_layers").natural(4).text("hidden_dim_size").natural(hidden);
    said.text("dtype_str")
        .text("bfloat16")
        .text("use_mla")
        .boolean(true)
        .text("num_physical_slots")
        .natural(chunk_tokens);
    const auto answer = protocol.call(14, {said.take()});
    msgpack_reader in(std::as_bytes(std::span(answer)));
    std::string name;
    std::uint64_t bytes = 0;
    for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
      const auto field = in.text();
      if (field == "shm_name")
        name = in.text();
      else if (const auto value = in.natural(); field == "pool_size")
        bytes = value;
    }
    const int file = ::shm_open(("/" + name.substr(name.starts_with('/') ? 1 : 0)).c_str(), O_RDWR, 0);
    void* const at = file < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
      stop_with("cannot map the shared memory '" + name + "'");
    ::close(file);
    pool = {static_cast<std::byte*>(at), bytes};
  }

  /// Returns the number of stored bytes.
  std::uint64_t store(const std::string& key, const std::vector<std::byte>& from) {
    std::uint64_t bytes = 0;
    const auto answer = protocol.call(16, {key, instance});
    for (const auto& x : slots_of(answer)) {
      std::memcpy(pool.data() + x.offset, from.data(), x.length);
      bytes += x.length;
    }
    if (bytes > 0 && protocol.call(17, {key, instance, msgpack_writer().bytes("").take()}) != "\xc3")
      return 0;
    return bytes;
  }

  std::uint64_t retrieve(const std::string& key, std::vector<std::byte>& to) {
    std::uint64_t bytes = 0;
    const auto answer = protocol.call(18, {key, instance});
    for (const auto& x : slots_of(answer)) {
      std::memcpy(to.data(), pool.data() + x.offset, x.length);
      bytes += x.length;
    }
    protocol.call(19, {key, instance});
    return bytes;
  }
};

double at_share(std::vector<double>& all, double share) {
  if (all.empty())
    return 0;
  std::ranges::sort(all);
  return all[std::min(all.size() - 1, static_cast<std::size_t>(share * static_cast<double>(all.size())))];
}

std::uint64_t number_in(const std::string& answer) {
  msgpack_reader in(std::as_bytes(std::span(answer)));
  return in.natural();
}

/// Answers every request without parsing it: the least that a server of this protocol can do. A status says that all
/// chunks of so many tokens are cached. Runs until the process is ended.
void echo(void* context, const std::string& port, std::uint32_t tokens) {
  void* const socket = zmq_socket(context, ZMQ_ROUTER);
  if (zmq_bind(socket, ("tcp://127.0.0.1:" + port).c_str()) != 0)
    stop_with("cannot listen");
  const auto all = msgpack_writer().natural(tokens / chunk_tokens).take();
  for (;;) {
    // The frames are the sender, the number of the request, the operation, and its payload.
    std::array<std::string, 3> head;
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    std::size_t part = 0;
    do {
      if (zmq_msg_recv(&frame, socket, 0) < 0)
        stop_with("cannot receive");
      if (part < head.size())
        head[part].assign(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      ++part;
    } while (zmq_msg_more(&frame) != 0);
    zmq_msg_close(&frame);
    for (const auto& x : head)
      zmq_send(socket, x.data(), x.size(), ZMQ_SNDMORE);
    zmq_send(socket, all.data(), all.size(), 0);
  }
}

/// A worker that has stored the chunks that are looked up. A server may keep its pages only while it is connected.
std::unique_ptr<worker> storing(void* context, const std::string& port, std::uint32_t tokens) {
  auto out = std::make_unique<worker>(context, port, 32);
  const std::vector<std::byte> page(std::size_t{4} * chunk_tokens * 32 * 2);
  // In parts: servers limit the open chunks of a worker.
  for (std::uint32_t part = 1; part * 16 * chunk_tokens < tokens + 16 * chunk_tokens; ++part)
    out->store(key_of(1, std::min(tokens, part * 16 * chunk_tokens), true, "s" + std::to_string(part)), page);
  return out;
}

/// Each client repeats a lookup, its status and the end of the request.
void measure_lookups(void* context, const std::string& port, std::uint32_t clients, std::uint32_t tokens,
                     double seconds) {
  std::vector<std::vector<double>> times(clients);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < clients; ++i)
    threads.emplace_back([&, i] {
      client mine(context, port);
      const auto request = "r" + std::to_string(i);
      const auto key = key_of(1, tokens, false, request);
      const auto name = msgpack_writer().text(request).take();
      const auto ranks = msgpack_writer().natural(1).take();
      while (!stop) {
        const auto began = bench_clock::now();
        mine.call(8, {key, ranks});
        std::string found;
        while ((found = mine.call(9, {name})).empty()) {
        }
        mine.call(13, {name});
        times[i].push_back(seconds_since(began));
        wrong += number_in(found) == tokens / chunk_tokens ? 0U : 1U;
      }
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (auto& x : threads)
    x.join();
  std::vector<double> all;
  for (const auto& x : times)
    all.insert(all.end(), x.begin(), x.end());
  const auto count = all.size();
  std::printf("{\"per_second\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"wrong\": %llu}\n",
              static_cast<double>(count) / seconds, 1e3 * at_share(all, 0.5), 1e3 * at_share(all, 0.99),
              static_cast<unsigned long long>(wrong.load()));
}

/// Stores prompts of 16 chunks, 4 MiB each, and reads them again.
void measure_transfers(void* context, const std::string& port, std::uint32_t rounds) {
  constexpr std::uint32_t hidden = 2048;
  constexpr std::uint32_t chunks = 16;
  worker one(context, port, hidden);
  std::vector<std::byte> page(std::size_t{4} * chunk_tokens * hidden * 2, std::byte{7});
  std::vector<std::string> keys;
  for (std::uint32_t i = 0; i < rounds; ++i)
    keys.push_back(key_of(100 + i, chunks * chunk_tokens, true, "t" + std::to_string(i)));
  std::uint64_t stored = 0;
  auto began = bench_clock::now();
  for (const auto& key : keys)
    stored += one.store(key, page);
  const auto store_seconds = seconds_since(began);
  double retrieve_seconds = 0;
  std::uint64_t read = 0;
  client scheduler(context, port);
  for (std::uint32_t i = 0; i < rounds; ++i) {
    // LMCache reads only chunks that a lookup has locked.
    const auto request = "t" + std::to_string(i);
    const auto name = msgpack_writer().text(request).take();
    scheduler.call(8, {key_of(100 + i, chunks * chunk_tokens, false, request), msgpack_writer().natural(1).take()});
    while (scheduler.call(9, {name}).empty()) {
    }
    began = bench_clock::now();
    read += one.retrieve(keys[i], page);
    retrieve_seconds += seconds_since(began);
    scheduler.call(13, {name});
  }
  std::printf("{\"store_gb_per_s\": %.3f, \"retrieve_gb_per_s\": %.3f, \"stored\": %llu, \"read\": %llu}\n",
              static_cast<double>(stored) / store_seconds / 1e9, static_cast<double>(read) / retrieve_seconds / 1e9,
              static_cast<unsigned long long>(stored), static_cast<unsigned long long>(read));
}

} // namespace

int main(int count, char** words) {
  const std::vector<std::string> x(words + 1, words + count);
  void* const context = zmq_ctx_new();
  const auto number = [&x](std::size_t i) { return static_cast<std::uint32_t>(std::stoul(x[i])); };
  if (x.size() == 3 && x[0] == "echo")
    echo(context, x[1], number(2));
  else if (x.size() == 5 && (x[0] == "lookup" || x[0] == "lookup-echo")) {
    const auto stored = x[0] == "lookup" ? storing(context, x[1], number(3)) : nullptr;
    measure_lookups(context, x[1], number(2), number(3), std::stod(x[4]));
  } else if (x.size() == 3 && x[0] == "transfer")
    measure_transfers(context, x[1], static_cast<std::uint32_t>(std::stoul(x[2])));
  else
    stop_with("usage: troupe-bench-lmcache lookup PORT CLIENTS TOKENS SECONDS | transfer PORT ROUNDS | "
              "echo PORT TOKENS | lookup-echo PORT CLIENTS TOKENS SECONDS");
  zmq_ctx_term(context);
}
