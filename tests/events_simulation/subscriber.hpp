#pragma once

#include "tests/event_view.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::events_simulation {

/// A subscriber as docs/events.md describes one: it applies batches in the order of their numbers, and requests what is
/// missing where there is a gap. Batches that arrive meanwhile wait.
class subscriber {
public:
  struct message {
    std::string topic;
    std::uint64_t number = 0;
    std::shared_ptr<const std::string> text;
  };

  /// What it knows of one stream.
  struct stream_view {
    test::event_view view;
    std::optional<std::uint64_t> last;
    /// Arrived, and not looked at.
    std::deque<message> waiting{};
    /// Whether a request for missed batches is open.
    bool requested = false;
    /// The first number that is missing, of a request that is to be sent.
    std::optional<std::uint64_t> wanted{};
  };

  std::map<std::string, stream_view> streams;
  /// The first fault of a batch.
  std::string fault;
  std::uint64_t gaps = 0;

  void arrive(message x) { streams[x.topic].waiting.push_back(std::move(x)); }

  /// Looks at one batch that has arrived. False if there is none, or an answer is awaited.
  bool look(const std::string& topic) {
    auto& s = streams[topic];
    if (s.requested || s.wanted || s.waiting.empty())
      return false;
    const auto& next = s.waiting.front();
    if (s.last && next.number <= *s.last) {
      s.waiting.pop_front();
      return true;
    }
    if (!s.last || next.number != *s.last + 1) {
      ++gaps;
      s.wanted = s.last ? *s.last + 1 : 0;
      return false;
    }
    apply(s, next.number, *next.text);
    s.waiting.pop_front();
    return true;
  }

  void replayed(const std::string& topic, std::uint64_t number, const std::string& text) {
    auto& s = streams[topic];
    if (!s.last || number > *s.last)
      apply(s, number, text);
  }

  /// The answer to a request has ended, or its patience.
  void end_of_replay(const std::string& topic) { streams[topic].requested = false; }

  /// The connection was lost: what has arrived and was not looked at is lost.
  void disconnect() {
    for (auto& [topic, s] : streams) {
      s.waiting.clear();
      s.requested = false;
      s.wanted.reset();
    }
  }

private:
  void apply(stream_view& s, std::uint64_t number, const std::string& text) {
    if (const auto bad = s.view.apply(text); !bad.empty() && fault.empty())
      fault = bad;
    s.last = number;
  }
};

} // namespace troupe::events_simulation
