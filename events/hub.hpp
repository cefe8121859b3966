#pragma once

#include "base/clock.hpp"
#include "events/counters.hpp"
#include "events/feed.hpp"
#include "events/page_book.hpp"
#include "events/page_log.hpp"
#include "events/replay.hpp"
#include "events/stream_table.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::events {

struct hub_options {
  /// The topic of a stream, in which `{node}` and `{model}` are replaced.
  std::string topic = "kv@{node}@{model}";
  std::string node;
  event_form form = event_form::map;
  /// The number of each stream's first batch. Higher than any of an earlier run, so that a restart looks like a gap.
  std::uint64_t first_number = 0;
  std::uint64_t seed = 0;
  /// Limit of tokens and extra keys that are kept for snapshots.
  std::uint64_t details_max = std::uint64_t{256} << 20U;
  /// Batches that are kept for subscribers that missed them.
  std::size_t kept_batches = 10000;
  std::size_t kept_bytes = std::size_t{64} << 20U;
  /// Pages of one batch, and how long the first change of a batch waits for others.
  std::size_t batch_pages = 1024;
  duration batch_time = std::chrono::milliseconds(10);
  /// The time after which an empty batch is published, so that a lost one is noticed.
  duration heartbeat = std::chrono::seconds(10);
  /// Requests for missed batches in progress, and the time in which a requester has to accept more.
  std::size_t replays_max = 64;
  duration replay_patience = std::chrono::seconds(30);
  std::shared_ptr<counters> counts = std::make_shared<counters>();
  /// Gets the changes of the namespaces that it logs; may be null.
  std::shared_ptr<page_log> log{};
};

/// A batch for all subscribers.
struct published_batch {
  std::string topic;
  sent_batch batch;
};

/// The rules of publishing events: streams, the pages they are about, and requests for what was missed. Plain C++, for
/// one thread. Time is an argument and must not decrease; `wall` are seconds since 1970, for the batches.
class hub {
public:
  explicit hub(hub_options options);

  hub(const hub&) = delete;
  hub& operator=(const hub&) = delete;
  ~hub() = default;

  void take(feed::batch changes, timestamp now, double wall);

  /// Batches that are to be published now; each is returned once.
  std::vector<published_batch> flush(timestamp now, double wall);

  /// When `flush` has something to do without a further change, if there is any stream.
  std::optional<timestamp> next_due() const;

  /// A request for batches from `start` on, of one stream or, without a topic, of all. It replaces an earlier one of
  /// this requester. False if it is ignored, because there are too many.
  bool request(std::string requester, std::uint64_t start, std::optional<std::string_view> topic, timestamp now);

  /// A message for one requester. `end`: all was sent; `number` and text do not count then.
  struct reply {
    std::string requester;
    bool end = false;
    std::string_view topic;
    std::uint64_t number = 0;
    std::shared_ptr<const std::string> text;
  };
  /// The next message to send, requesters taking turns; none when there is nothing to send at present. Is followed by
  /// one of the three below.
  std::optional<reply> next_reply(timestamp now, double wall);
  void sent(timestamp now);
  /// The requester does not accept more now; the message comes again after `retry`.
  void blocked(timestamp now);
  /// The requester has disconnected.
  void gone();

  static constexpr duration retry = std::chrono::milliseconds(20);

  std::size_t replays() const noexcept { return replays_.size(); }
  const page_book& book() const noexcept { return book_; }
  /// For tests: the topics of all streams.
  std::vector<std::string> topics() const;

private:
  struct requester_state {
    std::string requester;
    /// The streams that are left, the first one being sent.
    std::list<replay> parts;
    std::optional<reply> unsent{};
    timestamp not_before{};
    timestamp deadline{};
  };

  void apply(const namespace_id& ns, const namespace_served& x, timestamp now, double wall);
  void apply(const namespace_id& ns, const namespace_ended& x, timestamp now, double wall);
  void apply(const namespace_id& ns, pages_described& x, timestamp now, double wall);
  void apply(const namespace_id& ns, const keys_removed& x, timestamp now, double wall);
  void apply(const namespace_id& ns, const keys_moved& x, timestamp now, double wall);
  void start_again(timestamp now, double wall);
  std::optional<std::uint16_t> number_of(const page_shape& shape, timestamp now, double wall);
  bool is_replayed(std::uint32_t stream) const;
  void log(const namespace_id& ns, page_event::kind what, const page_record& page);
  void add(std::uint32_t stream, page_event what, timestamp now, double wall);
  /// Makes a batch of what is pending, or an empty one.
  void seal(stream& of, timestamp now, double wall, bool cleared = false);
  page_record record_of(const page_descriptions& x, std::size_t at, std::uint64_t id, std::uint16_t shape) const;
  reply reply_of(requester_state& x, double wall, timestamp now);
  void end(std::list<requester_state>::iterator which, bool failed);
  void count();

  hub_options options_;
  page_book book_;
  stream_table streams_;
  /// The models of the namespaces that are logged.
  std::unordered_map<namespace_id, std::shared_ptr<const std::string>> logged_;
  std::vector<published_batch> ready_;
  std::list<requester_state> replays_;
};

} // namespace troupe::events
