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

void write_gate::open_until(timestamp until) noexcept {
  const auto wanted = until.time_since_epoch().count();
  for (auto known = until_.load(std::memory_order_seq_cst);
       known < wanted && !until_.compare_exchange_weak(known, wanted, std::memory_order_seq_cst);) {
  }
}

bool write_gate::is_open_at(timestamp now) const noexcept {
  return !is_shut() && now.time_since_epoch().count() < until_.load(std::memory_order_seq_cst);
}

result<void> check_gate(const write_gate* gate, std::string_view doing, errc code) {
  if (gate == nullptr || gate->is_open())
    return {};
  return fail(code, "cannot " + std::string(doing) + ": " + std::string(no_claim));
}

} // namespace troupe
