#include "tests/integration/lmcache_client.hpp"

#include "tests/integration/process.hpp"
#include "tests/integration/support.hpp"

#include <algorithm>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <zmq.h>

namespace troupe::test {

namespace {

using nlohmann::json;

std::string packed_json(const json& x) {
  const auto bytes = json::to_msgpack(x);
  return {bytes.begin(), bytes.end()};
}

} // namespace

json lmcache_config(const std::filesystem::path& directory, const char* durability) {
  auto out = node_config(directory);
  out["lmcache"] = {{"enabled", true}, {"port", 0}, {"chunk_tokens", lmcache_chunk}};
  out["storage"] = {{"disk_bytes", "256 MiB"}, {"ranks", json::array()}};
  out["memory"] = {{"bytes", "64 MiB"}};
  out["namespaces"] = json::array();
  out["registry"]["durability"] = durability;
  return out;
}

std::uint16_t lmcache_port(const std::string& ready_line) {
  return json::parse(ready_line)["lmcache"]["port"].get<std::uint16_t>();
}

json lmcache_key(std::uint32_t sequence, const std::string& request, std::uint32_t begin, std::uint32_t end,
                 std::optional<std::uint32_t> worker, std::uint32_t world) {
  json tokens = json::array();
  for (std::uint32_t i = 0; i < end * lmcache_chunk; ++i)
    tokens.push_back(sequence * 1000 + i);
  return {{"model_name", "m"},
          {"world_size", world},
          {"worker_id", worker ? json(*worker) : json(nullptr)},
          {"token_ids", std::move(tokens)},
          {"start", begin * lmcache_chunk},
          {"end", end * lmcache_chunk},
          {"request_id", request},
          {"cache_salt", ""},
          {"request_configs", nullptr},
          {"num_kv_readers", 1}};
}

json lmcache_key_of_0_5_7(json key) {
  std::vector<std::uint8_t> words;
  for (const auto& token : key.at("token_ids"))
    for (const auto shift : {24U, 16U, 8U, 0U})
      words.push_back(static_cast<std::uint8_t>(token.get<std::uint32_t>() >> shift));
  key.erase("token_ids");
  key["token_bytes"] = json::binary(std::move(words));
  return key;
}

struct lmcache_client::implementation {
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_DEALER);
  std::uint64_t last = 0;

  ~implementation() {
    const int now = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &now, sizeof now);
    zmq_close(socket);
    zmq_ctx_term(context);
  }
};

lmcache_client::lmcache_client(std::uint16_t port) : x_(std::make_unique<implementation>()) {
  check_call(zmq_connect(x_->socket, ("tcp://127.0.0.1:" + std::to_string(port)).c_str()) == 0, "zmq_connect");
}

lmcache_client::lmcache_client(lmcache_client&&) noexcept = default;
lmcache_client& lmcache_client::operator=(lmcache_client&&) noexcept = default;
lmcache_client::~lmcache_client() = default;

void lmcache_client::send_frames(const std::vector<std::string>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    check_call(zmq_send(x_->socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0) >= 0,
               "zmq_send");
}

std::uint64_t lmcache_client::send(const json& operation, const std::vector<json>& payloads) {
  std::vector<std::string> frames{packed_json(++x_->last), packed_json(operation)};
  for (const auto& x : payloads)
    frames.push_back(packed_json(x));
  send_frames(frames);
  return x_->last;
}

std::optional<lmcache_client::answer> lmcache_client::receive(std::chrono::milliseconds limit) {
  const int time = static_cast<int>(limit.count());
  zmq_setsockopt(x_->socket, ZMQ_RCVTIMEO, &time, sizeof time);
  std::vector<std::string> frames;
  for (int more = 1; more != 0;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, x_->socket, 0) < 0) {
      zmq_msg_close(&frame);
      return std::nullopt;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    more = zmq_msg_more(&frame);
    zmq_msg_close(&frame);
  }
  if (frames.size() < 2 || frames.size() > 3)
    throw std::runtime_error("an answer has " + std::to_string(frames.size()) + " frames");
  answer out;
  // A request number may have been malformed.
  const auto number = json::from_msgpack(frames[0], true, false);
  out.number = number.is_number_unsigned() ? number.get<std::uint64_t>() : 0;
  if (frames.size() == 3)
    out.value = json::from_msgpack(frames[2]);
  return out;
}

std::optional<json> lmcache_client::call(const json& operation, const std::vector<json>& payloads) {
  const auto number = send(operation, payloads);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until)
    if (auto x = receive(std::chrono::seconds(1)); x && x->number == number)
      return std::move(x->value);
  throw std::runtime_error("no answer to " + operation.dump());
}

pid_t start_forked(const std::function<bool()>& work) {
  const auto child = ::fork();
  check_call(child >= 0, "fork");
  if (child > 0)
    return child;
  bool fine = false;
  try {
    fine = work();
  } catch (const std::exception&) {
    fine = false;
  }
  ::_exit(fine ? 0 : 1);
}

int end_of(pid_t child) {
  int status = 0;
  check_call(::waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

lmcache_pool::lmcache_pool(const std::string& name, std::size_t bytes) {
  const int file = ::shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0);
  check_call(file >= 0, "shm_open");
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  check_call(at != MAP_FAILED, "mmap");
  memory_ = {static_cast<std::byte*>(at), bytes};
}

lmcache_pool::~lmcache_pool() {
  ::munmap(memory_.data(), memory_.size());
}

std::span<std::byte> lmcache_pool::slot(const json& slot) {
  return memory_.subspan(slot.at("offset").get<std::size_t>(), slot.at("length").get<std::size_t>());
}

void lmcache_pool::fill(const json& place, std::uint8_t value) {
  std::ranges::fill(slot(place), std::byte{value});
}

bool lmcache_pool::holds(const json& place, std::uint8_t value) {
  return std::ranges::all_of(slot(place), [&](std::byte x) { return x == std::byte{value}; });
}

} // namespace troupe::test
