#pragma once

#include "io/memory/remote_memory.hpp"
#include "tests/catch.hpp"

#include <future>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::test {

inline constexpr auto loopback = host_address::ipv4_loopback();

/// The node's end of exposed memory, with blocking calls.
struct remote_end_of {
  remote_end_of(std::shared_ptr<io::remote_mover> by, const io::remote_memory_name& name) : mover(std::move(by)) {
    // The callback may run after this object is destroyed.
    auto connected = mover->connect(name, [notified = lost](const error& why) { notified->set_value(why); });
    REQUIRE(connected);
    peer = *connected;
  }

  std::future<result<void>> begin(io::remote_direction direction, std::vector<io::remote_move> moves) const {
    auto ended = std::make_shared<std::promise<result<void>>>();
    auto out = ended->get_future();
    peer->move(direction, std::move(moves), [ended](result<void> x) { ended->set_value(std::move(x)); });
    return out;
  }
  result<void> move(io::remote_direction direction, std::vector<io::remote_move> moves) const {
    return begin(direction, std::move(moves)).get();
  }
  void close() const {
    std::promise<void> closed;
    peer->close([&] { closed.set_value(); });
    closed.get_future().get();
  }

  std::shared_ptr<std::promise<error>> lost = std::make_shared<std::promise<error>>();
  std::shared_ptr<io::remote_mover> mover;
  std::shared_ptr<io::remote_peer> peer;
};

inline std::vector<std::byte> byte_pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::byte>((i * 131 + seed) >> 3U);
  return out;
}

} // namespace troupe::test
