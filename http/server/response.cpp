#include "http/server/response.hpp"

#include "http/server/json_text.hpp"

#include <algorithm>
#include <utility>

namespace troupe::http {

void response::add_header(std::string_view name, std::string_view value) {
  const auto append = [this](std::string_view text) {
    std::ranges::transform(text, std::back_inserter(headers), [](char c) {
      const auto is_text = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
      return is_text ? c : ' ';
    });
  };
  append(name);
  headers += ": ";
  append(value);
  headers += "\r\n";
}

response response::json(std::string body, status code) {
  return {.code = code, .body = std::move(body)};
}

response response::text(std::string body, status code) {
  return {.code = code, .body = std::move(body), .content_type = text_type};
}

response response::no_content() {
  return {.code = status::no_content};
}

response response::failure(status code, std::string_view detail) {
  response x;
  x.code = code;
  x.body.reserve(detail.size() + 16);
  x.body += R"({"detail":)";
  append_json(x.body, detail);
  x.body += '}';
  return x;
}

response response::failure(const error& e) {
  return failure(status_of(e.code), e.text);
}

responder& responder::operator=(responder&& other) noexcept {
  std::swap(sink_, other.sink_);
  std::swap(id_, other.id_);
  return *this;
}

responder::~responder() {
  if (sink_)
    sink_->drop(id_);
}

void responder::send(response answer) && noexcept {
  if (const auto sink = std::exchange(sink_, nullptr))
    sink->deliver(id_, std::move(answer));
}

void responder::fail(status code, std::string_view detail) && {
  std::move(*this).send(response::failure(code, detail));
}

void responder::fail(const error& e) && {
  std::move(*this).send(response::failure(e));
}

} // namespace troupe::http
