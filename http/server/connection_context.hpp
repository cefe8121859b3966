#pragma once

#include "http/server/credentials.hpp"
#include "http/server/mailbox.hpp"
#include "http/server/request_round.hpp"
#include "http/server/response.hpp"
#include "http/server/router.hpp"
#include "http/server/shared_state.hpp"

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::http {

/// State that the connections of one io thread share, for that thread only: buffers that are free between two of their
/// steps, and the path to handlers and back. Derived classes own the connections; so a connection knows no worker.
class connection_context : public mailbox_owner {
public:
  explicit connection_context(shared_state& shared);
  connection_context(const connection_context&) = delete;
  connection_context& operator=(const connection_context&) = delete;

  shared_state& shared() noexcept { return shared_; }
  /// No further requests are accepted: each connection ends when it is idle.
  bool is_draining() const noexcept { return is_draining_; }
  /// Memory for a match, free between two steps of a connection.
  route_match& match() noexcept { return match_; }
  const credential_set& refreshed_credentials();
  /// "Date: …\r\n" with the current time.
  std::string_view date_header();

  /// Calls the route's handler. Returns the answer, if it came at once; `thrown` is the text of the handler's
  /// exception.
  std::optional<late_answer> call(const route& r, const request& x, exchange_id id, std::string& thrown);
  /// The connection of that number has closed.
  virtual void forget(std::uint64_t id) noexcept = 0;

protected:
  // Rounds, where the router has any: by the thread that serves.
  void make_round() noexcept;
  void end_round() noexcept {
    if (round_)
      round_->end();
  }
  void leave_round() noexcept { round_.reset(); }
  /// Whether something has waited for the end of the round for as long as it may.
  bool round_is_late() const noexcept;
  /// Answers that come from other threads. To be closed by the derived class, before anything that `wake` needs is
  /// destroyed.
  mailbox& answers() noexcept { return *mailbox_; }
  void start_draining() noexcept { is_draining_ = true; }

private:
  bool take_at_once(late_answer& x) noexcept final;

  shared_state& shared_;
  bool is_draining_ = false;
  std::shared_ptr<mailbox> mailbox_;
  std::unique_ptr<request_round> round_;
  /// The request whose handler is running, and its answer.
  std::optional<exchange_id> handling_;
  std::optional<late_answer> at_once_;

  route_match match_;
  credential_set credentials_;
  std::time_t date_ = 0;
  std::string date_header_;
};

} // namespace troupe::http
