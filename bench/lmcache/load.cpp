// Loads any server of LMCache's multi-process mode as clients of that protocol do: workers that copy through the
// server's shared memory, and workers whose own memory the server copies. bench/lmcache/run.py runs it. Prints one line
// of JSON.

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
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
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

/// A worker whose blocks the server copies itself: a KV cache in shared memory that it names when it registers, with
/// tokens outside of heads, in blocks of 128 tokens, as vLLM's are on CPUs.
class driven_worker {
public:
  /// Room for one request; the first block is the engine's placeholder.
  driven_worker(void* context, const std::string& port, std::uint32_t hidden, std::uint32_t chunks)
      : protocol(context, port), values_(hidden / 2), blocks_(chunks * blocks_per_chunk + 1) {
    bytes_ = std::size_t{layers} * layer_elements() * 2;
    name_ = "/troupe-bench-lmcache-" + std::to_string(::getpid());
    const int file = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0)
      stop_with("cannot make shared memory");
    void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at == MAP_FAILED)
      stop_with("cannot map shared memory");
    std::memset(at, 7, bytes_);
    memory_ = at;
    instance = msgpack_writer().natural(static_cast<std::uint64_t>(::getpid())).take();
    std::string handles = msgpack_writer().array(layers).take();
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      handles += extension(handle(layer));
    msgpack_writer groups;
    groups.array(1).map(6).text("engine_group_id").natural(0).text("layer_indices").array(layers);
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      groups.natural(layer);
    groups.text("tokens_per_block").natural(block_tokens).text("sw_size_tokens").integer(-1);
    groups.text("extra_object_group_tag").natural(0).text("recurrent_state").boolean(false);
    protocol.call(1, {instance, handles, msgpack_writer().text("bench").take(), msgpack_writer().natural(1).take(),
                      msgpack_writer().text("vllm").take(),
                      msgpack_writer().map(1).text("kv_layout").text("NHD").take(), groups.take()});
    msgpack_writer all;
    all.array(1).array(blocks_ - 1);
    for (std::uint32_t block = 1; block < blocks_; ++block)
      all.natural(block);
    all_blocks_ = all.take();
  }
  driven_worker(const driven_worker&) = delete;
  driven_worker& operator=(const driven_worker&) = delete;
  ~driven_worker() {
    ::munmap(memory_, bytes_);
    ::shm_unlink(name_.c_str());
  }

  bool store(const std::string& key) {
    return is_done(protocol.call(6, {key, instance, all_blocks_, msgpack_writer().bytes("").take()}));
  }
  bool retrieve(const std::string& key) {
    return is_done(protocol.call(
        7, {key, instance, all_blocks_, msgpack_writer().bytes("").take(), msgpack_writer().natural(0).take()}));
  }

private:
  static constexpr std::uint32_t layers = 4;
  static constexpr std::uint32_t block_tokens = 128;
  static constexpr std::uint32_t blocks_per_chunk = chunk_tokens / block_tokens;

  /// The answer is the bytes of an event, and whether it was done.
  static bool is_done(const std::string& answer) { return answer.ends_with('\xc3'); }
  std::uint64_t layer_elements() const { return std::uint64_t{blocks_} * 2 * block_tokens * values_; }

  std::string handle(std::uint32_t layer) const {
    const std::array<std::uint64_t, 5> sizes{blocks_, 2, block_tokens, 1, values_};
    msgpack_writer out;
    out.map(5).text("type").text("cpu_shm").text("version").natural(1).text("metadata").map(5);
    out.text("dtype").text("bfloat16").text("shape").array(sizes.size());
    for (const auto size : sizes)
      out.natural(size);
    out.text("stride").array(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::uint64_t stride = 1;
      for (auto k = i + 1; k < sizes.size(); ++k)
        stride *= sizes[k];
      out.natural(stride);
    }
    out.text("storage_offset").natural(layer * layer_elements()).text("device_uuid").text("cpu");
    out.text("shm_name").text(name_).text("nbytes").natural(bytes_);
    return out.take();
  }

  /// An extension of type 1 with up to 65,535 bytes.
  static std::string extension(const std::string& of) {
    std::string out = "\xc8";
    out.push_back(static_cast<char>(of.size() >> 8U));
    out.push_back(static_cast<char>(of.size() & 0xffU));
    out.push_back('\x01');
    return out + of;
  }

public:
  client protocol;
  std::string instance;

private:
  std::uint32_t values_;
  std::uint32_t blocks_;
  std::size_t bytes_ = 0;
  std::string name_;
  void* memory_ = nullptr;
  std::string all_blocks_;
};

/// Prompts of so many chunks, which are stored and read again, one after the other.
struct transfer_load {
  std::uint32_t chunks = 0;
  std::uint32_t hidden = 0;
  std::uint32_t rounds = 0;
  /// The number of the first prompt: those with the same number are the same.
  std::uint32_t first = 0;

  std::uint64_t page_bytes() const { return std::uint64_t{4} * chunk_tokens * hidden * 2; }
  std::string key(std::uint32_t round, bool of_worker) const {
    return key_of(100 + first + round, chunks * chunk_tokens, of_worker, request(round));
  }
  static std::string request(std::uint32_t round) { return "t" + std::to_string(round); }
};

/// `store` and `retrieve` take a key, and return the number of moved bytes.
template <class Store, class Retrieve>
void measure_transfers(void* context, const std::string& port, const transfer_load& load, Store store,
                       Retrieve retrieve) {
  std::vector<double> stores;
  std::vector<double> retrieves;
  std::uint64_t wrong = 0;
  const auto all_bytes = load.chunks * load.page_bytes();
  const auto timed = [&](auto& moves, const std::string& key, std::vector<double>& times) {
    const auto began = bench_clock::now();
    wrong += moves(key) == all_bytes ? 0U : 1U;
    times.push_back(seconds_since(began));
  };
  for (std::uint32_t i = 0; i < load.rounds; ++i)
    timed(store, load.key(i, true), stores);
  client scheduler(context, port);
  for (std::uint32_t i = 0; i < load.rounds; ++i) {
    // LMCache reads only chunks that a lookup has locked.
    const auto name = msgpack_writer().text(load.request(i)).take();
    scheduler.call(8, {load.key(i, false), msgpack_writer().natural(1).take()});
    while (scheduler.call(9, {name}).empty()) {
    }
    timed(retrieve, load.key(i, true), retrieves);
    scheduler.call(13, {name});
  }
  std::printf("{");
  for (const auto& [name, times] : {std::pair("store", &stores), std::pair("retrieve", &retrieves)}) {
    const auto seconds = std::accumulate(times->begin(), times->end(), 0.0);
    std::printf("\"%s_gb_per_s\": %.3f, \"%s_p50_ms\": %.4f, \"%s_p99_ms\": %.4f, ", name,
                static_cast<double>(all_bytes) * load.rounds / seconds / 1e9, name, 1e3 * at_share(*times, 0.5), name,
                1e3 * at_share(*times, 0.99));
  }
  std::printf("\"wrong\": %llu}\n", static_cast<unsigned long long>(wrong));
}

void measure_worker_copies(void* context, const std::string& port, const transfer_load& load) {
  worker one(context, port, load.hidden);
  std::vector<std::byte> page(load.page_bytes(), std::byte{7});
  measure_transfers(
      context, port, load, [&](const std::string& key) { return one.store(key, page); },
      [&](const std::string& key) { return one.retrieve(key, page); });
}

void measure_node_copies(void* context, const std::string& port, const transfer_load& load) {
  driven_worker one(context, port, load.hidden, load.chunks);
  const auto all = load.chunks * load.page_bytes();
  measure_transfers(
      context, port, load, [&](const std::string& key) { return one.store(key) ? all : 0; },
      [&](const std::string& key) { return one.retrieve(key) ? all : 0; });
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
  } else if (x.size() == 6 && x[0] == "worker-copies")
    measure_worker_copies(context, x[1], {number(2), number(3), number(4), number(5)});
  else if (x.size() == 6 && x[0] == "node-copies")
    measure_node_copies(context, x[1], {number(2), number(3), number(4), number(5)});
  else
    stop_with("usage: troupe-bench-lmcache lookup PORT CLIENTS TOKENS SECONDS | "
              "worker-copies PORT CHUNKS HIDDEN PROMPTS FIRST | node-copies PORT CHUNKS HIDDEN PROMPTS FIRST | "
              "echo PORT TOKENS | lookup-echo PORT CLIENTS TOKENS SECONDS");
  zmq_ctx_term(context);
}
