#include "http/server/request_reader.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace http_reader_test {

using namespace troupe;
using namespace troupe::http;

namespace {

constexpr std::uint64_t header_limit = 1024;
constexpr std::uint64_t body_limit = 4096;

void feed(request_reader& r, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto into = r.unfilled();
    REQUIRE_FALSE(into.empty());
    const auto n = std::min(into.size(), bytes.size());
    std::memcpy(into.data(), bytes.data(), n);
    r.received(n);
    bytes.remove_prefix(n);
  }
}

/// One line per request, and the last one for a failure.
std::string describe(request_reader& r) {
  std::string out;
  for (;;) {
    switch (r.advance()) {
    case request_reader::step::need_more:
      return out;
    case request_reader::step::headers:
      r.limit_body(body_limit);
      break;
    case request_reader::step::complete: {
      out += (r.method() ? std::string{to_string(*r.method())} : "?") + " " + std::string{r.target()};
      for (const auto& x : r.headers())
        out += " " + std::string{x.name} + "=" + std::string{x.value};
      out +=
          " [" + std::string{r.body()} + "] " + std::to_string(r.bytes_in()) + (r.keep_alive() ? "" : " close") + "\n";
      // The bytes after the body can be read, whatever they are.
      volatile char sum = 0;
      for (std::size_t i = 0; i < body_padding; ++i)
        sum = static_cast<char>(sum + r.body().data()[r.body().size() + i]);
      r.next();
      break;
    }
    case request_reader::step::malformed:
      return out + std::to_string(static_cast<int>(r.failure_code())) + "\n";
    }
  }
}

std::string read_at_once(std::string_view bytes) {
  request_reader r{header_limit};
  feed(r, bytes);
  return describe(r);
}

template <class Random>
std::string read_in_pieces(std::string_view bytes, Random& random, std::size_t most) {
  request_reader r{header_limit};
  std::string out;
  while (!bytes.empty()) {
    const auto n = std::min<std::size_t>(bytes.size(), 1 + random() % most);
    feed(r, bytes.substr(0, n));
    bytes.remove_prefix(n);
    out += describe(r);
    if (r.advance() == request_reader::step::malformed)
      break;
  }
  return out;
}

/// Whether a description ends with a status.
bool is_refusal(std::string_view described) {
  const auto last = described.substr(0, described.size() - std::min<std::size_t>(described.size(), 1));
  const auto line = last.substr(last.rfind('\n') + 1);
  return line.size() == 3 && line.find_first_not_of("0123456789") == std::string_view::npos;
}

const std::string host = "Host: h\r\n";

std::string with(std::string_view headers, std::string_view rest = {}) {
  return "POST /x HTTP/1.1\r\n" + host + std::string{headers} + "\r\n" + std::string{rest};
}

} // namespace

TEST_CASE("http reader: a request is parsed with its headers and its body", "[http]") {
  CHECK(read_at_once("GET /a?b HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX: \t two words \r\n\r\n") ==
        "GET /a?b Host=h X-Empty= X=two words [] 57\n");
  CHECK(read_at_once(with("Content-Length: 5\r\n", "12345")) == "POST /x Host=h Content-Length=5 [12345] 53\n");
  CHECK(read_at_once("PURGE /x HTTP/1.1\r\nHost: h\r\n\r\n") == "? /x Host=h [] 30\n");
  CHECK(read_at_once("GET / HTTP/1.0\r\n\r\n") == "GET / [] 18 close\n");
  CHECK(read_at_once("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") == "GET / Connection=Keep-Alive [] 42\n");
  CHECK(read_at_once("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, close\r\n\r\n") ==
        "GET / Host=h Connection=x, close [] 49 close\n");
}

TEST_CASE("http reader: chunks are joined to one body", "[http]") {
  CHECK(read_at_once(with("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n")) ==
        "POST /x Host=h Transfer-Encoding=chunked [abcde] 81\n");
  // Headers behind the last chunk are not taken for headers.
  CHECK(read_at_once(
            with("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\nHost: evil\r\nAuthorization: Bearer x\r\n\r\n")) ==
        "POST /x Host=h Transfer-Encoding=chunked [a] 105\n");
}

TEST_CASE("http reader: pipelined requests are parsed one by one", "[http]") {
  const auto one = with("Content-Length: 2\r\n", "ab");
  CHECK(read_at_once(one + "\r\n\r\n" + one + "GET / HTTP/1.1\r\nHost: h\r\n\r\n") ==
        "POST /x Host=h Content-Length=2 [ab] 50\nPOST /x Host=h Content-Length=2 [ab] 50\nGET / Host=h [] 27\n");
}

TEST_CASE("http reader: ambiguous requests are refused", "[http]") {
  CHECK(read_at_once(with("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd")) == "400\n");
  CHECK(read_at_once(with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")) == "400\n");
  CHECK(read_at_once(with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n")) == "400\n");
  CHECK(read_at_once(with("Transfer-Encoding: gzip\r\n", "abc")) == "501\n");
  CHECK(read_at_once(with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")) == "501\n");
  CHECK(read_at_once(with("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n")) == "501\n");
  CHECK(read_at_once(with("Transfer-Encoding:\r\n", "abc")) == "501\n");
  CHECK(read_at_once(with("Content-Length: -1\r\n")) == "400\n");
  CHECK(read_at_once(with("Content-Length: 1x\r\n")) == "400\n");
  CHECK(read_at_once(with("Content-Length: 99999999999999999999\r\n")) == "400\n");
  CHECK(read_at_once(with("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n")) == "400\n");
  CHECK(read_at_once(with("X: folded\r\n line\r\n")) == "400\n");
  CHECK(read_at_once(with("X : blank before the colon\r\n")) == "400\n");
  CHECK(read_at_once(with(host)) == "400\n");
  CHECK(read_at_once("GET / HTTP/1.1\r\n\r\n") == "400\n");
  CHECK(read_at_once("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == "400\n");
  CHECK(read_at_once("GET / HTTP/2.0\r\nHost: h\r\n\r\n") == "400\n");
  CHECK(read_at_once("GET / HTTP/1.1\nHost: h\n\n") == "400\n");
  CHECK(read_at_once("\x16\x03\x01\x02 a TLS client hello\r\n\r\n") == "400\n");
  CHECK(read_at_once(with("Expect: miracles\r\n")) == "417\n");
}

TEST_CASE("http reader: invalid chunks are refused", "[http]") {
  for (const auto* chunks :
       {"x\r\n", "-1\r\n", "3\r\nabcX\r\n", "3 \r\nabc\r\n", "\r\n", "ffffffffffffffffff\r\n", "3\nabc\r\n"}) {
    INFO(chunks);
    CHECK(read_at_once(with("Transfer-Encoding: chunked\r\n", std::string{chunks} + "0\r\n\r\n")) == "400\n");
  }
}

TEST_CASE("http reader: limits hold to the byte", "[http]") {
  const auto padded_to = [](std::size_t bytes) {
    const std::string frame = "GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n";
    return "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(bytes - frame.size(), 'x') + "\r\n\r\n";
  };
  CHECK(read_at_once(padded_to(header_limit)).starts_with("GET / "));
  CHECK(read_at_once(padded_to(header_limit + 1)) == "431\n");
  CHECK(read_at_once("GET /" + std::string(header_limit, 'x')) == "414\n");
  std::string many;
  for (int i = 0; i < 99; ++i)
    many += "a:\r\n";
  CHECK(read_at_once(with(many)).starts_with("POST /x "));
  CHECK(read_at_once(with(many + "a:\r\n")) == "431\n");

  const std::string most(body_limit, 'b');
  const auto chunked = [](std::string_view body) {
    return with("Transfer-Encoding: chunked\r\n", "1000\r\n" + std::string{body.substr(0, 4096)} + "\r\n" +
                                                      (body.size() > 4096 ? "1\r\nb\r\n" : "") + "0\r\n\r\n");
  };
  CHECK(read_at_once(chunked(most)).find("[" + most + "]") != std::string::npos);
  CHECK(read_at_once(chunked(most + "b")) == "413\n");
  CHECK(read_at_once(with("Content-Length: 4096\r\n", most)).starts_with("POST"));
  // The line in front of a chunk, and what follows the last one, end somewhere too.
  const std::string endless(20'000, 'e');
  CHECK(read_at_once(with("Transfer-Encoding: chunked\r\n", "1;" + endless)) == "400\n");
  CHECK(read_at_once(with("Transfer-Encoding: chunked\r\n", "0\r\nX: " + endless)) == "400\n");
}

TEST_CASE("http reader: a header that arrives one byte at a time is cut off at the limit", "[http]") {
  request_reader r{header_limit};
  std::size_t sent = 0;
  const std::string endless = "GET / HTTP/1.1\r\nHost: h\r\n";
  while (r.advance() != request_reader::step::malformed) {
    feed(r, sent < endless.size() ? endless.substr(sent, 1)
                                  : (sent % 8 == 0   ? "\n"
                                     : sent % 8 == 7 ? "\r"
                                     : sent % 8 == 3 ? ":"
                                                     : "a"));
    ++sent;
    REQUIRE(sent <= header_limit + 1);
  }
  CHECK((r.failure_code() == status::header_fields_too_large || r.failure_code() == status::bad_request));
}

TEST_CASE("http reader: a body in small chunks takes no more memory than its size", "[http]") {
  request_reader r{header_limit};
  feed(r, with("Transfer-Encoding: chunked\r\n"));
  REQUIRE(r.advance() == request_reader::step::headers);
  r.limit_body(body_limit);
  for (std::size_t i = 0; i < body_limit; ++i) {
    feed(r, "1;some=extension\r\nb\r\n");
    REQUIRE(r.advance() == request_reader::step::need_more);
    // 21 bytes each: without being moved together, they would fill far more than this.
    REQUIRE(r.unfilled().size() < 16'384);
  }
  feed(r, "0\r\n\r\n");
  REQUIRE(r.advance() == request_reader::step::complete);
  CHECK(r.body() == std::string(body_limit, 'b'));
}

TEST_CASE("http reader: the result does not depend on how the bytes are split", "[http]") {
  const auto seed = GENERATE(31U, 32U, 33U, 34U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    for (std::size_t n = 1 + random() % 5; n > 0; --n) {
      const std::string body(random() % 600, static_cast<char>('a' + random() % 26));
      switch (random() % 4) {
      case 0:
        bytes += "GET /" + std::string(random() % 50, 'p') +
                 " HTTP/1.1\r\nHost: h\r\nX-Long: " + std::string(random() % 300, 'v') + "\r\n\r\n";
        break;
      case 1:
        bytes += with("Content-Length: " + std::to_string(body.size()) + "\r\n", body);
        break;
      case 2: {
        bytes += with("Transfer-Encoding: chunked\r\n");
        std::string_view rest{body};
        while (!rest.empty()) {
          const auto part = rest.substr(0, 1 + random() % 15);
          rest.remove_prefix(part.size());
          bytes += std::string(1, "0123456789abcdef"[part.size()]) + "\r\n" + std::string{part} + "\r\n";
        }
        bytes += random() % 2 == 0 ? "0\r\n\r\n" : "0\r\nX-After: 1\r\n\r\n";
        break;
      }
      default:
        bytes += "\r\n";
      }
    }
    const auto expected = read_at_once(bytes);
    CHECK(read_in_pieces(bytes, random, 1) == expected);
    CHECK(read_in_pieces(bytes, random, 7) == expected);
    CHECK(read_in_pieces(bytes, random, 500) == expected);
  }
}

TEST_CASE("http reader: damaged requests are refused or incomplete, in any pieces", "[http]") {
  const auto seed = GENERATE(41U, 42U, 43U, 44U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const std::string sound = with("Content-Length: 5\r\nExpect: 100-continue\r\n", "12345") +
                            with("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n");
  for (int i = 0; i < 2000; ++i) {
    auto bytes = sound;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) {
      const auto at = random() % bytes.size();
      if (random() % 2 == 0)
        bytes[at] = static_cast<char>(random());
      else
        bytes.insert(at, 1, "\r\n :;0\xff"[random() % 7]);
    }
    // A header that arrives in pieces is checked when it is complete, so its refusal may still follow.
    const auto all = read_at_once(bytes);
    const auto requests = all.substr(0, all.rfind('\n', all.size() - std::min<std::size_t>(all.size(), 2)) + 1);
    for (const std::size_t most : {1U, 9U}) {
      const auto pieces = read_in_pieces(bytes, random, most);
      INFO(all << "in pieces of up to " << most << ": " << pieces);
      CHECK((pieces == all || (is_refusal(all) && pieces == requests)));
    }
  }
}

TEST_CASE("http reader: the token is the text after Bearer", "[http]") {
  const auto token = [](std::string_view value) {
    request_reader r{header_limit};
    feed(r, with("Authorization: " + std::string{value} + "\r\n"));
    REQUIRE(r.advance() == request_reader::step::headers);
    return std::string{r.bearer_token()};
  };
  CHECK(token("Bearer abc") == "abc");
  CHECK(token("bEARER   abc") == "abc");
  CHECK(token("Bearer").empty());
  CHECK(token("Bearer ").empty());
  CHECK(token("Basic abc").empty());
  CHECK(token("Bearerabc").empty());
  CHECK(token("").empty());
}

TEST_CASE("http reader: received bytes are taken from a budget and returned to it", "[http]") {
  byte_budget budget{100'000};
  const auto head = [](std::size_t length) {
    return "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
  };
  // Whether all of it could be received.
  const auto receive = [](request_reader& reader, std::string_view text) {
    for (;;) {
      const auto step = reader.advance();
      if (step == request_reader::step::headers)
        reader.limit_body(1'000'000);
      else if (step == request_reader::step::malformed)
        return false;
      else if (step == request_reader::step::complete || text.empty())
        return true;
      else {
        const auto into = reader.unfilled();
        const auto n = std::min(into.size(), text.size());
        text.copy(into.data(), n);
        text.remove_prefix(n);
        reader.received(n);
      }
    }
  };
  {
    request_reader a{1024, &budget};
    CHECK(budget.used() == 0);
    CHECK(receive(a, head(60'000) + std::string(59'999, 'a')));
    // The budget grants as much as the request can need, and not twice that.
    CHECK(budget.used() > 50'000);
    CHECK(budget.used() < 62'000);
    request_reader b{1024, &budget};
    CHECK_FALSE(receive(b, head(90'000) + std::string(90'000, 'b')));
    CHECK(b.failure_code() == status::service_unavailable);
    CHECK(budget.used() < 62'000);
    CHECK(receive(a, "a"));
    CHECK(a.body().size() == 60'000);
    a.next();
    // More than half was taken: memory that may be needed again is not kept.
    CHECK(budget.used() == 0);
    request_reader c{1024, &budget};
    CHECK(receive(c, head(90'000) + std::string(90'000, 'c')));
    // The same holds for bytes that are read and discarded.
    CHECK_FALSE(c.unfilled().empty());
    CHECK(budget.used() <= 100'000);
    request_reader d{1024, &budget};
    CHECK_FALSE(receive(d, head(90'000) + std::string(90'000, 'd')));
    for (int i = 0; i < 100; ++i)
      CHECK_FALSE(d.unfilled().empty());
    CHECK(budget.used() <= 100'000);
  }
  CHECK(budget.used() == 0);
}

TEST_CASE("http reader: a chunked body may end before its first chunk, in any pieces", "[http]") {
  const std::string text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (std::size_t first = 1; first < text.size(); ++first)
    for (std::size_t second = first; second < text.size(); ++second) {
      INFO(first << " " << second);
      request_reader reader{1024};
      std::size_t at = 0;
      auto step = reader.advance();
      while (step != request_reader::step::complete) {
        REQUIRE(step != request_reader::step::malformed);
        if (step == request_reader::step::headers) {
          reader.limit_body(10);
        } else {
          REQUIRE(at < text.size());
          const auto next = at < first ? first : at < second ? second : text.size();
          text.copy(reader.unfilled().data(), next - at, at);
          reader.received(next - at);
          at = next;
        }
        step = reader.advance();
      }
      CHECK(reader.body().empty());
    }
}

} // namespace http_reader_test
