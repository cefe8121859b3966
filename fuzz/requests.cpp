#include "fuzz/requests.hpp"

#include "base/byte_budget.hpp"
#include "fuzz/check.hpp"
#include "http/server/request_reader.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace troupe::fuzz {

namespace {

using http::request_reader;

constexpr std::uint64_t most_header = 1024;
constexpr std::uint64_t most_body = 1500;

/// The observed requests of a connection, and how it ended.
struct conversation {
  std::vector<std::string> requests;
  int failure = 0;
};

std::string all_of(request_reader& reader) {
  std::string out{reader.method() ? http::to_string(*reader.method()) : "?"};
  const auto add = [&](std::string_view x) { out.append("\n").append(x); };
  add(reader.target());
  add(reader.host());
  add(reader.bearer_token());
  for (const auto& x : reader.headers()) {
    add(x.name);
    add(x.value);
  }
  demand(reader.body().size() <= most_body, "a body beyond the limit");
  demand(reader.headers().size() <= 100, "more headers than are allowed");
  add(reader.body());
  out += reader.keep_alive() ? " keeps" : " ends";
  out += reader.is_http_1_0() ? " 1.0" : " 1.1";
  out += reader.has_origin() ? " origin" : "";
  out += reader.expects_continue() ? " expects" : "";
  // Parsers of bodies read beyond the end.
  std::size_t sum = 0;
  for (std::size_t i = 0; i < http::body_padding; ++i)
    sum += static_cast<unsigned char>(reader.body().data()[reader.body().size() + i]);
  demand(sum <= http::body_padding * 255, "unreadable bytes behind a body");
  return out;
}

/// Each piece has the length that `next` returns, at least 1.
template <class Next>
conversation read(std::string_view text, byte_budget* budget, Next next) {
  request_reader reader(most_header, budget);
  conversation out;
  for (bool is_over = false; !is_over;) {
    switch (reader.advance()) {
    case request_reader::step::headers:
      demand(!reader.announced_body() || *reader.announced_body() + 1 > 0, "an invalid length");
      reader.limit_body(most_body);
      break;
    case request_reader::step::complete:
      out.requests.push_back(all_of(reader));
      reader.next();
      break;
    case request_reader::step::malformed:
      out.failure = static_cast<int>(reader.failure_code());
      demand(out.failure >= 400 && !reader.failure_detail().empty(), "a refusal without a reason");
      is_over = true;
      break;
    case request_reader::step::need_more: {
      const auto into = reader.unfilled();
      demand(!into.empty(), "no buffer space for input");
      const auto size = std::min({text.size(), into.size(), std::max<std::size_t>(1, next())});
      text.copy(into.data(), size);
      text.remove_prefix(size);
      reader.received(size);
      is_over = size == 0;
    }
    }
  }
  return out;
}

/// Complete requests must be equal. In pieces an error may be noticed later, or as an excess of length first; but then
/// the whole text has an error, too.
bool agree(const conversation& whole, const conversation& pieces) {
  return whole.requests == pieces.requests && (pieces.failure == 0 || whole.failure != 0);
}

} // namespace

int read_requests(std::string_view text) {
  const auto whole = read(text, nullptr, [&] { return text.size(); });
  demand(agree(whole, read(text, nullptr, [] { return 1; })), "single bytes are read differently from the whole");
  std::size_t at = 0;
  const auto odd = [&] { return text.empty() ? 1 : static_cast<unsigned char>(text[at++ % text.size()]) % 37U; };
  demand(agree(whole, read(text, nullptr, odd)), "pieces are read differently from the whole");
  {
    byte_budget plenty(1'000'000);
    demand(agree(whole, read(text, &plenty, [] { return 700; })), "with a memory budget the text is read differently");
    demand(plenty.used() == 0, "memory that was not released");
  }
  byte_budget none(0);
  const auto poor = read(text, &none, [] { return 700; });
  demand(none.used() == 0, "use of memory beyond the budget");
  demand(agree(whole, poor) || poor.failure == 503, "without memory the text is read differently");
  return static_cast<int>(whole.requests.size());
}

} // namespace troupe::fuzz
