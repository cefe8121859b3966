#include "tests/simulation/wires.hpp"

#include "tests/simulation/node_words.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

namespace {

/// Stands in one process for an actor of the other.
class far_actor final : public caf::monitorable_actor {
public:
  far_actor(caf::actor_config& config, std::shared_ptr<line> via, line::side here, caf::strong_actor_ptr there)
      : caf::monitorable_actor(config), via_(std::move(via)), here_(here), there_(std::move(there)) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    if (via_)
      via_->carry(here_, element->sender, there_, element->mid, element->move_content_to_message());
  }

  const char* name() const override { return "far_actor"; }
  const caf::strong_actor_ptr& there() const noexcept { return there_; }

  /// As the middleman does when the connection is lost: requests to it are not answered.
  void lose() {
    const auto last = std::exchange(via_, nullptr);
    there_ = nullptr;
    cleanup(caf::make_error(caf::exit_reason::remote_link_unreachable), nullptr);
  }

private:
  std::shared_ptr<line> via_;
  line::side here_;
  caf::strong_actor_ptr there_;
};

line::side other(line::side x) {
  return x == line::client ? line::node : line::client;
}

/// Requests that a coordinator asks again when they are lost, and their answers.
template <class... Ts>
bool is_one_of(const caf::message& x) {
  return (x.match_elements<Ts>() || ...) || x.match_elements<commit_atom, finish_request>() ||
         x.match_elements<abort_atom, finish_request>();
}

bool is_repeatable(const caf::message& x) {
  return is_one_of<match_request, locate_request, reserve_request>(x);
}

constexpr ppm lost = 3'000;
constexpr ppm doubled = 3'000;

/// Chance that the line is cut soon after a rare request has reached the node, mostly before it is answered. Before the
/// answers to others, enough lines are cut anyway.
constexpr ppm left = 400'000;

bool is_rare(const caf::message& x) {
  return x.match_elements<invalidate_request>();
}

} // namespace

line::line(environment& world, process& client_side, process& node_side, line_watch& watch)
    : world_(world), random_(world.random.fork()), watch_(watch),
      requests_([&world](const std::string& name) { world.count(name); }) {
  ends_[client].in = &client_side;
  ends_[node].in = &node_side;
}

caf::strong_actor_ptr line::far(side here, const caf::strong_actor_ptr& there) {
  if (!there || ends_[0].in == nullptr || ends_[1].in == nullptr)
    return nullptr;
  auto& known = ends_[here].far[there->id()];
  if (!known) {
    caf::actor_config config;
    known = caf::make_actor<far_actor, caf::strong_actor_ptr>(
        there->id(), ends_[other(here)].in->node(), &ends_[here].in->system(), config, shared_from_this(), here, there);
  }
  return known;
}

bool line::may_be_lost(const caf::message& what) const {
  return world_.p.nemesis.cut && !world_.winding_down &&
         (is_repeatable(what) || what.match_elements<locate_reply>() || what.match_elements<reserve_reply>() ||
          what.match_elements<finish_reply>() || what.match_elements<match_reply>());
}

void line::carry(side here, caf::strong_actor_ptr sender, const caf::strong_actor_ptr& to, caf::message_id id,
                 caf::message what) {
  if (!to || ends_[here].in == nullptr)
    return;
  // Said is also what gets lost since the line is cut, or the node dead, and this side does not know it yet.
  if (here == client && !watch_.says(sender, to, id, what))
    return;
  if (!open_)
    return;
  if (may_be_lost(what) && random_.chance(lost)) {
    world_.count("fault: lost message");
    return;
  }
  int times = 1;
  // A lookup that is delivered twice may find more the second time, which was not requested.
  if (world_.p.nemesis.cut && !world_.winding_down && here == client && is_repeatable(what) &&
      !what.match_elements<match_request>() && random_.chance(doubled)) {
    world_.count("fault: doubled message");
    ++times;
  }
  const auto there = other(here);
  auto& at = ends_[there].last;
  at = std::max<timestamp>(at + duration(1),
                           world_.now() + random_.skewed_time(std::chrono::microseconds(20), world_.p.network_delay));
  ends_[there].parcels.push_back({std::move(sender), to, id, std::move(what), times});
  world_.schedule.at(at, [self = shared_from_this(), there] {
    auto& parcels = self->ends_[there].parcels;
    if (parcels.empty()) // lost with the line
      return self->world_.schedule.idle();
    const auto next = std::move(parcels.front());
    parcels.pop_front();
    for (int i = 0; i < next.times; ++i)
      self->deliver(there, next);
  });
}

caf::message line::translate(side there, const caf::message& what) {
  const auto known_there = [&](const auto& handle) {
    using handle_type = std::decay_t<decltype(handle)>;
    return caf::actor_cast<handle_type>(far(there, caf::actor_cast<caf::strong_actor_ptr>(handle)));
  };
  if (what.match_elements<attach_request, caf::actor>()) {
    auto request = what.get_as<attach_request>(0);
    request.process = watch_.process_number();
    return caf::make_message(request, known_there(what.get_as<caf::actor>(1)));
  }
  if (!what.match_elements<attach_reply>())
    return what;
  auto reply = what.get_as<attach_reply>(0);
  for (auto& x : reply.shards)
    x = known_there(x);
  for (auto& x : reply.ranks)
    x.worker = known_there(x.worker);
  return caf::make_message(std::move(reply));
}

void line::deliver(side there, const parcel& x) {
  world_.trace(there == node ? "to node" : "to client", {x.to->id(), x.id.integer_value(), ++carried_});
  auto what = x.what;
  if (there == client && !watch_.hears(x.sender, x.to, x.id, what))
    return;
  note(there, x);
  x.to->get()->enqueue(far(there, x.sender), x.id, translate(there, what), nullptr);
}

void line::note(side there, const parcel& x) {
  if (there == node && x.id.is_request() && x.sender) {
    if (world_.p.nemesis.cut && !world_.winding_down && is_rare(x.what) && random_.chance(left))
      world_.schedule.after(random_.skewed_time(duration(1), 4 * world_.p.network_delay), [self = shared_from_this()] {
        if (self->open_)
          self->world_.count("fault: cut line before an answer");
        self->cut();
      });
    requests_.asked({x.sender->id(), x.id.request_id().integer_value()}, name_of(ends_[node].in->system(), x.what));
  }
  if (there == client && x.id.is_response())
    requests_.answered({x.to->id(), x.id.request_id().integer_value()});
}

void line::cut() {
  if (!std::exchange(open_, false))
    return;
  for (auto& x : ends_)
    x.parcels.clear();
  if (ends_[node].in != nullptr)
    requests_.abandon_all();
  for (const auto here : {client, node})
    if (ends_[here].in != nullptr)
      world_.schedule.after(world_.random.skewed_time(world_.p.notice_min, world_.p.notice_max),
                            [self = shared_from_this(), here] { self->notice(here); });
}

void line::notice(side here) {
  if (here == client && ends_[here].in != nullptr)
    watch_.line_is_lost(*this);
  for (auto& [id, x] : std::exchange(ends_[here].far, {}))
    static_cast<far_actor*>(x->get())->lose();
}

void line::forget(side here) {
  cut();
  notice(here);
  ends_[here].in = nullptr;
}

} // namespace troupe::simulation
