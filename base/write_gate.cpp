#include "base/write_gate.hpp"

#include <chrono>
#include <ctime>
#include <string>

namespace troupe {

timestamp boot_time() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return timestamp(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

const std::shared_ptr<const write_gate>& write_gate::always_open() {
  static const std::shared_ptr<const write_gate> gate = [] {
    auto made = std::make_shared<write_gate>();
    made->open_until(timestamp::max());
    return made;
  }();
  return gate;
}

void write_gate::open_until(timestamp until) noexcept {
  const auto wanted = until.time_since_epoch().count();
  for (auto known = until_.load(std::memory_order_seq_cst);
       known < wanted && !until_.compare_exchange_weak(known, wanted, std::memory_order_seq_cst);) {
  }
}

bool write_gate::is_open() const noexcept {
  // A gate that is always open does not need the time.
  if (until_.load(std::memory_order_seq_cst) == timestamp::max().time_since_epoch().count())
    return !is_shut();
  return is_open_at(boot_time());
}

bool write_gate::is_open_at(timestamp now) const noexcept {
  return !is_shut() && now.time_since_epoch().count() < until_.load(std::memory_order_seq_cst);
}

result<void> write_gate::check(std::string_view doing, errc code) const {
  if (is_open())
    return {};
  return fail(code, "cannot " + std::string(doing) + ": " + std::string(no_claim));
}

} // namespace troupe
