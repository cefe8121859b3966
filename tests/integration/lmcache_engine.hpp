#pragma once

#include "tests/catch.hpp"
#include "tests/integration/lmcache_client.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

namespace lmcache_operation {

/// The operation numbers of the protocol.
enum number : std::uint8_t {
  lookup = 8,
  query = 9,
  wait_status = 10,
  free_locks = 12,
  end_session = 13,
  register_worker = 14,
  unregister = 15,
  prepare_store = 16,
  commit_store = 17,
  prepare_retrieve = 18,
  commit_retrieve = 19,
  clear = 20,
  chunk_size = 21,
  ping = 22,
};

} // namespace lmcache_operation

inline nlohmann::json lmcache_registration(std::int64_t instance, std::uint32_t hidden = 64, std::uint32_t world = 1) {
  return {{"instance_id", instance}, {"model_name", "m"}, {"world_size", world},
          {"block_size", 8},         {"num_layers", 2},   {"hidden_dim_size", hidden},
          {"dtype_str", "bfloat16"}, {"use_mla", false},  {"num_physical_slots", lmcache_chunk}};
}

/// An engine's scheduler and one worker of it, which copies itself: both have a connection of their own.
struct lmcache_engine {
  using json = nlohmann::json;

  /// The shape of a worker: how many values its tokens have, and its rank and world size.
  struct shape {
    std::uint32_t hidden = 64;
    std::uint32_t world = 1;
    std::uint32_t rank = 0;
  };

  std::uint16_t port;
  std::int64_t instance;
  shape of;
  /// Speaks as LMCache 0.5.7 does, and else as 0.5.6.
  bool newer = false;
  lmcache_client scheduler{port};
  lmcache_client worker{port};
  std::unique_ptr<lmcache_pool> pool{};
  std::uint32_t requests = 0;

  lmcache_engine(std::uint16_t at, std::int64_t id, shape how, bool as_newer = false)
      : port(at), instance(id), of(how), newer(as_newer) {
    if (newer)
      CHECK(scheduler.call("negotiate_chunk_size", {8}) == lmcache_chunk);
    else
      CHECK(scheduler.call(lmcache_operation::chunk_size) == lmcache_chunk);
    enroll();
  }
  lmcache_engine(std::uint16_t at, std::int64_t id, std::uint32_t hidden = 64)
      : lmcache_engine(at, id, shape{hidden, 1, 0}) {}

  void enroll() {
    auto registration = lmcache_registration(instance, of.hidden, of.world);
    if (newer)
      registration["group_layouts"] = json::array();
    const auto notified = worker.call(lmcache_operation::register_worker, {registration});
    REQUIRE(notified);
    REQUIRE(notified->at("pool_size").get<std::size_t>() > 0);
    pool = std::make_unique<lmcache_pool>(notified->at("shm_name").get<std::string>(),
                                          notified->at("pool_size").get<std::size_t>());
  }

  std::string new_request() { return "r-" + std::to_string(instance) + "-" + std::to_string(++requests); }

  json key_of(std::uint32_t sequence, const std::string& request, std::uint32_t begin, std::uint32_t end,
              std::optional<std::uint32_t> rank) const {
    auto key = lmcache_key(sequence, request, begin, end, rank, of.world);
    return newer ? lmcache_key_of_0_5_7(std::move(key)) : key;
  }

  /// Stores the missing ones of the leading chunks; whether the store was committed.
  bool store(std::uint32_t sequence, std::uint32_t chunks) {
    const auto key = key_of(sequence, new_request(), 0, chunks, of.rank);
    std::vector<json> payloads{key, instance};
    if (newer)
      payloads.push_back(json::array());
    const auto notified = worker.call(lmcache_operation::prepare_store, payloads);
    REQUIRE(notified);
    const auto& context = notified->at("context");
    if (!context.contains("slots"))
      return false;
    if (context.at("slots").empty())
      return true;
    for (std::size_t i = 0; i < context.at("slots").size(); ++i)
      pool->fill(context["slots"][i], value_of(sequence, context["chunk_indices"][i].get<std::uint32_t>()));
    return worker.call(lmcache_operation::commit_store, {key, instance, json::binary({})}) == true;
  }

  void begin_lookup(std::uint32_t sequence, std::uint32_t chunks, const std::string& request) {
    CHECK_FALSE(
        scheduler.call(lmcache_operation::lookup, {key_of(sequence, request, 0, chunks, std::nullopt), of.world}));
  }
  std::uint32_t found_by(const std::string& request) {
    for (;;)
      if (const auto found = scheduler.call(lmcache_operation::query, {request}))
        return found->get<std::uint32_t>();
  }
  std::uint32_t look_up(std::uint32_t sequence, std::uint32_t chunks, const std::string& request) {
    begin_lookup(sequence, chunks, request);
    return found_by(request);
  }

  /// Whether all of it was found, and right.
  bool retrieve(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end, const std::string& request) {
    const auto key = key_of(sequence, request, begin, end, of.rank);
    const auto notified = worker.call(lmcache_operation::prepare_retrieve, {key, instance});
    REQUIRE(notified);
    const bool right = notified->at("success") == true;
    if (right) {
      const auto& slots = notified->at("context").at("slots");
      REQUIRE(slots.size() == end - begin);
      for (std::uint32_t i = 0; i < slots.size(); ++i)
        CHECK(pool->holds(slots[i], value_of(sequence, begin + i)));
    }
    CHECK(worker.call(lmcache_operation::commit_retrieve, {key, instance}) == right);
    return right;
  }

  /// The value of every byte of that page.
  std::uint8_t value_of(std::uint32_t sequence, std::uint32_t index) const {
    return static_cast<std::uint8_t>(1 + (sequence * 31 + index + of.rank * 101) % 250);
  }
};

} // namespace troupe::test
