#include "http/server/connection_context.hpp"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

namespace troupe::http {

namespace {

/// Reading a larger body takes longer than what a round has to do at its end.
constexpr std::size_t large_body = std::size_t{16} * 1024;

} // namespace

connection_context::connection_context(shared_state& shared)
    : shared_(shared), mailbox_(std::make_shared<mailbox>(*this)) {}

void connection_context::make_round() noexcept {
  try {
    if (const auto& make = shared_.routes.round_maker())
      round_ = make();
  } catch (const std::exception& e) {
    // Only if memory is lacking. All is served without rounds, too.
    shared_.log->warn("cannot serve in rounds: {}; each question wakes a worker", e.what());
  }
}

bool connection_context::round_is_late() const noexcept {
  // The clock is read only where something waits.
  const auto since = round_ ? round_->waiting_since() : timestamp::max();
  return since != timestamp::max() && later(since, request_round::longest) < std::chrono::steady_clock::now();
}

bool connection_context::take_at_once(late_answer& x) noexcept {
  if (handling_ != x.id || at_once_)
    return false;
  at_once_.emplace(std::move(x));
  return true;
}

std::optional<late_answer> connection_context::call(const route& r, const request& x, exchange_id id,
                                                    std::string& thrown) {
  if (x.body().size() > large_body || round_is_late())
    end_round();
  at_once_.reset();
  handling_ = id;
  try {
    r.handle(x, responder{mailbox_, id});
  } catch (const std::exception& e) {
    thrown = std::string{"exception: "} + e.what();
  } catch (...) {
    thrown = "exception of an unknown kind";
  }
  handling_.reset();
  return std::exchange(at_once_, std::nullopt);
}

const credential_set& connection_context::refreshed_credentials() {
  shared_.keys.refresh(credentials_);
  return credentials_;
}

std::string_view connection_context::date_header() {
  const auto now = std::time(nullptr);
  if (now != date_ || date_header_.empty()) {
    date_ = now;
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    constexpr std::array<const char*, 7> days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array<const char*, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    // The names are English in every locale.
    date_header_ =
        fmt::format("Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", days[static_cast<std::size_t>(parts.tm_wday)],
                    parts.tm_mday, months[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                    parts.tm_min, parts.tm_sec);
  }
  return date_header_;
}

} // namespace troupe::http
