#include "tests/actors/sim.hpp"

#include <algorithm>

namespace troupe::test {

namespace {

/// Marks the requests of probes, so that their numbers cannot be mistaken for something else.
constexpr std::uint64_t first_request = 1'000'000;

} // namespace

probe_actor::probe_actor(caf::actor_config& config) : caf::monitorable_actor(config) {}

void probe_actor::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  std::lock_guard guard(mutex_);
  if (dead_)
    return;
  inbox_.push_back({element->sender, element->mid, element->move_content_to_message()});
}

probe::probe(caf::actor_system& system) : probe(system, system.node()) {}

probe::probe(caf::actor_system& system, const caf::node_id& home) {
  caf::actor_config config;
  self_ = caf::make_actor<probe_actor, caf::strong_actor_ptr>(system.next_actor_id(), home, &system, config);
}

probe::~probe() {
  die();
}

probe_actor& probe::actor() const {
  return *caf::actor_cast<probe_actor*>(self_);
}

std::uint64_t probe::request(const caf::strong_actor_ptr& to, caf::message content) {
  const auto number = first_request + ++actor().last_request_;
  to->get()->enqueue(self_, caf::message_id(number).with_category(caf::message_id::normal_message_category),
                     std::move(content), nullptr);
  return number;
}

answer probe::answer_to(std::uint64_t number) {
  const auto wanted = caf::message_id(number).with_category(caf::message_id::normal_message_category).response_id();
  answer out;
  std::lock_guard guard(actor().mutex_);
  auto& inbox = actor().inbox_;
  for (auto i = inbox.begin(); i != inbox.end();) {
    if (!i->id.is_response() || i->id.integer_value() != wanted.integer_value()) {
      ++i;
      continue;
    }
    REQUIRE_FALSE(out.came); // answered twice
    out.came = true;
    out.content = i->content;
    if (i->content.match_elements<caf::error>())
      out.failure = from_caf(i->content.get_as<caf::error>(0));
    i = inbox.erase(i);
  }
  return out;
}

std::size_t probe::answers_left() {
  std::lock_guard guard(actor().mutex_);
  const auto& inbox = actor().inbox_;
  return static_cast<std::size_t>(
      std::count_if(inbox.begin(), inbox.end(), [](const auto& x) { return x.id.is_response(); }));
}

std::vector<received> probe::take_answers() {
  std::vector<received> out;
  std::vector<received> rest;
  std::lock_guard guard(actor().mutex_);
  for (auto& x : actor().inbox_)
    (x.id.is_response() ? out : rest).push_back(std::move(x));
  actor().inbox_ = std::move(rest);
  return out;
}

std::size_t probe::inbox_size() {
  std::lock_guard guard(actor().mutex_);
  return actor().inbox_.size();
}

std::vector<received> probe::take_if(bool (*wanted)(const caf::message&)) {
  std::vector<received> out;
  std::vector<received> rest;
  std::lock_guard guard(actor().mutex_);
  for (auto& x : actor().inbox_)
    (!x.id.is_response() && wanted(x.content) ? out : rest).push_back(std::move(x));
  actor().inbox_ = std::move(rest);
  return out;
}

void probe::reply(const received& to, caf::message content) {
  if (to.id.is_request() && to.sender)
    to.sender->get()->enqueue(self_, to.id.response_id(), std::move(content), nullptr);
}

void probe::reply_error(const received& to, errc code) {
  reply(to, caf::make_message(to_caf(error{code, "said the probe"})));
}

void probe::die() {
  std::vector<received> last;
  {
    std::lock_guard guard(actor().mutex_);
    actor().dead_ = true;
    std::swap(last, actor().inbox_);
  }
  actor().cleanup(caf::exit_reason::kill, nullptr);
}

struct sim::config : caf::actor_system_config {
  explicit config(void (*adjust)(caf::actor_system_config&)) {
    register_messages(*this);
    set("scheduler.policy", caf::atom("testing"));
    if (adjust != nullptr)
      adjust(*this);
  }
};

sim::sim(void (*adjust)(caf::actor_system_config&))
    : config_(std::make_unique<config>(adjust)), system_(std::make_unique<caf::actor_system>(*config_)) {
  scheduler_ = dynamic_cast<caf::scheduler::test_coordinator*>(&system_->scheduler());
  REQUIRE(scheduler_ != nullptr);
  client_ = std::make_unique<probe>(*system_);
}

sim::~sim() {
  for (const auto& x : spawned_)
    end_actor(x);
  spawned_.clear();
  client_.reset();
  run();
  CHECK(system_->registry().running() == 0);
}

timestamp sim::now() {
  return scheduler_->clock().now();
}

void sim::run() {
  while (scheduler_->try_run_once()) {
  }
}

void sim::advance(duration time) {
  constexpr duration step = std::chrono::milliseconds(10);
  for (; time > duration::zero(); time -= step) {
    scheduler_->advance_time(std::min(step, time));
    run();
  }
}

std::size_t sim::pending_timeouts() {
  return scheduler_->clock().schedule().size();
}

void sim::end_actor(const caf::strong_actor_ptr& actor) {
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  run();
}

} // namespace troupe::test
