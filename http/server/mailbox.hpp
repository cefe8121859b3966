#pragma once

#include "http/server/response.hpp"

#include <mutex>
#include <optional>
#include <vector>

namespace troupe::http {

/// An answer on its way to its connection; without one, the responder was dropped.
struct late_answer {
  exchange_id id;
  std::optional<response> answer;
};

/// Who empties a mailbox.
class mailbox_owner {
public:
  virtual ~mailbox_owner() = default;

  /// Called by the owner's thread when the handler that runs just now answers. False: it is another request's answer.
  virtual bool take_at_once(late_answer& x) noexcept = 0;
  /// Called by any thread, when there is something in a mailbox that was empty.
  virtual void wake() = 0;
};

/// Where responders put answers for one io thread. It outlives that thread, as responders do. Answers given by the
/// handler itself need neither lock nor wake-up; of others, one wake-up fetches all that have come until then.
class mailbox final : public answer_sink {
public:
  explicit mailbox(mailbox_owner& owner) : owner_(&owner) {}

  void deliver(exchange_id id, response&& answer) noexcept override;
  void drop(exchange_id id) noexcept override;

  /// Says that the calling thread is the owner's.
  void adopt_thread() noexcept;
  /// Swaps what has come into `out`, which is empty.
  void fetch(std::vector<late_answer>& out);
  /// From now on, answers go nowhere and the owner is left alone.
  void close() noexcept;

private:
  void put(late_answer&& x) noexcept;

  std::mutex mutex_;
  mailbox_owner* owner_;
  std::vector<late_answer> answers_;
};

} // namespace troupe::http
