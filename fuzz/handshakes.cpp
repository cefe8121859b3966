#include "fuzz/handshakes.hpp"

#include "fuzz/accepted.hpp"
#include "fuzz/check.hpp"
#include "handshake/directory_state.hpp"
#include "http/handshake/handshake_body.hpp"
#include "http/server/json_body.hpp"
#include "http/server/request_reader.hpp"
#include "http/server/router.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

namespace troupe::fuzz {

namespace {

using http::response;

constexpr std::uint64_t most_handshake_header = 2048;
constexpr std::uint64_t most_payload = 1024;
constexpr std::uint64_t most_payloads = 3000;

handshake::directory_options small_directory() {
  handshake::directory_options out;
  out.payload_bytes_max = most_payload;
  out.bytes_max = most_payloads;
  out.ranks_max = 64;
  out.engines_max = 3;
  out.waiting_max = 4;
  return out;
}

/// Checks an answer to any request.
void check_answer(const response& x) {
  demand(static_cast<int>(x.code) >= 200 && static_cast<int>(x.code) < 600, "an answer without a code");
  demand(x.headers.find("\n\n") == std::string::npos && (x.headers.empty() || x.headers.ends_with("\r\n")),
         "headers that end too early");
  if (x.body.empty() || x.content_type != http::json_type)
    return;
  auto padded = x.body;
  padded.append(http::body_padding, ' ');
  demand(http::parse_json(std::string_view(padded).substr(0, x.body.size())).has_value(), "an answer that is not JSON");
}

/// The directory with its protocol, but without actors and sockets: waiting requests are answered when time has passed.
class small_server {
public:
  small_server() {
    using http::method;
    namespace paths = http::handshake::paths;
    add(method::put, paths::rank, &small_server::publish);
    add(method::get, paths::rank, &small_server::fetch_rank);
    add(method::get, paths::engine, &small_server::fetch);
    add(method::get, paths::all, &small_server::list);
    add(method::post, paths::heartbeat, &small_server::heartbeat);
    add(method::delete_, paths::engine, &small_server::withdraw);
    for (const auto pattern : paths::draft)
      add(method::get, pattern, &small_server::draft);
    demand(routes_.check().has_value(), "routes that contradict each other");
  }

  void serve(http::request_reader& reader) {
    routes_.match(reader.method(), reader.target(), found_);
    if (found_.route == nullptr)
      return demand(static_cast<int>(found_.code) >= 400, "an unknown path without a reason");
    http::request_parts parts;
    parts.method = *reader.method();
    parts.target = reader.target();
    parts.path_parameters = std::span(found_.path_parameters).first(found_.path_parameter_count);
    parts.query_parameters = found_.query_parameters;
    parts.headers = reader.headers();
    parts.body = reader.body();
    found_.route->handle(http::request(parts), http::responder(nullptr, {}));
    // Each request comes a moment later than the previous one, and sometimes much later.
    now_ += std::chrono::milliseconds(++requests_ % 7 == 0 ? 20'000 : 100);
    directory_.advance(now_);
    for (const auto& [who, answer] : directory_.take_answers())
      check_answer(http::handshake::to_response("somebody", answer));
    const auto stats = directory_.stats();
    demand(stats.bytes <= most_payloads, "more payload bytes than the limit");
    demand(directory_.find_inconsistency().empty(), "a directory that contradicts itself");
  }

  int accepted() const noexcept { return accepted_; }

private:
  void add(http::method method, std::string_view pattern, void (small_server::*answer)(const http::request&)) {
    http::route r;
    r.name = "handshake";
    r.handle = [this, answer](const http::request& x, http::responder) { (this->*answer)(x); };
    routes_.add(method, pattern, std::move(r));
  }

  void publish(const http::request& r) {
    const auto x = http::handshake::read_publish(r);
    if (!count(x, accepted_))
      return;
    demand(!x->engine.empty() && x->payload == r.body(), "another payload than was sent");
    const auto reply = directory_.publish(*x, now_);
    check_answer(http::handshake::to_response(reply));
    if (reply.code != 0)
      return;
    demand(x->sizes.contains(x->rank), "a rank beyond the sizes of its engine");
    handshake_fetch_request same;
    same.engine = x->engine;
    same.scope = handshake_scope::rank;
    same.rank = x->rank;
    same.incarnation = x->incarnation;
    const auto found = directory_.fetch(same, ++who_, now_);
    demand(found && found->code == 0 && found->entries.size() == 1, "published data is missing");
    const auto answer = http::handshake::to_rank_response(*found);
    check_answer(answer);
    demand(answer.body == x->payload, "another payload is served than was published");
    demand((answer.content_type == http::json_type) == (x->form == handshake_form::json), "another type is served");
  }

  void fetch_rank(const http::request& r) {
    const auto x = http::handshake::read_fetch_rank(r);
    if (!count(x, accepted_))
      return;
    demand(x->scope == handshake_scope::rank, "another scope than a rank");
    if (const auto found = directory_.fetch(*x, ++who_, now_))
      check_answer(http::handshake::to_rank_response(*found));
  }

  void fetch(const http::request& r) {
    const auto x = http::handshake::read_fetch(r);
    if (!count(x, accepted_))
      return;
    if (const auto found = directory_.fetch(*x, ++who_, now_)) {
      demand(std::is_sorted(found->entries.begin(), found->entries.end(),
                            [](const auto& a, const auto& b) { return a.rank < b.rank; }),
             "ranks that are not in their order");
      check_answer(http::handshake::to_response(x->engine, *found));
    }
  }

  void list(const http::request&) {
    ++accepted_;
    check_answer(http::handshake::to_response(directory_.list({}, now_)));
  }

  void heartbeat(const http::request& r) {
    if (const auto x = http::handshake::read_heartbeat(r); count(x, accepted_))
      check_answer(http::handshake::to_response(directory_.heartbeat(*x, now_)));
  }

  void withdraw(const http::request& r) {
    if (const auto x = http::handshake::read_withdraw(r); count(x, accepted_))
      check_answer(http::handshake::to_empty_response(directory_.withdraw(*x, now_)));
  }

  void draft(const http::request& r) {
    const auto x = http::handshake::read_draft(r);
    if (!count(x, accepted_))
      return;
    if (const auto found = directory_.fetch(*x, ++who_, now_))
      check_answer(http::handshake::to_draft_response(x->engine, *found));
  }

  http::router routes_;
  http::route_match found_;
  handshake::directory_state directory_{small_directory()};
  timestamp now_ = timestamp{} + std::chrono::hours(1);
  std::uint64_t requests_ = 0;
  handshake::directory_state::number who_ = 0;
  int accepted_ = 0;
};

} // namespace

int read_handshakes(std::string_view text) {
  small_server server;
  http::request_reader reader(most_handshake_header);
  for (;;) {
    switch (reader.advance()) {
    case http::request_reader::step::headers:
      reader.limit_body(most_payload + 100);
      break;
    case http::request_reader::step::complete:
      server.serve(reader);
      reader.next();
      break;
    case http::request_reader::step::malformed:
      return server.accepted();
    case http::request_reader::step::need_more: {
      const auto into = reader.unfilled();
      const auto size = std::min(text.size(), into.size());
      if (size == 0)
        return server.accepted();
      text.copy(into.data(), size);
      text.remove_prefix(size);
      reader.received(size);
    }
    }
  }
}

} // namespace troupe::fuzz
