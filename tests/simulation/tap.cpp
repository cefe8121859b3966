#include "tests/simulation/tap.hpp"

namespace troupe::simulation {

/// Takes the answer to one request.
class tap_relay final : public caf::monitorable_actor {
public:
  tap_relay(caf::actor_config& config, caf::strong_actor_ptr at, passing request)
      : caf::monitorable_actor(config), at_(std::move(at)), request_(std::move(request)) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    if (!at_)
      return;
    auto answer = element->move_content_to_message();
    const auto at = std::exchange(at_, nullptr);
    const auto request = std::move(request_);
    const auto& rules = static_cast<tap*>(at->get())->rules_;
    if (rules.on_answer && !rules.on_answer(request, answer))
      return;
    tap::answer(request, std::move(answer));
  }

  const char* name() const override { return "tap_relay"; }

private:
  caf::strong_actor_ptr at_;
  passing request_;
};

namespace {

class deaf final : public caf::monitorable_actor {
public:
  explicit deaf(caf::actor_config& config) : caf::monitorable_actor(config) {}
  void enqueue(caf::mailbox_element_ptr, caf::execution_unit*) override {}
  const char* name() const override { return "deaf"; }
};

template <class Actor, class... Args>
caf::strong_actor_ptr make(caf::actor_system& system, Args&&... args) {
  caf::actor_config config;
  return caf::make_actor<Actor, caf::strong_actor_ptr>(system.next_actor_id(), system.node(), &system, config,
                                                       std::forward<Args>(args)...);
}

} // namespace

tap::tap(caf::actor_config& config, caf::strong_actor_ptr behind, tap_rules rules)
    : caf::monitorable_actor(config), behind_(std::move(behind)), rules_(std::move(rules)) {}

void tap::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  if (!behind_)
    return;
  passing what{element->sender, element->mid, element->move_content_to_message()};
  if (!rules_.on_message || rules_.on_message(what))
    pass(std::move(what));
}

void tap::pass(passing what) {
  if (!behind_)
    return;
  auto sender = what.sender;
  const auto id = what.id;
  auto content = what.content;
  if (id.is_request()) // the actor behind answers to the relay
    sender = make<tap_relay>(home_system(), caf::strong_actor_ptr(ctrl()), std::move(what));
  behind_->get()->enqueue(std::move(sender), id, std::move(content), nullptr);
}

void tap::answer(const passing& request, caf::message content) {
  if (request.sender && request.id.is_request())
    request.sender->get()->enqueue(nullptr, request.id.response_id(), std::move(content), nullptr);
}

caf::strong_actor_ptr make_tap(caf::actor_system& system, caf::strong_actor_ptr behind, tap_rules rules) {
  auto out = make<tap>(system, behind, std::move(rules));
  // A monitor of the tap is notified of the death of the actor behind it.
  const caf::weak_actor_ptr weak = caf::actor_cast<caf::weak_actor_ptr>(out);
  behind->get()->attach_functor([weak](const caf::error& why) {
    if (const auto alive = weak.lock())
      static_cast<tap*>(alive->get())->cleanup(caf::error{why}, nullptr);
  });
  return out;
}

void asker::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  auto node = waiting_.extract(element->mid.integer_value());
  if (node.empty())
    return;
  auto answer = element->move_content_to_message();
  node.mapped()(answer);
}

void asker::end() {
  forget();
  cleanup(caf::make_error(caf::exit_reason::user_shutdown), nullptr);
}

void asker::ask(const caf::strong_actor_ptr& to, caf::message what, then done) {
  const auto id = caf::message_id(++last_).with_category(caf::message_id::normal_message_category);
  waiting_.emplace(id.response_id().integer_value(), std::move(done));
  to->get()->enqueue(caf::strong_actor_ptr(ctrl()), id, std::move(what), nullptr);
}

caf::strong_actor_ptr asker::make(caf::actor_system& system) {
  return simulation::make<asker>(system);
}

caf::strong_actor_ptr make_deaf(caf::actor_system& system) {
  return make<deaf>(system);
}

} // namespace troupe::simulation
