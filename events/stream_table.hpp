#pragma once

#include "base/digest.hpp"
#include "events/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::events {

struct stream_options {
  /// In which `{node}` and `{model}` are replaced.
  std::string topic;
  std::string node;
  event_form form = event_form::map;
  std::uint64_t first_number = 0;
  std::size_t kept_batches = 0;
  std::size_t kept_bytes = 0;
};

/// The streams of a node by number, and the namespaces whose pages are in them. Namespaces come and go, so streams do:
/// one whose namespaces have all ended stays for its subscribers, which have to learn that its pages were removed,
/// until `ended_most` streams have ended after it. Its number may then be another stream's.
///
/// No batch of a topic ever has a number that an earlier one had, also where the stream was forgotten in between: so
/// its return looks like a gap, and subscribers request a snapshot.
class stream_table {
public:
  explicit stream_table(stream_options options) : options_(std::move(options)), next_first_(options_.first_number) {}

  /// How many streams without namespaces stay. They keep no batches but the last ones.
  static constexpr std::size_t ended_most = 256;

  struct found_stream {
    std::uint32_t number = 0;
    /// It has no batch yet.
    bool is_new = false;
  };
  /// A shard serves the namespace. To be called once for each shard.
  found_stream serve(const namespace_id& ns, std::string_view model);
  /// A shard has ended the namespace, after it has reported all removals. Whether it was the last one.
  bool end(const namespace_id& ns);

  std::optional<std::uint32_t> number_of(const namespace_id& ns) const;
  stream& at(std::uint32_t number) noexcept { return *streams_[number]; }

  /// Calls f(number, stream) for each.
  template <class F>
  void for_each(F&& f) {
    for (std::uint32_t i = 0; i < streams_.size(); ++i)
      if (streams_[i])
        f(i, *streams_[i]);
  }
  template <class F>
  void for_each(F&& f) const {
    for (std::uint32_t i = 0; i < streams_.size(); ++i)
      if (streams_[i])
        f(i, static_cast<const stream&>(*streams_[i]));
  }

  /// Forgets streams that ended before the last `ended_most` ones, unless `in_use(number)` or changes are pending.
  template <class InUse>
  void forget_ended(InUse&& in_use) {
    for (auto x = ended_.begin(); ended_.size() > ended_most && x != ended_.end();) {
      auto& of = streams_[*x];
      if (!of->pending.empty() || in_use(*x)) {
        ++x;
        continue;
      }
      next_first_ = std::max(next_first_, of->log.next());
      of.reset();
      unused_.push_back(*x);
      x = ended_.erase(x);
    }
  }

private:
  struct served_namespace {
    std::uint32_t stream = 0;
    std::uint32_t shards = 0;
  };

  std::string topic_of(std::string_view model) const;
  std::uint32_t add(std::string topic);

  /// Batches that an ended stream keeps.
  static constexpr std::size_t kept_of_ended = 2;

  stream_options options_;
  /// The number of the first batch of a new stream: above those of all that were forgotten.
  std::uint64_t next_first_;
  /// Null: the number is in `unused_`.
  std::vector<std::unique_ptr<stream>> streams_;
  std::vector<std::uint32_t> unused_;
  /// Streams without a namespace, those first that ended first.
  std::list<std::uint32_t> ended_;
  std::unordered_map<namespace_id, served_namespace> namespaces_;
};

} // namespace troupe::events
