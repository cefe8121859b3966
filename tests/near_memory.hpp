#pragma once

#include "io/memory/remote_memory.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

/// Both ends of a transport within one process and one thread: moves happen at once, or when the test says.

namespace troupe::test {

class near_network : public std::enable_shared_from_this<near_network> {
public:
  /// Moves wait for `go_on`, as on a network where nothing arrives.
  bool held = false;
  /// The peers that may connect to the memory that was exposed last.
  std::vector<host_address> admitted;
  std::size_t moves = 0;
  /// The progress of moves that have not ended, as peers report it.
  std::uint64_t trickled = 0;

  std::shared_ptr<io::memory_exposer> exposer() { return std::make_shared<exposing>(shared_from_this()); }
  std::shared_ptr<io::remote_mover> mover() { return std::make_shared<moving>(shared_from_this()); }

  std::size_t waiting() const noexcept { return waiting_.size(); }
  void go_on() {
    for (auto& x : std::exchange(waiting_, {}))
      carry_out(x);
  }

  /// As if all processes that exposed memory had died: their memory is lost, and peers are notified.
  void lose_all() {
    exposed_.clear();
    for (auto& [number, lost] : std::exchange(watchers_, {}))
      lost({errc::unreachable, "the other end is lost"});
    for (auto& x : std::exchange(waiting_, {}))
      x.end(fail(errc::unreachable, "the other end is lost"));
  }

private:
  struct waiting_moves {
    std::uint64_t peer = 0;
    std::uint8_t memory = 0;
    io::remote_direction direction{};
    std::vector<io::remote_move> moves;
    io::remote_end end;
  };

  class near_memory final : public io::exposed_memory {
  public:
    near_memory(std::shared_ptr<near_network> network, std::uint8_t number, std::uint64_t bytes)
        : network_(std::move(network)), bytes_(bytes) {
      name_ = {{number}, {number}, 0, bytes};
      network_->exposed_[number] = bytes_;
    }
    ~near_memory() override { network_->exposed_.erase(name_.address.front()); }
    std::span<std::byte> bytes() noexcept override { return bytes_; }
    const io::remote_memory_name& name() const noexcept override { return name_; }

  private:
    std::shared_ptr<near_network> network_;
    std::vector<std::byte> bytes_;
    io::remote_memory_name name_;
  };

  class exposing final : public io::memory_exposer {
  public:
    explicit exposing(std::shared_ptr<near_network> network) : network_(std::move(network)) {}
    result<std::shared_ptr<io::exposed_memory>> expose(std::uint64_t bytes,
                                                       std::span<const host_address> from) override {
      network_->admitted.assign(from.begin(), from.end());
      return std::make_shared<near_memory>(network_, ++network_->last_memory_, bytes);
    }

  private:
    std::shared_ptr<near_network> network_;
  };

  class near_peer final : public io::remote_peer {
  public:
    near_peer(std::shared_ptr<near_network> network, std::uint64_t number, std::uint8_t memory)
        : network_(std::move(network)), number_(number), memory_(memory) {}
    ~near_peer() override {
      near_peer::close([] {});
    }
    void move(io::remote_direction direction, std::vector<io::remote_move> moves, io::remote_end end) override {
      waiting_moves x{number_, memory_, direction, std::move(moves), std::move(end)};
      if (closed_)
        return x.end(fail(errc::unreachable, "closed"));
      if (network_->held)
        network_->waiting_.push_back(std::move(x));
      else
        network_->carry_out(x);
    }
    std::uint64_t progress() const noexcept override { return network_->trickled; }
    void close(std::function<void()> closed) override {
      closed_ = true;
      network_->watchers_.erase(number_);
      std::deque<waiting_moves> others;
      for (auto& x : std::exchange(network_->waiting_, {}))
        if (x.peer == number_)
          x.end(fail(errc::unreachable, "closed"));
        else
          others.push_back(std::move(x));
      network_->waiting_ = std::move(others);
      closed();
    }

  private:
    std::shared_ptr<near_network> network_;
    std::uint64_t number_;
    std::uint8_t memory_;
    bool closed_ = false;
  };

  class moving final : public io::remote_mover {
  public:
    explicit moving(std::shared_ptr<near_network> network) : network_(std::move(network)) {}
    result<std::shared_ptr<io::remote_peer>> connect(const io::remote_memory_name& name,
                                                     std::function<void(const error&)> lost) override {
      if (name.address.size() != 1)
        return fail(errc::invalid_argument, "this names no memory");
      network_->watchers_[++network_->last_peer_] = std::move(lost);
      return std::make_shared<near_peer>(network_, network_->last_peer_, name.address.front());
    }

  private:
    std::shared_ptr<near_network> network_;
  };

  void carry_out(waiting_moves& x) {
    const auto there = exposed_.find(x.memory);
    if (there == exposed_.end())
      return x.end(fail(errc::unreachable, "the other end is lost"));
    for (const auto& m : x.moves) {
      auto* const far = there->second.data() + m.there;
      auto* const here = m.here.data();
      const bool put = x.direction == io::remote_direction::put;
      std::memcpy(put ? far : here, put ? here : far, m.here.size());
      ++moves;
    }
    x.end({});
  }

  std::map<std::uint8_t, std::span<std::byte>> exposed_;
  std::map<std::uint64_t, std::function<void(const error&)>> watchers_;
  std::deque<waiting_moves> waiting_;
  std::uint8_t last_memory_ = 0;
  std::uint64_t last_peer_ = 0;
};

} // namespace troupe::test
