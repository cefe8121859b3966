#include "http/server/request_metrics.hpp"

#include <prometheus/text_serializer.h>

#include <bit>
#include <functional>
#include <map>
#include <new>
#include <sstream>
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

struct histogram_sum {
  std::array<std::uint64_t, duration_histogram::bounds + 1> counts{};
  std::uint64_t nanoseconds = 0;

  bool empty() const noexcept {
    for (const auto x : counts)
      if (x > 0)
        return false;
    return true;
  }

  prometheus::ClientMetric metric() const {
    prometheus::ClientMetric out;
    auto& h = out.histogram;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      h.sample_count += counts[i];
      if (i < duration_histogram::bounds)
        h.bucket.push_back({h.sample_count, static_cast<double>(duration_histogram::first_bound_ns << i) / 1e9});
    }
    // The serialiser adds the last bucket, without a bound, from the count.
    h.sample_sum = static_cast<double>(nanoseconds) / 1e9;
    return out;
  }
};

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type) {
  return {name, help, type, {}};
}

prometheus::MetricFamily single(const char* name, const char* help, prometheus::MetricType type, double value) {
  auto out = family(name, help, type);
  prometheus::ClientMetric x;
  x.counter.value = value;
  x.gauge.value = value;
  out.metric.push_back(std::move(x));
  return out;
}

} // namespace

void duration_histogram::add(duration x) noexcept {
  const auto ns = x.count() > 0 ? static_cast<std::uint64_t>(x.count()) : 0;
  const auto units = (ns + first_bound_ns - 1) / first_bound_ns;
  // The first bound that is not below: 1 unit, 2, 4, …
  const auto bucket = units <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(units - 1));
  count(counts_[bucket < bounds ? bucket : bounds]);
  count(nanoseconds_, ns);
}

void duration_histogram::add_to(std::array<std::uint64_t, bounds + 1>& counts,
                                std::uint64_t& nanoseconds) const noexcept {
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] += read(counts_[i]);
  nanoseconds += read(nanoseconds_);
}

struct request_metrics::series {
  std::string name;
  std::array<duration_histogram, classes> durations;
};

struct request_metrics::caller_series {
  std::string name;
  std::array<std::atomic<std::uint64_t>, classes> requests;
};

namespace {

/// Series by a hash of their names; filled from there on, never emptied.
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

  /// Any thread may ask.
  Series& of(std::string_view name) noexcept {
    const auto start = std::hash<std::string_view>{}(name);
    for (std::size_t i = 0; i < Most; ++i) {
      auto& place = places_[(start + i) % Most];
      auto* found = place.load(std::memory_order_acquire);
      if (found == nullptr) {
        try {
          auto fresh = std::make_unique<Series>();
          fresh->name = name;
          // Another thread may have been faster, with this name or another one.
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

  template <class F>
  void for_each(F f) const {
    for (const auto& place : places_)
      if (const auto* found = place.load(std::memory_order_acquire))
        f(*found);
    f(other_);
  }

private:
  std::array<std::atomic<Series*>, Most> places_{};
  Series other_{"other", {}};
};

} // namespace

/// What one thread counts, or a few of them.
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

std::vector<prometheus::MetricFamily> request_metrics::collect() const {
  using prometheus::MetricType;
  std::map<std::pair<std::string, std::size_t>, histogram_sum> durations;
  std::map<std::pair<std::string, std::size_t>, std::uint64_t> requests;
  histogram_sum waited;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t opened = 0;
  std::uint64_t closed = 0;
  std::uint64_t refused = 0;
  const auto add = [&](const series& x) {
    for (std::size_t i = 0; i < classes; ++i) {
      histogram_sum part;
      x.durations[i].add_to(part.counts, part.nanoseconds);
      if (part.empty())
        continue;
      auto& sum = durations[{x.name, i}];
      x.durations[i].add_to(sum.counts, sum.nanoseconds);
    }
  };
  for (const auto& x : *stripes_) {
    x.routes.for_each(add);
    x.callers.for_each([&](const caller_series& y) {
      for (std::size_t i = 0; i < classes; ++i)
        if (const auto n = read(y.requests[i]); n > 0)
          requests[{y.name, i}] += n;
    });
    x.waited.add_to(waited.counts, waited.nanoseconds);
    bytes_in += read(x.bytes_in);
    bytes_out += read(x.bytes_out);
    // A connection that is counted as closed has been counted as opened before.
    closed += read(x.closed);
    refused += read(x.refused);
  }
  for (const auto& x : *stripes_)
    opened += read(x.opened);

  const auto number = [](std::uint64_t x) { return static_cast<double>(x); };
  std::vector<prometheus::MetricFamily> out;
  out.push_back(family("troupe_http_request_seconds",
                       "Time of a request, from its arrival until it was answered, by route and class of status.",
                       MetricType::Histogram));
  for (const auto& [name, sum] : durations) {
    auto x = sum.metric();
    x.label = {{"route", name.first}, {"status", class_names[name.second]}};
    out.back().metric.push_back(std::move(x));
  }
  out.push_back(
      family("troupe_http_caller_requests_total", "Requests, by who asked and class of status.", MetricType::Counter));
  for (const auto& [name, n] : requests) {
    prometheus::ClientMetric x;
    x.label = {{"caller", name.first}, {"status", class_names[name.second]}};
    x.counter.value = number(n);
    out.back().metric.push_back(std::move(x));
  }
  out.push_back(family("troupe_http_queue_seconds", "Time of a request from its arrival until it was handled.",
                       MetricType::Histogram));
  out.back().metric.push_back(waited.metric());
  out.push_back(single("troupe_http_received_bytes_total", "Bytes of requests, with headers.", MetricType::Counter,
                       number(bytes_in)));
  out.push_back(single("troupe_http_sent_bytes_total", "Bytes of answers, with headers.", MetricType::Counter,
                       number(bytes_out)));
  out.push_back(single("troupe_http_connections", "Connections that are open.", MetricType::Gauge,
                       number(opened > closed ? opened - closed : 0)));
  out.push_back(
      single("troupe_http_connections_total", "Connections that were opened.", MetricType::Counter, number(opened)));
  out.push_back(single("troupe_http_refused_connections_total", "Connections beyond the limit.", MetricType::Counter,
                       number(refused)));
  out.push_back(family("troupe_http_items_total", "Keys, pages and slots of requests, by what became of them.",
                       MetricType::Counter));
  for (std::uint8_t code = 0; code < errc_count; ++code)
    if (const auto n = items_->of(static_cast<errc>(code)); n > 0) {
      prometheus::ClientMetric x;
      x.label = {{"code", std::string(to_string(static_cast<errc>(code)))}};
      x.counter.value = number(n);
      out.back().metric.push_back(std::move(x));
    }
  return out;
}

std::string to_text(const std::vector<prometheus::MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

} // namespace troupe::http
