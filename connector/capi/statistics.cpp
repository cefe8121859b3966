#include "connector/capi/statistics.hpp"

#include "connector/capi/boundary.hpp"
#include "connector/capi/conversions.hpp"

#include <nlohmann/json.hpp>

#include <tuple>

using namespace troupe;

namespace troupe::capi {

namespace {

using connector::connector_stats;

const auto lists = std::make_tuple(std::pair{"save_duration", &connector_stats::save_duration},
                                   std::pair{"load_duration", &connector_stats::load_duration},
                                   std::pair{"queue_wait", &connector_stats::queue_wait},
                                   std::pair{"metadata_duration", &connector_stats::metadata_duration});

const auto numbers = std::make_tuple(
    std::pair{"num_failed_save", &connector_stats::num_failed_save},
    std::pair{"num_failed_load", &connector_stats::num_failed_load},
    std::pair{"num_transfer_task", &connector_stats::num_transfer_task},
    std::pair{"saved_bytes", &connector_stats::saved_bytes}, std::pair{"loaded_bytes", &connector_stats::loaded_bytes},
    std::pair{"skipped_pages", &connector_stats::skipped_pages},
    std::pair{"refused_pages", &connector_stats::refused_pages}, std::pair{"hit_tokens", &connector_stats::hit_tokens},
    std::pair{"disk_tokens", &connector_stats::disk_tokens}, std::pair{"queue_depth", &connector_stats::queue_depth});

template <class Members, class F>
void for_members(const Members& members, F f) {
  std::apply([&](const auto&... member) { (f(member.first, member.second), ...); }, members);
}

const char* name_of(connector::metric_description::kind kind) {
  switch (kind) {
  case connector::metric_description::kind::histogram:
    return "histogram";
  case connector::metric_description::kind::gauge:
    return "gauge";
  default:
    return "counter";
  }
}

result<std::string_view> view_of(const std::uint8_t* data, std::size_t length) {
  const auto bytes = array_of(data, length, "the statistics");
  if (!bytes)
    return tl::unexpected(bytes.error());
  return std::string_view(reinterpret_cast<const char*>(data), length);
}

} // namespace

std::string stats_text(const connector_stats& stats) {
  if (stats.is_empty())
    return {};
  nlohmann::json out;
  for_members(lists, [&](const char* name, auto member) { out[name] = stats.*member; });
  for_members(numbers, [&](const char* name, auto member) { out[name] = stats.*member; });
  return out.dump();
}

result<connector_stats> read_stats(std::string_view text) {
  connector_stats out;
  if (text.empty())
    return out;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto fault = [](const char* name) {
    return fail(errc::invalid_argument, std::string("the statistics were not made by this library: ") + name);
  };
  if (!json.is_object())
    return fault("not a JSON object");
  const char* bad = nullptr;
  for_members(lists, [&](const char* name, auto member) {
    const auto x = json.find(name);
    if (x == json.end())
      return;
    if (!x->is_array() || !std::all_of(x->begin(), x->end(), [](const auto& v) { return v.is_number(); }))
      bad = name;
    else
      out.*member = x->template get<std::vector<double>>();
  });
  for_members(numbers, [&](const char* name, auto member) {
    const auto x = json.find(name);
    if (x == json.end())
      return;
    if (!x->is_number_unsigned())
      bad = name;
    else
      out.*member = x->template get<std::uint64_t>();
  });
  if (bad != nullptr)
    return fault(bad);
  return out;
}

} // namespace troupe::capi

std::int32_t troupe_metric_descriptions(troupe_bytes* out, troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    static const std::string text = [] {
      auto all = nlohmann::json::array();
      for (const auto& x : connector::metric_descriptions()) {
        nlohmann::json one{{"name", x.name}, {"kind", capi::name_of(x.what)}, {"help", x.help}, {"member", x.member}};
        if (!x.buckets.empty())
          one["buckets"] = x.buckets;
        all.push_back(std::move(one));
      }
      return all.dump();
    }();
    *out = capi::bytes_of(text);
    return {};
  });
}

std::int32_t troupe_stats_aggregate(const troupe_bytes* stats, std::size_t count, troupe_bytes* out,
                                    troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    const auto all = capi::array_of(stats, count, "stats");
    if (!all)
      return tl::unexpected(all.error());
    connector::connector_stats sum;
    for (const auto& x : *all) {
      const auto text = capi::view_of(x.data, x.length);
      if (!text)
        return tl::unexpected(text.error());
      const auto one = capi::read_stats(*text);
      if (!one)
        return tl::unexpected(one.error());
      sum.aggregate(*one);
    }
    thread_local std::string joined;
    joined = capi::stats_text(sum);
    *out = capi::bytes_of(joined);
    return {};
  });
}

std::int32_t troupe_stats_reduce(const std::uint8_t* stats, std::size_t length, troupe_bytes* out,
                                 troupe_error* error) {
  return capi::guarded(error, [&]() -> result<void> {
    if (out == nullptr)
      return fail(errc::invalid_argument, "out is NULL");
    const auto text = capi::view_of(stats, length);
    if (!text)
      return tl::unexpected(text.error());
    const auto read = capi::read_stats(*text);
    if (!read)
      return tl::unexpected(read.error());
    nlohmann::ordered_json reduced;
    for (const auto& [name, value] : read->reduce())
      reduced[name] = value;
    thread_local std::string joined;
    joined = reduced.dump();
    *out = capi::bytes_of(joined);
    return {};
  });
}
