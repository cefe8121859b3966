#pragma once

#include "http/server/response.hpp"

#include <mutex>
#include <optional>
#include <vector>

namespace troupe::http {

/// An answer for a connection; without one, the responder was dropped.
struct late_answer {
  exchange_id id;
  std::optional<response> answer;
};

/// The thread that empties a mailbox.
class mailbox_owner {
public:
  virtual ~mailbox_owner() = default;

  /// Called by the owner's thread when the running handler answers. False: the answer is for another request.
  virtual bool take_at_once(late_answer& x) noexcept = 0;
  /// Called by any thread when something was put into an empty mailbox.
  virtual void wake() = 0;
};

/// A queue of answers for one io thread. It outlives that thread, as responders do. Answers of the running handler need
/// neither lock nor wake-up; of others, one wake-up fetches all that have arrived.
class mailbox final : public answer_sink {
public:
  explicit mailbox(mailbox_owner& owner) : owner_(&owner) {}

  void deliver(exchange_id id, response&& answer) noexcept override;
  void drop(exchange_id id) noexcept override;

  /// Declares the calling thread to be the owner's.
  void adopt_thread() noexcept;
  /// Swaps the queued answers into `out`, which is empty.
  void fetch(std::vector<late_answer>& out);
  /// From now on, answers are discarded and the owner is not called.
  void close() noexcept;

private:
  void put(late_answer&& x) noexcept;

  std::mutex mutex_;
  mailbox_owner* owner_;
  std::vector<late_answer> answers_;
};

} // namespace troupe::http
