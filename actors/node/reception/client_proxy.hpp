#pragma once

#include "actors/node/reception/client_rights.hpp"
#include "messages/messages.hpp"

#include <caf/default_attachable.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

/// Shared parts of the client proxies: the actors to which clients may send messages.
///
/// A remote peer can address every actor whose handle has ever left the process, by its number, and with any message.
/// An actor's handle also leaves as the sender of an answer. So proxies do not delegate: the actor behind a proxy
/// answers to a relay, which forwards the answer in the name of the proxy.

namespace troupe {

/// A relay for the answer to one request of a client; it forwards the answer in the name of `proxy`. It has no mailbox
/// and no thread: it runs in the thread of the actor that answers. A request whose promise is dropped is answered with
/// `unreachable`.
class answer_relay final : public caf::monitorable_actor {
public:
  /// Inspects the answer, and may replace it.
  using look = std::function<void(caf::message&)>;

  answer_relay(caf::actor_config& config, caf::strong_actor_ptr proxy, caf::strong_actor_ptr asker, caf::message_id id,
               std::shared_ptr<client_rights> rights, look at_answer)
      : caf::monitorable_actor(config), proxy_(std::move(proxy)), asker_(std::move(asker)), id_(id),
        rights_(std::move(rights)), at_answer_(std::move(at_answer)) {}

  ~answer_relay() override {
    hand_on(caf::make_message(to_caf(error{errc::unreachable, "the actor ended without answering"})), nullptr);
  }

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override {
    auto content = element->move_content_to_message();
    if (follows_ && content.match_elements<caf::down_msg>())
      return abandon(host);
    hand_on(std::move(content), host);
  }

  /// Ends the relay when the requester ends, so that actors that monitor the relay learn that the answer is not needed
  /// any more. To be called before the request is sent.
  void follow_asker() {
    follows_ = true;
    if (asker_)
      asker_->get()->attach(caf::default_attachable::make_monitor(asker_->get()->address(), address()));
    else
      abandon(nullptr);
  }

  const char* name() const override { return "answer_relay"; }

private:
  void hand_on(caf::message answer, caf::execution_unit* host) {
    if (answered_.exchange(true, std::memory_order_relaxed))
      return;
    if (follows_ && asker_)
      asker_->get()->detach(caf::default_attachable::observe_token{address(), caf::default_attachable::monitor});
    if (at_answer_)
      at_answer_(answer);
    if (rights_)
      rights_->end_request();
    // A message that is no request needs no answer.
    if (asker_ && id_.is_request())
      asker_->enqueue(proxy_, id_.response_id(), std::move(answer), host);
  }

  void abandon(caf::execution_unit* host) {
    if (answered_.exchange(true, std::memory_order_relaxed))
      return;
    if (rights_)
      rights_->end_request();
    cleanup(caf::make_error(caf::exit_reason::user_shutdown), host);
  }

  caf::strong_actor_ptr proxy_;
  caf::strong_actor_ptr asker_;
  caf::message_id id_;
  /// Null where requests are not counted.
  std::shared_ptr<client_rights> rights_;
  look at_answer_;
  bool follows_ = false;
  std::atomic<bool> answered_{false};
};

/// Forwards the request that `self` is handling to another actor, and the answer to the requester. The handler returns
/// the promise that this function returns; nothing is ever delivered through that promise. With `follow_asker`, an
/// actor that monitors the sender of the forwarded request is notified when the requester ends.
template <class Self, class Handle>
caf::response_promise hand_on(Self& self, const Handle& to, std::shared_ptr<client_rights> rights, caf::message request,
                              answer_relay::look at_answer = {}, bool follow_asker = false) {
  auto promise = self.make_response_promise();
  caf::actor_config config;
  const auto relay = caf::make_actor<answer_relay, caf::strong_actor_ptr>(
      self.system().next_actor_id(), self.system().node(), &self.system(), config, caf::strong_actor_ptr(self.ctrl()),
      promise.source(), promise.id(), std::move(rights), std::move(at_answer));
  if (follow_asker)
    static_cast<answer_relay*>(relay->get())->follow_asker();
  caf::actor_cast<caf::strong_actor_ptr>(to)->enqueue(
      relay, caf::message_id(1).with_category(caf::message_id::normal_message_category), std::move(request),
      self.context());
  return promise;
}

/// Whether the request that `self` is handling comes from that process. Actor ids are small numbers, which others can
/// guess.
template <class Self>
bool asked_from(Self& self, const caf::node_id& home) {
  const auto& sender = self.current_sender();
  return sender && sender->node() == home;
}

inline error not_this_client() {
  return {errc::not_owner, "this handle belongs to another client"};
}

/// Restricts `self` to the messages of its interface: unknown messages are rejected, only `master` can end it with an
/// exit message, and down messages and errors of others are ignored.
template <class Self>
void ignore_all_but(Self& self, caf::actor_addr master) {
  self.set_exit_handler([&self, master = std::move(master)](caf::exit_msg& x) {
    if (x.source == master)
      self.quit(std::move(x.reason));
  });
  self.set_down_handler([](caf::down_msg&) {});
  self.set_error_handler([](caf::error&) {});
  self.set_default_handler(caf::drop);
}

} // namespace troupe
