#include "http/handshake/handshake.hpp"

#include "actors/support/ask.hpp"
#include "base/byte_budget.hpp"
#include "http/handshake/handshake_body.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::http::handshake {

namespace {

/// State shared by all routes; lives as long as the last pending request.
struct directory_parts {
  directory_parts(caf::actor_system& s, directory_actor d, std::uint64_t answers)
      : system(s), directory(std::move(d)), answers_under_way(std::make_shared<byte_budget>(answers)) {}

  caf::actor_system& system;
  const directory_actor directory;
  const std::shared_ptr<byte_budget> answers_under_way;
};

using parts_ptr = std::shared_ptr<const directory_parts>;
using handler_function = void (*)(const parts_ptr&, const request&, responder);

void send(const shared_responder& reply, response answer) {
  std::move(*reply).send(std::move(answer));
}

/// Sends a request to the directory, and answers with the text that `text` makes of the reply.
template <class Reply, class Text, class Request>
void answer_with(const parts_ptr& parts, const shared_responder& reply, Request x, Text text) {
  ask<Reply>(
      parts->system, parts->directory,
      [reply, text = std::move(text)](const result<Reply>& answer) {
        send(reply, answer ? text(*answer) : response::failure(answer.error()));
      },
      std::move(x));
}

/// The answer to a fetch, if there is room for its text until it has been sent: many clients may wait for the same
/// payload and read at any speed.
template <class Text>
response text_in_budget(const parts_ptr& parts, const handshake_fetch_reply& x, bool as_json, const Text& text) {
  if (x.entries.empty())
    return text(x);
  const auto room = shared_claim(parts->answers_under_way, answer_bytes(x, as_json));
  if (!room)
    return too_many_answers();
  auto out = text(x);
  out.claim = room;
  return out;
}

/// The same for requests that may wait; they are cancelled when the client disconnects. A client that has closed only
/// its own side is still answered.
template <class Text>
void answer_in_time(const parts_ptr& parts, const request& r, const shared_responder& reply, handshake_fetch_request x,
                    bool as_json, Text text) {
  const bool may_wait = x.wait > duration::zero();
  const auto cancel = ask_for_long<handshake_fetch_reply>(
      parts->system, parts->directory,
      [parts, reply, as_json, text = std::move(text)](const result<handshake_fetch_reply>& answer) {
        send(reply, answer ? text_in_budget(parts, *answer, as_json, text) : response::failure(answer.error()));
      },
      std::move(x));
  if (may_wait)
    r.if_client_ends([cancel, reply] {
      if (cancel())
        send(reply, response::failure(status::not_found,
                                      "the client closed its side of the connection, which ended its wait"));
    });
}

/// A token that is limited to namespaces is limited to engines of such names. Other engines do not exist for it.
bool is_hidden(const request& r, std::string_view engine, const shared_responder& reply) {
  if (r.who()->may_use(engine))
    return false;
  send(reply, response::failure(status::not_found, "there is no engine of this name"));
  return true;
}

void publish(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_publish(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (!r.who()->may_use(x->engine))
    return send(reply,
                response::failure(status::forbidden, "the token is limited to other names than \"" + x->engine + "\""));
  answer_with<handshake_reply>(parts, reply, std::move(*x), [](const handshake_reply& y) { return to_response(y); });
}

void fetch_rank(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_fetch_rank(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (!is_hidden(r, x->engine, reply))
    answer_in_time(parts, r, reply, std::move(*x), false, to_rank_response);
}

void fetch(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_fetch(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (is_hidden(r, x->engine, reply))
    return;
  auto text = [engine = x->engine](const handshake_fetch_reply& y) { return to_response(engine, y); };
  answer_in_time(parts, r, reply, std::move(*x), true, std::move(text));
}

void heartbeat(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_heartbeat(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (!is_hidden(r, x->engine, reply))
    answer_with<handshake_reply>(parts, reply, std::move(*x), [](const handshake_reply& y) { return to_response(y); });
}

void withdraw(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_withdraw(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (!is_hidden(r, x->engine, reply))
    answer_with<handshake_reply>(parts, reply, std::move(*x), to_empty_response);
}

void list(const parts_ptr& parts, const request& r, responder responder) {
  answer_with<handshake_list_reply>(
      parts, share(std::move(responder)), handshake_list_request{}, [parts, who = r.who()](handshake_list_reply all) {
        std::erase_if(all.engines, [&](const auto& x) { return !who->may_use(x.engine); });
        auto out = to_response(all);
        if (!all.engines.empty()) {
          out.claim = shared_claim(parts->answers_under_way, out.body.size());
          if (!out.claim)
            return too_many_answers();
        }
        return out;
      });
}

// -- the draft --------------------------------------------------------------------------------------------------------

auto draft_text(std::string engine) {
  return [engine = std::move(engine)](const handshake_fetch_reply& x) { return to_draft_response(engine, x); };
}

/// The draft had one engine on each server. With several engines, the query has to name one. A request without a name
/// does not wait.
void draft(const parts_ptr& parts, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  auto x = read_draft(r);
  if (!x)
    return send(reply, to_response(x.error()));
  if (!x->engine.empty()) {
    auto text = draft_text(x->engine);
    if (!is_hidden(r, x->engine, reply))
      answer_in_time(parts, r, reply, std::move(*x), true, std::move(text));
    return;
  }
  x->wait = {};
  ask<handshake_list_reply>(
      parts->system, parts->directory,
      [parts, reply, who = r.who(), x = std::move(*x)](const result<handshake_list_reply>& all) mutable {
        if (!all)
          return send(reply, response::failure(all.error()));
        std::vector<std::string> names;
        for (const auto& each : all->engines)
          if (who->may_use(each.engine))
            names.push_back(each.engine);
        if (names.size() != 1)
          return send(reply, response::failure(status::not_found,
                                               names.empty() ? "no engine has published its metadata yet"
                                                             : "there are several engines: name one, ?engine_id=…"));
        x.engine = names.front();
        answer_with<handshake_fetch_reply>(parts, reply, std::move(x),
                                           [parts, text = draft_text(names.front())](const handshake_fetch_reply& y) {
                                             return text_in_budget(parts, y, true, text);
                                           });
      },
      handshake_list_request{});
}

struct known_route {
  described_route what;
  handler_function handle;
};

constexpr std::array<known_route, 9> known_routes{{
    {{method::put, paths::rank, "handshake_publish", role::write}, publish},
    {{method::get, paths::rank, "handshake_fetch_rank", role::read}, fetch_rank},
    {{method::get, paths::engine, "handshake_fetch", role::read}, fetch},
    {{method::get, paths::all, "handshake_list", role::read}, list},
    {{method::post, paths::heartbeat, "handshake_heartbeat", role::write}, heartbeat},
    {{method::delete_, paths::engine, "handshake_withdraw", role::write}, withdraw},
    {{method::get, paths::draft[0], "handshake_draft", role::read, true}, draft},
    {{method::get, paths::draft[1], "handshake_draft_row", role::read, true}, draft},
    {{method::get, paths::draft[2], "handshake_draft_rank", role::read, true}, draft},
}};

constexpr std::array<described_route, known_routes.size()> descriptions = [] {
  std::array<described_route, known_routes.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = known_routes[i].what;
  return out;
}();

} // namespace

std::span<const described_route> described_routes() noexcept {
  return descriptions;
}

void add_routes(router& routes, caf::actor_system& system, const directory_actor& directory, const options& options) {
  const auto parts = std::make_shared<const directory_parts>(system, directory, options.max_answer_bytes);
  for (const auto& x : known_routes) {
    if (x.what.is_of_draft && !options.vllm_draft)
      continue;
    route r;
    r.name = x.what.name;
    r.needs = x.what.needs;
    r.handle = [parts, handle = x.handle](const request& y, responder reply) { handle(parts, y, std::move(reply)); };
    r.max_body_bytes = options.max_payload_bytes;
    r.may_wait = options.max_wait;
    routes.add(x.what.method, x.what.pattern, std::move(r));
  }
}

} // namespace troupe::http::handshake
