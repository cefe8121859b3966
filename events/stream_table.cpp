#include "events/stream_table.hpp"

#include <algorithm>
#include <utility>

namespace troupe::events {

namespace {

void replace(std::string& in, std::string_view what, std::string_view by) {
  if (const auto at = in.find(what); at != std::string::npos)
    in.replace(at, what.size(), by);
}

} // namespace

std::string stream_table::topic_of(std::string_view model) const {
  auto out = options_.topic;
  replace(out, "{node}", options_.node);
  replace(out, "{model}", model);
  return out;
}

std::uint32_t stream_table::add(std::string topic) {
  auto made = std::make_unique<stream>(
      stream{std::move(topic), options_.form, batch_log(next_first_, options_.kept_batches, options_.kept_bytes)});
  if (unused_.empty()) {
    streams_.push_back(std::move(made));
    return static_cast<std::uint32_t>(streams_.size() - 1);
  }
  const auto number = unused_.back();
  unused_.pop_back();
  streams_[number] = std::move(made);
  return number;
}

stream_table::found_stream stream_table::serve(const namespace_id& ns, std::string_view model) {
  auto& served = namespaces_[ns];
  if (served.shards++ > 0)
    return {served.stream};
  auto topic = topic_of(model);
  const auto known = std::ranges::find_if(streams_, [&](const auto& x) { return x && x->topic == topic; });
  const bool is_new = known == streams_.end();
  served.stream = is_new ? add(std::move(topic)) : static_cast<std::uint32_t>(known - streams_.begin());
  auto& of = *streams_[served.stream];
  if (of.namespaces++ == 0 && !is_new) {
    ended_.remove(served.stream);
    of.log.keep(options_.kept_batches);
  }
  return {served.stream, is_new};
}

bool stream_table::end(const namespace_id& ns) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end() || --found->second.shards > 0)
    return false;
  const auto number = found->second.stream;
  namespaces_.erase(found);
  if (--streams_[number]->namespaces == 0) {
    streams_[number]->log.keep(kept_of_ended);
    ended_.push_back(number);
  }
  return true;
}

std::optional<std::uint32_t> stream_table::number_of(const namespace_id& ns) const {
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? std::nullopt : std::optional(found->second.stream);
}

} // namespace troupe::events
