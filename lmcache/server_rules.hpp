#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "gpu/remote_layout.hpp"
#include "lmcache/session_table.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::lmcache {

/// Chosen by a worker. Two workers may choose the same number, as process ids in containers are: it identifies a worker
/// only together with its connection.
using instance_id = std::int64_t;
using instance_name = std::pair<client_number, instance_id>;

/// A registration or an unregistration. Numbers grow and are never reused; 0 is none.
using change_number = std::uint64_t;

/// Decides which registration of each worker is in force, when registrations and unregistrations are answered, which
/// copies may begin, and how pings are answered.
///
/// Lanes copy between pages and memory that a worker has named in a registration. A registration that is replaced or
/// unregistered, or whose connection ends, begins no further copy; it is kept until its last copy has ended. A worker
/// that registers or unregisters gives its blocks to other requests as soon as it has the answer. So:
///
/// - No registration or unregistration is answered while a lane works on memory of possibly the same process: of a
///   registration of the same worker, of the same process, or with memory of the same name. If one of the two processes
///   is not known, the same instance number counts as the same process. While it waits for lanes, no other work on such
///   memory begins.
/// - Of several unanswered changes of one worker, the last one counts. All are answered when it is settled, in the
/// order
///   of their arrival; the earlier ones are rejected.
/// - A worker that registers by another connection, before the end of the first one is known, replaces its registration
///   there: so does one of the same process and number, and one that names the same memory.
///
/// Plain state without a thread or a clock. The caller calls a function for each event, and then executes the outbox,
/// in order.
class server_rules {
public:
  struct options {
    /// Time limit for attaching and opening memory, including all retries.
    duration prepare_time = std::chrono::minutes(2);
    /// The interval of retries while the namespace is being removed.
    duration retry_interval = std::chrono::milliseconds(250);
    /// Instances of one client whose pings are remembered: beyond it, the oldest are forgotten.
    std::size_t remembered_per_client = 64;
    /// Workers of one client that are registered or registering: a client is one process of an engine. One more is
    /// rejected, and may retry.
    std::size_t workers_per_client = 16;
    /// Preparations of one client in progress, including those that are not needed any more: each takes an attachment
    /// and threads. Further ones wait for one to end.
    std::size_t preparations_per_client = 4;
  };

  struct registration {
    instance_name name;
    /// 0 if it is not known.
    std::int32_t process = 0;
    namespace_id ns;
    /// The memory that lanes copy to and from; null if the worker copies itself.
    std::shared_ptr<const remote_layout> memory;
    bool sliding = false;
    /// It can never be served: it replaces the previous one, and is rejected. An answer to a registration cannot say
    /// so: pings do, permanently.
    bool invalid = false;
    /// A worker that copies itself has begun copies under its registration and not ended them. It has forgotten them
    /// when it registers again.
    bool has_begun = false;
  };

  enum class end_reason : std::uint8_t {
    /// Replaced by a later registration, or unregistered: the worker does not access its pages any more.
    replaced,
    /// The connection has ended without an unregistration.
    disconnected,
    /// The node has ended the attachment, as when the namespace is removed.
    sent_away,
    stopping,
  };

  /// Attach for this registration and open its memory; then `prepared` or `failed`.
  struct prepare {
    change_number change = 0;
  };
  /// Answer the change.
  struct settle {
    change_number change = 0;
    bool accepted = false;
  };
  /// No further copy of this registration begins, and requests that wait for one are rejected.
  struct end {
    change_number change = 0;
    end_reason why = end_reason::replaced;
  };
  /// No copy of it is in progress any more: its attachment and memory can be closed.
  struct release {
    change_number change = 0;
    end_reason why = end_reason::replaced;
  };
  using effect = std::variant<prepare, settle, end, release>;

  server_rules() = default;
  explicit server_rules(const options& how) : options_(how) {}

  change_number enroll(registration x, timestamp now);
  change_number unregister(const instance_name& name, std::int32_t process, timestamp now);

  /// The result of `prepare` is available. If it is not needed any more, a `release` follows.
  void prepared(change_number x, timestamp now);
  /// `busy` is retried. After other temporary errors the worker is unknown, so that its pings make it register again;
  /// all others reject it permanently.
  void failed(change_number x, errc why, timestamp now);

  /// The node has ended the attachment of this registration.
  void sent_away(change_number x, timestamp now);
  void client_disconnected(client_number client, timestamp now);
  /// Ends everything, and rejects all later requests.
  void stop(timestamp now);
  void tick(timestamp now);
  timestamp next_deadline() const noexcept;

  /// 0 if the worker is not registered.
  change_number current(const instance_name& name) const;
  bool is_current(change_number x) const;

  /// Requests a copy: false if the registration has ended.
  bool begin_copy(change_number x);
  void end_copy(change_number x, timestamp now);
  /// A lane is about to work on memory of the registration: false if that has ended, or a change waits for its lanes;
  /// then it must not.
  bool begin_work(change_number x);
  void end_work(change_number x, timestamp now);

  /// A worker registers when a ping succeeds after one that failed. So a ping of an unknown worker is answered with
  /// false and then true, that of a permanently rejected one always with false.
  bool answer_ping(const instance_name& name);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// The number of registered workers.
  std::size_t instances() const noexcept;
  /// No change waits for its answer, and no copy is in progress.
  bool drained() const noexcept;

private:
  struct change {
    change_number number = 0;
    /// For an unregistration: its name and process.
    registration what;
    bool registers = false;
    /// It failed, or another connection has replaced it; it is answered when lanes allow it.
    bool rejected = false;
  };
  enum class phase : std::uint8_t {
    /// Waits for lanes of ended registrations.
    waiting,
    preparing,
    /// Waits for the next attempt, or for a preparation to end.
    pausing,
    /// It is prepared; it may have to wait for lanes again.
    ready,
  };
  /// A worker that is registered, or has an unanswered change.
  struct worker {
    change_number current = 0;
    std::deque<change> pending;
    phase state = phase::waiting;
    timestamp until = timestamp::max();
    timestamp retry_at = timestamp::max();
  };
  /// A prepared registration.
  struct entry {
    registration what;
    std::optional<end_reason> ended;
    std::size_t copies = 0;
    std::size_t work = 0;
  };
  using worker_map = std::map<instance_name, worker>;

  void add(change x, timestamp now);
  bool is_same(const worker& known, const registration& x) const;
  void supersede(const registration& x);
  void end_entry(change_number x, end_reason why);
  void release_if_done(change_number x);
  /// The newest change of a worker that is being prepared, or will be.
  worker_map::iterator find_newest(change_number x);
  bool is_quiet(const worker& x) const;
  bool is_held_up(const registration& x) const;
  void advance(timestamp now);
  void advance(const instance_name& name, worker& x, timestamp now);
  void finish(const instance_name& name, worker& x, bool accepted);
  void begin_preparing(worker& x, client_number client);
  bool may_prepare(client_number client) const;
  bool may_come(const instance_name& name) const;
  void remember(std::set<instance_name>& in, const instance_name& name) const;

  options options_;
  worker_map workers_;
  std::map<change_number, entry> entries_;
  /// Preparations that were requested, and have neither succeeded nor failed.
  std::map<change_number, client_number> preparations_;
  /// Unknown instances whose last ping was answered with false.
  std::set<instance_name> notified_unknown_;
  /// Permanently rejected.
  std::set<instance_name> rejected_;
  std::vector<effect> outbox_;
  change_number last_ = 0;
  bool stopping_ = false;
};

} // namespace troupe::lmcache
