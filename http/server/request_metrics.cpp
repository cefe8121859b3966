#include "http/server/request_metrics.hpp"

#include <functional>
#include <map>
#include <new>
#include <utility>

namespace troupe::http {

namespace {

constexpr std::size_t classes = 5;
constexpr std::array<const char*, classes> class_names{"1xx", "2xx", "3xx", "4xx", "5xx"};

std::size_t class_of(status code) noexcept {
  const auto hundreds = static_cast<std::size_t>(code) / 100;
  return hundreds >= 1 && hundreds <= classes ? hundreds - 1 : classes - 1;
}

void count(std::atomic<std::uint64_t>& x, std::uint64_t n = 1) noexcept {
  x.fetch_add(n, std::memory_order_relaxed);
}

std::uint64_t read(const std::atomic<std::uint64_t>& x) noexcept {
  return x.load(std::memory_order_relaxed);
}

} // namespace

struct request_metrics::series {
  std::string name;
  std::array<duration_histogram, classes> durations;
};

struct request_metrics::caller_series {
  std::string name;
  std::array<std::atomic<std::uint64_t>, classes> requests;
};

namespace {

/// A hash table of series by name; an entry is never removed.
template <class Series, std::size_t Most>
class series_table {
public:
  series_table() = default;
  series_table(const series_table&) = delete;
  series_table& operator=(const series_table&) = delete;
  ~series_table() {
    for (auto& x : places_)
      delete x.load(std::memory_order_relaxed);
  }

  /// For any thread.
  Series& of(std::string_view name) noexcept {
    // Mostly the same name as before: then no hash is needed.
    auto* const last = last_.load(std::memory_order_acquire);
    if (last != nullptr && last->name == name)
      return *last;
    auto& found = find(name);
    last_.store(&found, std::memory_order_release);
    return found;
  }

  template <class F>
  void for_each(F f) const {
    for (const auto& place : places_)
      if (const auto* found = place.load(std::memory_order_acquire))
        f(*found);
    f(other_);
  }

private:
  Series& find(std::string_view name) noexcept {
    const auto start = std::hash<std::string_view>{}(name);
    for (std::size_t i = 0; i < Most; ++i) {
      auto& place = places_[(start + i) % Most];
      auto* found = place.load(std::memory_order_acquire);
      if (found == nullptr) {
        try {
          auto fresh = std::make_unique<Series>();
          fresh->name = name;
          // Another thread may have inserted an entry first, with this name or another one.
          if (place.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel))
            return *fresh.release();
        } catch (const std::bad_alloc&) {
          return other_;
        }
      }
      if (found->name == name)
        return *found;
    }
    return other_;
  }

  std::array<std::atomic<Series*>, Most> places_{};
  Series other_{"other", {}};
  std::atomic<Series*> last_{nullptr};
};

} // namespace

/// The counters of one thread, or of a few.
struct alignas(64) request_metrics::stripe {
  series_table<series, max_routes> routes;
  series_table<caller_series, max_callers> callers;
  duration_histogram waited;
  std::atomic<std::uint64_t> bytes_in{0};
  std::atomic<std::uint64_t> bytes_out{0};
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> closed{0};
  std::atomic<std::uint64_t> refused{0};
};

request_metrics::request_metrics() : stripes_(std::make_unique<std::array<stripe, stripe_count>>()) {}

request_metrics::~request_metrics() = default;

request_metrics::stripe& request_metrics::mine() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const auto number = threads.fetch_add(1, std::memory_order_relaxed) % stripe_count;
  return (*stripes_)[number];
}

void request_metrics::request_finished(const request_record& x) noexcept {
  auto& here = mine();
  here.routes.of(x.route).durations[class_of(x.code)].add(x.total);
  if (!x.caller.empty())
    count(here.callers.of(x.caller).requests[class_of(x.code)]);
  here.waited.add(x.waited);
  count(here.bytes_in, x.bytes_in);
  count(here.bytes_out, x.bytes_out);
}

void request_metrics::connection_opened() noexcept {
  count(mine().opened);
}

void request_metrics::connection_closed() noexcept {
  count(mine().closed);
}

void request_metrics::connection_refused() noexcept {
  count(mine().refused);
}

std::vector<metric_family> request_metrics::collect() const {
  using kind = metric_family::kind;
  using sum = histogram_sum<duration_histogram>;
  std::map<std::pair<std::string, std::size_t>, sum> durations;
  std::map<std::pair<std::string, std::size_t>, std::uint64_t> requests;
  sum waited;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t opened = 0;
  std::uint64_t closed = 0;
  std::uint64_t refused = 0;
  const auto add = [&](const series& x) {
    for (std::size_t i = 0; i < classes; ++i) {
      sum part;
      part.add(x.durations[i]);
      if (!part.empty())
        durations[{x.name, i}].add(x.durations[i]);
    }
  };
  for (const auto& x : *stripes_) {
    x.routes.for_each(add);
    x.callers.for_each([&](const caller_series& y) {
      for (std::size_t i = 0; i < classes; ++i)
        if (const auto n = read(y.requests[i]); n > 0)
          requests[{y.name, i}] += n;
    });
    waited.add(x.waited);
    bytes_in += read(x.bytes_in);
    bytes_out += read(x.bytes_out);
    // A connection that is counted as closed has been counted as opened before.
    closed += read(x.closed);
    refused += read(x.refused);
  }
  for (const auto& x : *stripes_)
    opened += read(x.opened);

  metric_family by_route("troupe_http_request_seconds",
                         "Time from the arrival of a request until it was answered, by route and class of status.",
                         kind::Histogram);
  for (const auto& [name, x] : durations)
    by_route.add({{"route", name.first}, {"status", class_names[name.second]}}, x);
  metric_family by_caller("troupe_http_caller_requests_total", "Requests, by caller and class of status.",
                          kind::Counter);
  for (const auto& [name, n] : requests)
    by_caller.add({{"caller", name.first}, {"status", class_names[name.second]}}, n);
  metric_family queue("troupe_http_queue_seconds", "Time from the arrival of a request until it was handled.",
                      kind::Histogram);
  queue.add({}, waited);
  metric_family received("troupe_http_received_bytes_total", "Bytes of requests, including headers.", kind::Counter);
  received.add({}, bytes_in);
  metric_family sent("troupe_http_sent_bytes_total", "Bytes of answers, including headers.", kind::Counter);
  sent.add({}, bytes_out);
  metric_family open("troupe_http_connections", "Open connections.");
  open.add({}, opened > closed ? opened - closed : 0);
  metric_family connections("troupe_http_connections_total", "Accepted connections.", kind::Counter);
  connections.add({}, opened);
  metric_family turned_away("troupe_http_refused_connections_total", "Connections refused beyond the limit.",
                            kind::Counter);
  turned_away.add({}, refused);
  metric_family items("troupe_http_items_total", "Keys, pages and slots in requests, by result.", kind::Counter);
  for (std::uint8_t code = 0; code < errc_count; ++code)
    if (const auto n = items_->of(static_cast<errc>(code)); n > 0)
      items.add({{"code", std::string(to_string(static_cast<errc>(code)))}}, n);
  return {std::move(by_route), std::move(by_caller),   std::move(queue),       std::move(received), std::move(sent),
          std::move(open),     std::move(connections), std::move(turned_away), std::move(items)};
}

} // namespace troupe::http
