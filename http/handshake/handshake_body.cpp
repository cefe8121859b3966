#include "http/handshake/handshake_body.hpp"

#include "base/base64.hpp"
#include "base/error.hpp"
#include "base/parse_number.hpp"
#include "base/text_parts.hpp"
#include "config/units.hpp"
#include "http/server/json_text.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace troupe::http::handshake {

namespace {

constexpr std::string_view octets = "application/octet-stream";

tl::unexpected<rejection> refuse(std::string detail) {
  return tl::unexpected(rejection{status::unprocessable_content, std::move(detail)});
}

/// Reads parameters one after the other, and keeps the first error.
class parameters {
public:
  explicit parameters(const request& r) : request_(r) {}

  template <class T>
  T number(std::optional<std::string_view> text, std::string_view name, T otherwise) {
    if (!text)
      return otherwise;
    const auto x = parse_number<T>(*text);
    if (!x)
      note(name, "must be a whole number below 2^" + std::to_string(std::numeric_limits<T>::digits), *text);
    return x.value_or(otherwise);
  }

  template <class T>
  T query(std::string_view name, T otherwise) {
    return number(request_.query(name), name, otherwise);
  }

  std::uint32_t path(std::string_view name) { return number<std::uint32_t>(request_.path(name), name, 0); }

  duration time(std::string_view name) {
    const auto text = request_.query(name);
    if (!text)
      return {};
    const auto x = config::parse_time(*text);
    if (!x)
      note(name, "must be a time with its unit, as in \"30s\" or \"500ms\"", *text);
    return x.value_or(duration{});
  }

  bool flag(std::string_view name) {
    const auto text = request_.query(name).value_or("false");
    if (text != "true" && text != "false" && text != "1" && text != "0")
      note(name, "must be true or false", text);
    return text == "true" || text == "1";
  }

  std::string text(std::string_view name) { return std::string(request_.query(name).value_or("")); }

  template <class T>
  accepted<T> done(T x) {
    if (!problem_.empty())
      return refuse(std::move(problem_));
    return x;
  }

private:
  void note(std::string_view name, const std::string& what, std::string_view found) {
    if (problem_.empty())
      problem_ = "\"" + std::string(name) + "\" " + what + ", not \"" + std::string(found.substr(0, 64)) + "\"";
  }

  const request& request_;
  std::string problem_;
};

/// Compares without case; parameters may follow.
bool is_json(const request& r) {
  const auto text = r.header("Content-Type").value_or("");
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(trimmed(text.substr(0, text.find(';'))), json_type, {}, lower);
}

/// The text between the quotes of each tag, separated by commas; `*` stays as it is. Tags of the directory contain no
/// commas, so a tag with one matches none of them, in however many parts.
std::string etag_from(const request& r) {
  std::string out;
  for (auto text = r.header("If-None-Match").value_or(""); !text.empty();) {
    auto one = trimmed(text.substr(0, text.find(',')));
    text.remove_prefix(
        std::min(text.size(), text.find(',') == std::string_view::npos ? text.size() : text.find(',') + 1));
    if (one.starts_with("W/"))
      one.remove_prefix(2);
    const bool is_quoted = one.size() >= 2 && one.front() == '"' && one.back() == '"';
    if (is_quoted)
      one = one.substr(1, one.size() - 2);
    // A quoted star is an ordinary tag.
    if (one.empty() || (is_quoted && one == "*"))
      continue;
    out.append(out.empty() ? "" : ",").append(one);
  }
  return out;
}

handshake_fetch_request fetch_from(const request& r, parameters& from) {
  handshake_fetch_request x;
  x.engine = r.path("engine_id");
  x.compat = from.text("compat");
  x.incarnation = from.query<incarnation_number>("incarnation", 0);
  x.wait = from.time("wait");
  x.etag = etag_from(r);
  return x;
}

std::uint64_t milliseconds(duration x) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::floor<std::chrono::milliseconds>(x).count()));
}

/// As text: not all JSON parsers keep 64 bits of a number.
void append_incarnation(std::string& out, incarnation_number x) {
  out += '"';
  append_json(out, std::uint64_t{x});
  out += '"';
}

void append_sizes(std::string& out, const handshake_sizes& x) {
  out += R"({"dp":)";
  append_json(out, std::uint64_t{x.dp});
  out += R"(,"pp":)";
  append_json(out, std::uint64_t{x.pp});
  out += R"(,"tp":)";
  append_json(out, std::uint64_t{x.tp});
  out += '}';
}

/// Opens an object with the members that every engine has, and leaves it open.
template <class Described>
void begin_engine(std::string& out, std::string_view engine, const Described& x) {
  out += R"({"engine_id":)";
  append_json(out, engine);
  out += R"(,"incarnation":)";
  append_incarnation(out, x.incarnation);
  out += R"(,"compat":)";
  append_json(out, std::string_view(x.compat));
  out += R"(,"sizes":)";
  append_sizes(out, x.sizes);
}

void add_incarnation(response& to, incarnation_number x) {
  if (x != 0)
    to.add_header("Troupe-Incarnation", std::to_string(x));
}

response failure(std::uint8_t code, std::string_view text, incarnation_number known) {
  const auto what = errc_from_wire(code);
  auto out = response::failure({what, std::string(text)});
  if (what == errc::invalid_argument)
    out.code = status::unprocessable_content;
  if (known != 0) {
    out.body.pop_back();
    out.body += R"(,"incarnation":)";
    append_incarnation(out.body, known);
    out.body += '}';
  }
  add_incarnation(out, known);
  return out;
}

/// The answer to a fetch without a payload; none if there is one.
std::optional<response> without_payload(const handshake_fetch_reply& x) {
  if (x.code != 0)
    return failure(x.code, x.text, x.incarnation);
  if (!x.not_modified)
    return std::nullopt;
  response out;
  out.code = status::not_modified;
  out.add_header("ETag", '"' + x.etag + '"');
  add_incarnation(out, x.incarnation);
  return out;
}

void add_tags(response& to, const handshake_fetch_reply& x) {
  to.add_header("ETag", '"' + x.etag + '"');
  add_incarnation(to, x.incarnation);
  // Caches have to revalidate the answer.
  to.add_header("Cache-Control", "no-cache");
}

/// Entries as nested objects; `write(entry)` writes one of them. With or without pipeline ranks.
template <class Write>
void append_nested(std::string& out, const std::vector<handshake_entry>& all, bool has_pp, Write write) {
  const auto open = [&](std::uint32_t number) {
    out += '"';
    append_json(out, std::uint64_t{number});
    out += R"(":)";
  };
  out += '{';
  const handshake_entry* before = nullptr;
  for (const auto& x : all) {
    const bool new_dp = before == nullptr || before->rank.dp != x.rank.dp;
    const bool new_pp = new_dp || before->rank.pp != x.rank.pp;
    if (before != nullptr) {
      if (new_pp && has_pp)
        out += '}';
      if (new_dp)
        out += '}';
      out += ',';
    }
    if (new_dp) {
      open(x.rank.dp);
      out += '{';
    }
    if (new_pp && has_pp) {
      open(x.rank.pp);
      out += '{';
    }
    open(x.rank.tp);
    write(x);
    before = &x;
  }
  if (before != nullptr)
    out += has_pp ? "}}" : "}";
  out += '}';
}

} // namespace

std::uint64_t answer_bytes(const handshake_fetch_reply& x, bool as_json) {
  std::uint64_t out = 512;
  for (const auto& entry : x.entries)
    out += as_json ? entry.payload.size() / 3 * 4 + 128 : entry.payload.size();
  return out;
}

response too_many_answers() {
  auto out = response::failure(status::service_unavailable,
                               "the answers that are being sent have reached their limit; try again in a moment");
  out.add_header("Retry-After", "1");
  return out;
}

// -- requests ---------------------------------------------------------------------------------------------------------

accepted<handshake_publish_request> read_publish(const request& r) {
  parameters from(r);
  handshake_publish_request x;
  x.engine = r.path("engine_id");
  x.rank = {from.path("dp"), from.path("pp"), from.path("tp")};
  x.incarnation = from.query<incarnation_number>("incarnation", 0);
  x.sizes = {from.query<std::uint32_t>("dp_size", 1), from.query<std::uint32_t>("pp_size", 1),
             from.query<std::uint32_t>("tp_size", 1)};
  x.compat = from.text("compat");
  x.ttl = from.time("ttl");
  if (is_json(r)) {
    if (const auto sound = parse_json(r); !sound)
      return tl::unexpected(sound.error());
    x.form = handshake_form::json;
  }
  x.payload = r.body();
  return from.done(std::move(x));
}

accepted<handshake_fetch_request> read_fetch_rank(const request& r) {
  parameters from(r);
  auto x = fetch_from(r, from);
  x.scope = handshake_scope::rank;
  x.rank = {from.path("dp"), from.path("pp"), from.path("tp")};
  return from.done(std::move(x));
}

accepted<handshake_fetch_request> read_fetch(const request& r) {
  parameters from(r);
  auto x = fetch_from(r, from);
  x.complete = from.flag("complete");
  if (r.query("dp")) {
    x.scope = handshake_scope::row;
    x.rank.dp = from.query<std::uint32_t>("dp", 0);
  }
  return from.done(std::move(x));
}

accepted<handshake_heartbeat_request> read_heartbeat(const request& r) {
  parameters from(r);
  return from.done(handshake_heartbeat_request{std::string(r.path("engine_id")),
                                               from.query<incarnation_number>("incarnation", 0), from.time("ttl")});
}

accepted<handshake_withdraw_request> read_withdraw(const request& r) {
  parameters from(r);
  return from.done(
      handshake_withdraw_request{std::string(r.path("engine_id")), from.query<incarnation_number>("incarnation", 0)});
}

accepted<handshake_fetch_request> read_draft(const request& r) {
  parameters from(r);
  handshake_fetch_request x;
  x.engine = from.text("engine_id");
  x.wait = from.time("wait");
  if (!r.path("dp").empty()) {
    x.scope = handshake_scope::row;
    x.rank.dp = from.path("dp");
  }
  if (!r.path("tp").empty()) {
    x.scope = handshake_scope::rank;
    x.rank.tp = from.path("tp");
  }
  return from.done(std::move(x));
}

// -- answers ----------------------------------------------------------------------------------------------------------

response to_response(const handshake_reply& x) {
  if (x.code != 0)
    return failure(x.code, x.text, x.incarnation);
  std::string out = R"({"incarnation":)";
  append_incarnation(out, x.incarnation);
  out += R"(,"expires_in_ms":)";
  append_json(out, milliseconds(x.expires_in));
  out += R"(,"ranks":)";
  append_json(out, std::uint64_t{x.ranks});
  out += R"(,"complete":)";
  append_json(out, x.complete);
  out += '}';
  auto answer = response::json(std::move(out), x.added ? status::created : status::ok);
  add_incarnation(answer, x.incarnation);
  return answer;
}

response to_empty_response(const handshake_reply& x) {
  return x.code == 0 ? response::no_content() : failure(x.code, x.text, x.incarnation);
}

response to_rank_response(const handshake_fetch_reply& x) {
  if (auto other = without_payload(x))
    return std::move(*other);
  response out;
  out.content_type = x.entries.front().form == handshake_form::json ? json_type : octets;
  out.body = x.entries.front().payload;
  add_tags(out, x);
  return out;
}

response to_response(std::string_view engine, const handshake_fetch_reply& x) {
  if (auto other = without_payload(x))
    return std::move(*other);
  std::string out;
  out.reserve(answer_bytes(x, true));
  begin_engine(out, engine, x);
  out += R"(,"complete":)";
  append_json(out, x.complete);
  out += R"(,"expires_in_ms":)";
  append_json(out, milliseconds(x.expires_in));
  out += R"(,"ranks":)";
  append_nested(out, x.entries, true, [&](const handshake_entry& entry) {
    out += R"({"etag":)";
    append_json(out, std::string_view(entry.etag));
    if (entry.form == handshake_form::json) {
      out += R"(,"payload":)";
      out += entry.payload;
    } else {
      out += R"(,"payload_base64":")";
      out += to_base64(entry.payload);
      out += '"';
    }
    out += '}';
  });
  out += '}';
  auto answer = response::json(std::move(out));
  add_tags(answer, x);
  return answer;
}

response to_response(const handshake_list_reply& x) {
  std::string out = R"({"engines":)";
  append_list(out, x.engines, [&](const handshake_engine_info& e) {
    begin_engine(out, e.engine, e);
    out += R"(,"ranks":)";
    append_json(out, std::uint64_t{e.ranks});
    out += R"(,"payload_bytes":)";
    append_json(out, e.payload_bytes);
    out += R"(,"complete":)";
    append_json(out, e.complete);
    out += R"(,"expires_in_ms":)";
    append_json(out, milliseconds(e.expires_in));
    out += '}';
  });
  out += '}';
  return response::json(std::move(out));
}

response to_draft_response(std::string_view engine, const handshake_fetch_reply& x) {
  if (x.code == 0 && x.sizes.pp > 1)
    return response::failure(status::conflict,
                             "the engine has pipeline stages, which these paths do not support: use /v1/handshake");
  if (auto other = without_payload(x))
    return std::move(*other);
  std::string out;
  out.reserve(answer_bytes(x, true));
  append_nested(out, x.entries, false, [&](const handshake_entry& entry) {
    if (entry.form == handshake_form::json) {
      out += entry.payload;
      return;
    }
    out += R"({"engine_id":)";
    append_json(out, engine);
    out += R"(,"agent_metadata":")";
    out += to_base64(entry.payload);
    out += R"("})";
  });
  auto answer = response::json(std::move(out));
  add_tags(answer, x);
  return answer;
}

} // namespace troupe::http::handshake
