#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/transfer_messages.hpp"
#include "tests/simulation/device.hpp"

#include <cstdint>
#include <functional>

namespace troupe::simulation {

/// The engine's view of its client in a simulated world: its KV cache, and the actors to ask. Each request is answered
/// exactly once unless the process ends.
class engine_host {
public:
  virtual ~engine_host() = default;

  virtual std::uint32_t number() const noexcept = 0;
  virtual device& device_of(rank_number rank) = 0;
  /// Whether a request makes sense.
  virtual bool attached() const noexcept = 0;
  /// Counts attachments: equal before and after means the same one.
  virtual std::uint64_t epoch() const noexcept = 0;
  /// All the time that the process was paused.
  virtual duration paused() const = 0;
  /// Later, unless the process ends before.
  virtual void after(duration time, std::function<void()> run) = 0;

  virtual void lookup(const lookup_task& work, std::function<void(result<lookup_result>)> done) = 0;
  virtual void release(const ticket& lease) = 0;
  virtual void save(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) = 0;
  virtual void load(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) = 0;
  /// Cancels the saves, or loads, with this tag.
  virtual void cancel_save(rank_number rank, std::uint64_t tag, std::function<void()> done) = 0;
  virtual void cancel_load(rank_number rank, std::uint64_t tag, std::function<void()> done) = 0;
};

} // namespace troupe::simulation
