#pragma once

#include "tests/http_client/metadata_client.hpp"
#include "tests/patience.hpp"
#include "tests/unit/http_support.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

/// A server with scripted answers, and clients that do not wait between attempts.

namespace troupe::test {

struct seen_request {
  std::string target;
  std::string body;
};

/// Answers the requests of all clients in turn from a list; when it is empty, with the last answer again.
class scripted_server : public http::observer {
public:
  explicit scripted_server(std::vector<http::response> answers, config::http_config config = http::test_config())
      : config_(std::move(config)), answers_(answers.begin(), answers.end()) {
    start();
  }

  void start() {
    http::router routes;
    const auto handle = [this](const http::request& r, http::responder reply) {
      const std::lock_guard guard(mutex_);
      requests_.push_back({std::string(r.target()), std::string(r.body())});
      arrived_.notify_all();
      if (hold_) {
        held_.push_back(std::move(reply));
        return;
      }
      auto answer = answers_.front();
      if (answers_.size() > 1)
        answers_.pop_front();
      std::move(reply).send(std::move(answer));
    };
    for (const auto* path : {"/rank/{rank}/initialize", "/keys/{operation}", "/in/front/keys/{operation}"})
      routes.add(http::method::post, path, {"scripted", http::role::read, handle, 0});
    server_ = http::started(config_, std::move(routes), this);
    config_.port = server_->port();
  }
  /// Closes all connections. `start` listens at the same port again.
  void stop() { server_.reset(); }

  std::uint16_t port() const { return static_cast<std::uint16_t>(config_.port); }
  std::vector<seen_request> requests() const {
    const std::lock_guard guard(mutex_);
    return requests_;
  }
  /// Waits until this many requests have arrived; a client whose request timed out may be ahead of the server.
  std::vector<seen_request> wait_for_requests(std::size_t count) const {
    std::unique_lock guard(mutex_);
    await(arrived_, guard, [&] { return requests_.size() >= count; });
    return requests_;
  }
  /// Requests after this call get no answer.
  void hold() {
    const std::lock_guard guard(mutex_);
    hold_ = true;
  }
  int most_connections() const { return most_; }
  int connections_made() const { return made_; }

private:
  void connection_opened() noexcept override {
    ++made_;
    const auto n = ++open_;
    for (auto most = most_.load(); most < n && !most_.compare_exchange_weak(most, n);) {
    }
  }
  void connection_closed() noexcept override { --open_; }

  config::http_config config_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::deque<http::response> answers_;
  std::vector<seen_request> requests_;
  std::vector<http::responder> held_;
  bool hold_ = false;
  std::atomic<int> open_{0};
  std::atomic<int> most_{0};
  std::atomic<int> made_{0};
  std::unique_ptr<http::server> server_;
};

/// Records the pauses of a client between attempts.
struct pauses {
  std::mutex mutex;
  std::vector<duration> all;
};

inline metadata_client_options client_options(std::uint16_t port, const std::shared_ptr<pauses>& waited = {}) {
  metadata_client_options out;
  out.url = "http://127.0.0.1:" + std::to_string(port);
  // No machine is too slow for these.
  out.connect_time = std::chrono::seconds{30};
  out.answer_time = std::chrono::seconds{30};
  out.pause = [waited](duration x) {
    if (!waited)
      return;
    const std::lock_guard guard(waited->mutex);
    waited->all.push_back(x);
  };
  return out;
}

inline std::unique_ptr<metadata_client> make_client(metadata_client_options options) {
  auto x = metadata_client::make(std::move(options));
  INFO((x ? std::string{} : x.error().text));
  REQUIRE(x);
  return std::move(*x);
}

/// A port without a listener.
std::uint16_t closed_port();

template <class T>
errc code_of(const result<T>& x) {
  return x ? errc::ok : x.error().code;
}

template <class T>
std::string text_of(const result<T>& x) {
  return x ? std::string{} : x.error().text;
}

} // namespace troupe::test
