#pragma once

#include "tests/simulation/process.hpp"
#include "tests/simulation/tap.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::simulation {

class line;

/// Observes the messages of a client to the node and back, on the client's side of the connection.
class line_watch {
public:
  virtual ~line_watch() = default;
  /// False: the message is lost. May change it.
  virtual bool says(const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message_id id,
                    caf::message& what) = 0;
  virtual bool hears(const caf::strong_actor_ptr& from, const caf::strong_actor_ptr& who, caf::message_id id,
                     caf::message& what) = 0;
  /// The process id of the client on the host of its node; its own number is that of the simulation.
  virtual std::int32_t process_number() const noexcept = 0;
  /// The client has noticed, perhaps after it has connected anew.
  virtual void line_is_lost(const line& which) = 0;
};

/// One connection between a client's process and the node's, as CAF's middleman makes them over TCP: in each process,
/// actors of the other one are known by actors that stand for them. What is said arrives later, in order, or not at all
/// if the connection breaks before; and when a side has noticed that, all that stood for the other side die.
class line : public std::enable_shared_from_this<line> {
public:
  enum side : std::size_t { client = 0, node = 1 };

  line(environment& world, process& client_side, process& node_side, line_watch& watch);

  /// The actor on this side that stands for one of the other.
  caf::strong_actor_ptr far(side here, const caf::strong_actor_ptr& there);

  /// To the other side, from `here`.
  void carry(side here, caf::strong_actor_ptr sender, const caf::strong_actor_ptr& to, caf::message_id id,
             caf::message what);

  bool open() const noexcept { return open_; }
  /// No actor on this side stands for one of the other any more.
  bool ended(side here) const noexcept { return !open_ && ends_[here].far.empty(); }
  /// Messages in flight do not arrive any more. Sides that are alive notice it after a while.
  void cut();
  /// The process of that side is about to end.
  void forget(side here);

private:
  struct parcel {
    caf::strong_actor_ptr sender;
    caf::strong_actor_ptr to;
    caf::message_id id;
    caf::message what;
    int times = 1;
  };

  struct end {
    process* in = nullptr;
    /// Under way to here.
    std::deque<parcel> parcels;
    std::map<caf::actor_id, caf::strong_actor_ptr> far;
    /// When the last message arrives there.
    timestamp last = timestamp::min();
  };

  /// Notes a request that reaches the node, and an answer that reaches the client.
  void note(side there, const parcel& x);
  /// The callers of all requests that the node has, and has not answered, have ended.
  void abandon();
  void notice(side here);
  /// Handles of the sender's side become such of the receiver's.
  caf::message translate(side there, const caf::message& what);
  void deliver(side there, const parcel& x);
  bool may_be_lost(const caf::message& what) const;

  environment& world_;
  random_source random_;
  line_watch& watch_;
  std::array<end, 2> ends_;
  bool open_ = true;
  std::uint64_t carried_ = 0;
  /// What the node was asked and has not answered: by the caller and the number of its request.
  std::map<std::pair<caf::actor_id, std::uint64_t>, std::string> unanswered_;
};

} // namespace troupe::simulation
