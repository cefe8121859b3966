#include "http/server/connection.hpp"

#include "http/server/json_body.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace troupe::http {

namespace {

using std::chrono::steady_clock;

/// Answers are written when this many bytes are ready, or when there is nothing else to do.
constexpr std::size_t flush_bytes = std::size_t{64} * 1024;
/// A longer `Host` is checked each time.
constexpr std::size_t kept_host_bytes = 128;
/// The body of a refused request is skipped up to this size, so that the connection can continue.
constexpr std::uint64_t passed_over_bytes = std::uint64_t{64} * 1024;
/// How long a client has to read the last answer and to close.
constexpr duration linger_time = std::chrono::seconds{1};
/// How long a connection beyond the limit may take to send a probe: monitoring sends it at once.
constexpr duration reserve_time = std::chrono::seconds{2};

constexpr std::string_view go_ahead = "HTTP/1.1 100 Continue\r\n\r\n";

} // namespace

connection::connection(connection_context& owner, std::uint64_t id, const arrival& came)
    : owner_(owner), shared_(owner.shared()), id_(id), came_(came),
      reader_(owner.shared().config.limits.header_bytes, &owner.shared().receiving) {}

void connection::start() {
  const auto now = steady_clock::now();
  deadline_ = later(now, shared_.config.limits.receive_time);
  if (came_.is_reserve())
    deadline_ = reserve_deadline_ = std::min(deadline_, later(now, reserve_time));
  start_handshake();
}

response connection::no_room() const {
  const auto& limits = shared_.config.limits;
  if (came_.what == arrival::kind::reserve_of_address)
    return response::failure(status::service_unavailable, "there are " +
                                                              std::to_string(limits.connections_per_address) +
                                                              " connections from this address, which is the limit");
  return response::failure(status::service_unavailable,
                           "there are " + std::to_string(limits.connections) + " connections, which is the limit");
}

void connection::on_handshake(bool is_ok) {
  if (phase_ != phase::handshake)
    return;
  if (!is_ok)
    return close();
  phase_ = phase::open;
  clock_.read();
  run();
}

/// Proceeds as far as possible. Called when neither a read nor a write is in progress, or when the connection is
/// ending.
void connection::run() {
  while (phase_ == phase::open) {
    const auto has_to_wait = is_awaiting_ || is_ending_;
    if (!output_.is_empty() && (has_to_wait || output_.size() >= flush_bytes)) {
      if (!flush())
        return;
      continue;
    }
    if (is_awaiting_)
      return;
    if (is_ending_)
      return linger();
    switch (reader_.advance()) {
    case request_reader::step::headers:
      admit();
      break;
    case request_reader::step::complete:
      handle();
      break;
    case request_reader::step::malformed:
      refuse_malformed();
      break;
    case request_reader::step::need_more:
      if (!output_.is_empty()) {
        if (!flush())
          return;
        break;
      }
      if (owner_.is_draining() && reader_.is_empty())
        return close();
      return read_more();
    }
  }
}

void connection::read_more() {
  const auto& limits = shared_.config.limits;
  const bool has_begun = !reader_.is_empty();
  deadline_ = later(clock_.begin_wait(has_begun), has_begun ? limits.receive_time : limits.idle_time);
  deadline_ = std::min(deadline_, reserve_deadline_);
  is_matched_ = false;
  is_reading_ = true;
  start_read(reader_.unfilled());
}

void connection::on_read(std::size_t bytes) {
  is_reading_ = false;
  if (phase_ == phase::closed)
    return;
  if (bytes == 0)
    return is_writing_ ? void() : close();
  if (phase_ == phase::lingering) {
    is_reading_ = true;
    return start_read(reader_.unfilled());
  }
  if (is_ending_)
    return;
  clock_.bytes_arrived();
  reader_.received(bytes);
  run();
}

/// True if everything could be written at once.
bool connection::flush() {
  const auto bytes = output_.begin_write();
  const auto written = write_now(bytes);
  if (!written) {
    close();
    return false;
  }
  if (*written == bytes.size()) {
    output_.written();
    return true;
  }
  is_writing_ = true;
  write_deadline_ = later(steady_clock::now(), shared_.config.limits.write_time);
  start_write(bytes.substr(*written));
  return false;
}

void connection::on_written(bool is_ok) {
  is_writing_ = false;
  write_deadline_ = timestamp::max();
  if (phase_ == phase::closed)
    return;
  if (!is_ok)
    return close();
  output_.written();
  clock_.read();
  run();
}

void connection::linger() {
  phase_ = phase::lingering;
  deadline_ = later(steady_clock::now(), linger_time);
  if (!end_sending())
    return;
  if (!is_reading_) {
    is_reading_ = true;
    start_read(reader_.unfilled());
  }
}

void connection::close() noexcept {
  if (phase_ == phase::closed)
    return;
  phase_ = phase::closed;
  close_socket();
  report_end();
  owner_.forget(id_);
}

/// The headers of a request are complete: decides whether it is admitted before its body takes memory.
void connection::admit() {
  ++number_;
  const auto announced = reader_.announced_body();
  refusal_ = judge();
  if (!refusal_) {
    const auto limit = shared_.config.limits.body_bytes;
    reader_.limit_body(route_->max_body_bytes == 0 ? limit : std::min(limit, route_->max_body_bytes));
    if (reader_.expects_continue() && (!announced || *announced > 0))
      output_.append(go_ahead);
    return;
  }
  reader_.limit_body(passed_over_bytes);
  const auto can_pass_over = announced && *announced <= passed_over_bytes && !reader_.expects_continue();
  if (can_pass_over || announced == 0U)
    return;
  is_ending_ = true;
  clock_.refuse();
  finish(*refusal_);
}

/// The answer to a request that is not admitted.
std::optional<response> connection::judge() {
  const auto method = reader_.method();
  caller_ = unknown_caller();
  is_head_ = method == http::method::head;
  auto& found = owner_.match();
  shared_.routes.match(method, reader_.target(), found);
  is_matched_ = true;
  route_ = found.route;
  if (came_.is_reserve() && (route_ == nullptr || !route_->is_probe))
    return no_room();
  if (route_ == nullptr) {
    auto answer = response::failure(found.code, found.detail);
    if (found.code == status::method_not_allowed)
      answer.add_header("Allow", found.allow);
    return answer;
  }
  if (auto answer = judge_caller(*route_))
    return answer;
  if (auto answer = judge_rate(*route_))
    return answer;
  const auto& limits = shared_.config.limits;
  const auto limit =
      route_->max_body_bytes == 0 ? limits.body_bytes : std::min(limits.body_bytes, route_->max_body_bytes);
  if (const auto announced = reader_.announced_body(); announced && *announced > limit)
    return response::failure(status::content_too_large, "the body has " + std::to_string(*announced) +
                                                            " bytes; the limit of this request is " +
                                                            std::to_string(limit));
  return std::nullopt;
}

std::optional<response> connection::judge_caller(const route& r) {
  // No browser uses the Unix socket.
  if (came_.is_local) {
    caller_ = local_caller();
    return std::nullopt;
  }
  const auto* tokens = owner_.refreshed_credentials().tokens.get();
  if (tokens == nullptr) {
    caller_ = anonymous_caller();
    // A web page, in a browser on a machine with access.
    if (reader_.has_origin() && r.needs != role::none)
      return response::failure(status::forbidden, "requests of web pages are refused without http.tokens_file");
    const auto is_meant = is_host_meant(reader_.host()) && shared_.hosts.allows_target(reader_.target());
    if (!is_meant && r.needs != role::none)
      return response::failure(status::misdirected_request,
                               "the Host header names another server; list further names of this one in http.hosts; "
                               "with http.tokens_file any name is accepted");
    return std::nullopt;
  }
  const auto token = reader_.bearer_token();
  if (auto known = token.empty() ? nullptr : tokens->find(token))
    caller_ = std::move(known);
  if (caller_->grants >= r.needs) {
    if (!r.shows_all_namespaces || !caller_->is_limited())
      return std::nullopt;
    return response::failure(status::forbidden, "this shows all namespaces, but the token is limited to some");
  }
  if (caller_->grants == role::none) {
    auto answer =
        response::failure(status::unauthorized, token.empty() ? "this needs a token: send \"Authorization: Bearer …\""
                                                              : "the token is not known here");
    answer.add_header("WWW-Authenticate",
                      token.empty() ? "Bearer realm=\"troupe\"" : "Bearer realm=\"troupe\", error=\"invalid_token\"");
    return answer;
  }
  auto answer =
      response::failure(status::forbidden, "this needs the role \"" + std::string{to_string(r.needs)} +
                                               "\", the token has \"" + std::string{to_string(caller_->grants)} + "\"");
  answer.add_header("WWW-Authenticate", "Bearer realm=\"troupe\", error=\"insufficient_scope\"");
  return answer;
}

/// A client sends the same host each time, and the result does not change.
bool connection::is_host_meant(std::string_view host) {
  if (host.empty() || host == allowed_host_)
    return true;
  if (!shared_.hosts.allows(host))
    return false;
  if (host.size() <= kept_host_bytes)
    allowed_host_ = host;
  return true;
}

std::optional<response> connection::judge_rate(const route& r) {
  if (!shared_.rates.is_limited() || r.needs == role::none)
    return std::nullopt;
  const auto wait = shared_.rates.take(caller_->identity, clock_.arrival());
  if (!wait)
    return std::nullopt;
  auto answer =
      response::failure(status::too_many_requests, "the caller exceeds http.limits.requests_per_second, which is " +
                                                       std::to_string(shared_.config.limits.requests_per_second));
  answer.add_header("Retry-After", std::to_string(std::chrono::ceil<std::chrono::seconds>(*wait).count()));
  return answer;
}

/// A request is complete.
void connection::handle() {
  clock_.begin_handling();
  if (refusal_)
    return finish(*refusal_);
  auto& found = owner_.match();
  if (!is_matched_)
    shared_.routes.match(reader_.method(), reader_.target(), found);
  request_parts parts;
  parts.method = reader_.method().value_or(http::method::get);
  parts.target = reader_.target();
  parts.path_parameters = std::span{found.path_parameters}.first(found.path_parameter_count);
  parts.query_parameters = found.query_parameters;
  parts.headers = reader_.headers();
  parts.body = reader_.body();
  parts.who = caller_;
  parts.arrival = clock_.arrival();
  parts.at_end = &at_end_;
  const auto more = json_reading_bytes(parts.body.size());
  if (more > 0 && !shared_.reading.take(more))
    return finish(
        response::failure(status::service_unavailable,
                          "the requests that are being parsed use all the memory that they may; try again later"));
  const byte_claim claim{shared_.reading, more};
  call_handler(request{parts});
  if (more > 0)
    release_large_parser();
}

void connection::call_handler(const request& r) {
  is_awaiting_ = true;
  std::string thrown;
  auto at_once = owner_.call(*route_, r, {id_, number_}, thrown);
  if (!thrown.empty()) {
    shared_.log->error("handler of {} failed: {}", route_->name, thrown);
    if (!at_once || !at_once->answer)
      return finish(response::failure(status::internal_server_error, "internal error; see the log of the server"));
  }
  if (!at_once) {
    deadline_ = later(later(clock_.handled(), shared_.config.limits.answer_time), route_->may_wait);
    return;
  }
  if (at_once->answer)
    return finish(*at_once->answer);
  finish(dropped());
}

void connection::answer(std::uint64_t number, response&& x) {
  if (phase_ != phase::open || !is_awaiting_ || number != number_)
    return;
  finish(x);
  if (!is_writing_)
    run();
}

void connection::drop(std::uint64_t number) {
  if (phase_ != phase::open || !is_awaiting_ || number != number_)
    return;
  answer(number, dropped());
}

response connection::dropped() {
  shared_.log->error("handler of {} dropped a request without an answer", route_->name);
  return response::failure(status::internal_server_error, "the server dropped this request");
}

/// The client no longer waits for the answer to the pending request.
void connection::report_end() noexcept {
  const auto then = std::exchange(at_end_, nullptr);
  if (!then)
    return;
  try {
    then();
  } catch (const std::exception& e) {
    shared_.log->error("handling the end of a client failed: {}", e.what());
  }
}

/// Answers the pending request.
void connection::finish(const response& x) {
  is_awaiting_ = false;
  at_end_ = nullptr;
  // A responder that still exists is too late from now on.
  const auto keep_alive = !is_ending_ && reader_.keep_alive() && !owner_.is_draining() && !came_.is_reserve();
  is_ending_ = !keep_alive;
  const auto length = output_.append(x, {.is_head = is_head_,
                                         .keep_alive = keep_alive,
                                         .is_http_1_0 = reader_.is_http_1_0(),
                                         .date = owner_.date_header()});
  record(route_ == nullptr ? "unmatched" : std::string_view{route_->name}, x.code, reader_.bytes_in(), length);
  refusal_.reset();
  route_ = nullptr;
  clock_.next_request();
  reader_.next();
}

void connection::refuse_malformed() {
  is_ending_ = true;
  clock_.refuse();
  caller_ = unknown_caller();
  const auto length = output_.append(response::failure(reader_.failure_code(), reader_.failure_detail()),
                                     {.keep_alive = false, .date = owner_.date_header()});
  record("malformed", reader_.failure_code(), reader_.bytes_in(), length);
}

/// A request was not received in time. The pending read continues.
void connection::refuse_late_request() {
  is_ending_ = true;
  deadline_ = timestamp::max();
  clock_.refuse();
  caller_ = unknown_caller();
  const auto answer = came_.is_reserve()
                          ? no_room()
                          : response::failure(status::request_timeout, "the request was not received in time");
  const auto length = output_.append(answer, {.keep_alive = false, .date = owner_.date_header()});
  record("malformed", answer.code, reader_.bytes_in(), length);
  if (!is_writing_)
    run();
}

void connection::record(std::string_view route_name, status code, std::uint64_t bytes_in,
                        std::size_t bytes_out) noexcept {
  const auto latest = clock_.read();
  if (shared_.watcher != nullptr)
    shared_.watcher->request_finished({route_name, code, clock_.handled() - clock_.arrival(), latest - clock_.arrival(),
                                       bytes_in, bytes_out, caller_->name});
}

void connection::check(timestamp now) {
  if (phase_ == phase::closed)
    return;
  if (now >= write_deadline_)
    return close();
  if (is_awaiting_ && at_end_ && peer_has_ended())
    report_end();
  if (now < deadline_)
    return;
  if (phase_ != phase::open)
    return close();
  if (is_awaiting_) {
    shared_.log->warn("{} did not answer in time", route_->name);
    report_end();
    return answer(number_, response::failure(status::gateway_timeout, "this request was not answered in time"));
  }
  if (is_writing_)
    return;
  // No operation is in progress only after an error in between, as when there was no memory.
  if (!is_reading_ || (reader_.is_empty() && !came_.is_reserve()))
    return close();
  refuse_late_request();
}

void connection::drain() {
  const auto is_idle = !is_awaiting_ && !is_writing_ && !is_ending_ && reader_.is_empty();
  if (phase_ == phase::handshake || (phase_ == phase::open && is_idle))
    close();
}

} // namespace troupe::http
