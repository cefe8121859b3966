#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace troupe::test {

/// The chunk size of the nodes that these tests start.
inline constexpr std::uint32_t lmcache_chunk = 16;

nlohmann::json lmcache_config(const std::filesystem::path& directory, const char* durability = "none");
/// The port in its ready line.
std::uint16_t lmcache_port(const std::string& ready_line);

/// Chunks from `begin` to before `end` of a sequence, whose number begins its tokens: two of them share nothing.
nlohmann::json lmcache_key(std::uint32_t sequence, const std::string& request, std::uint32_t begin, std::uint32_t end,
                           std::optional<std::uint32_t> worker = std::nullopt, std::uint32_t world = 1);

/// The key as LMCache 0.5.7 writes it.
nlohmann::json lmcache_key_of_0_5_7(nlohmann::json key);

/// Speaks as a client of LMCache's multi-process mode does, over ZeroMQ and with another writer of MessagePack than the
/// node's. What it is not answered in time, it throws.
class lmcache_client {
public:
  using json = nlohmann::json;

  explicit lmcache_client(std::uint16_t port);
  lmcache_client(lmcache_client&&) noexcept;
  lmcache_client& operator=(lmcache_client&&) noexcept;
  ~lmcache_client();

  /// The value of the answer; nothing if it has none.
  std::optional<json> call(const json& operation, const std::vector<json>& payloads = {});

  /// Sends, and waits for nothing. What it is to be answered under.
  std::uint64_t send(const json& operation, const std::vector<json>& payloads);
  /// Frames as they are.
  void send_frames(const std::vector<std::string>& frames);
  /// The next answer: its number, 0 if that was none, and its value, or nothing within this time.
  struct answer {
    std::uint64_t number = 0;
    std::optional<json> value;
  };
  std::optional<answer> receive(std::chrono::milliseconds limit);

private:
  struct implementation;
  std::unique_ptr<implementation> x_;
};

/// Runs it in a process of its own, which ends with its end: with 0 where it said true.
pid_t start_forked(const std::function<bool()>& work);
/// Waits for it; its status.
int end_of(pid_t child);

/// The shared memory of a node, as a worker sees it.
class lmcache_pool {
public:
  lmcache_pool(const std::string& name, std::size_t bytes);
  lmcache_pool(const lmcache_pool&) = delete;
  lmcache_pool& operator=(const lmcache_pool&) = delete;
  ~lmcache_pool();

  std::span<std::byte> slot(const nlohmann::json& slot);
  void fill(const nlohmann::json& slot, std::uint8_t value);
  /// Whether every byte of it has this value.
  bool holds(const nlohmann::json& slot, std::uint8_t value);

private:
  std::span<std::byte> memory_;
};

} // namespace troupe::test
