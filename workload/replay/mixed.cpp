#include "workload/replay/fixed_sequence.hpp"
#include "workload/replay/numbers.hpp"
#include "workload/replay/trace.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <utility>

namespace troupe::replay {

namespace {

constexpr std::string_view mixed_form =
    "mixed:SEED,REQUESTS,CHATS,AGENTS,DOCUMENTS,PROMPTS (any trailing part may be left "
    "out; default mixed:1,20000,60,5,15,20)";

constexpr std::uint64_t requests_max = std::uint64_t{1} << 20;
constexpr std::uint64_t mixed_number_max = std::uint64_t{1} << 32;

constexpr std::size_t applications = 20;
constexpr std::size_t agent_kinds = 8;
constexpr std::size_t popular_prompts = 1500;
/// The share of requests for a popular prompt that replace it by a new one.
constexpr double drift = 0.02;

using block_ids = std::vector<std::uint64_t>;

/// A random source that is the same everywhere as far as the processor's floating point and libm are.
class chance {
public:
  explicit chance(std::uint64_t seed) : sequence_(seed) {}

  std::size_t below(std::size_t n) noexcept { return sequence_.below(n); }
  /// In [0, 1).
  double fraction() noexcept { return static_cast<double>(sequence_.next() >> 11) * 0x1p-53; }
  /// With mean 1.
  double exponential() noexcept { return -std::log(1 - fraction()); }
  double lognormal(double median, double sigma) noexcept {
    const auto radius = std::sqrt(-2 * std::log(1 - fraction()));
    return median * std::exp(sigma * radius * std::cos(2 * std::acos(-1.0) * fraction()));
  }
  std::uint64_t count(double median, double sigma, std::uint64_t least, std::uint64_t most) noexcept {
    return std::clamp(static_cast<std::uint64_t>(lognormal(median, sigma)), least, most);
  }

private:
  fixed_sequence sequence_;
};

/// A distribution over 0 … n - 1 that draws i with a weight of (i + 1)^-exponent.
class zipf {
public:
  zipf(std::size_t n, double exponent) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      up_to_.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
  }

  std::size_t draw(chance& random) const {
    const auto at = random.fraction() * up_to_.back();
    return std::min<std::size_t>(up_to_.size() - 1,
                                 static_cast<std::size_t>(std::ranges::lower_bound(up_to_, at) - up_to_.begin()));
  }

private:
  std::vector<double> up_to_;
};

enum class kind : std::uint8_t { chat, agent, document, prompt };

struct session {
  kind what = kind::chat;
  /// The last request, and its answer.
  block_ids context;
  std::uint64_t requests_left = 0;
};

class generator {
public:
  explicit generator(const mixed_spec& spec)
      : spec_(spec), random_(spec.seed), systems_(applications), tools_(agent_kinds), prompts_(popular_prompts) {
    for (auto& x : systems_)
      add(random_.count(4, 1, 1, 40), x);
    for (auto& x : tools_)
      add(random_.count(15, 0.5, 4, 60), x);
    for (auto& x : prompts_)
      renew(x);
  }

  /// The next request, and its time in seconds.
  std::pair<double, block_ids> next() {
    while (events_.empty() || arrival_ < events_.top().at)
      arrive();
    const auto now = events_.top();
    events_.pop();
    auto& x = sessions_[now.session];
    auto wait = extend(x);
    auto request = x.context;
    if (--x.requests_left > 0) {
      if (x.what == kind::chat)
        add(1, x.context);
      events_.push({now.at + wait, ++order_, now.session});
    } else {
      x.context = {};
      unused_.push_back(now.session);
    }
    return {now.at, std::move(request)};
  }

private:
  struct event {
    double at = 0;
    std::uint64_t order = 0;
    std::size_t session = 0;
    bool operator<(const event& other) const {
      return at != other.at ? at > other.at : order > other.order; // the earliest is on top
    }
  };

  void add(std::uint64_t blocks, block_ids& to) {
    for (; blocks > 0; --blocks)
      to.push_back(next_id_++);
  }

  void renew(block_ids& prompt) {
    prompt.clear();
    add(random_.count(10, 0.8, 2, 80), prompt);
  }

  /// Adds a session, and schedules the next arrival, after one second on average.
  void arrive() {
    auto share = random_.fraction() * static_cast<double>(spec_.chats + spec_.agents + spec_.documents + spec_.prompts);
    session x;
    if ((share -= static_cast<double>(spec_.chats)) < 0) {
      x = {kind::chat, systems_[by_application_.draw(random_)], 1 + random_.count(2, 1, 0, 59)};
    } else if ((share -= static_cast<double>(spec_.agents)) < 0) {
      x = {kind::agent, tools_[by_agent_.draw(random_)], random_.count(12, 0.8, 2, 120)};
    } else if ((share -= static_cast<double>(spec_.documents)) < 0) {
      x.what = kind::document;
      add(random_.count(60, 0.8, 10, 250), x.context);
      x.requests_left = random_.fraction() < 0.2 ? 2 + random_.below(3) : 1;
    } else {
      if (random_.fraction() < drift)
        renew(prompts_[random_.below(prompts_.size())]);
      x = {kind::prompt, prompts_[by_prompt_.draw(random_)], 1};
    }
    auto number = sessions_.size();
    if (unused_.empty()) {
      sessions_.push_back(std::move(x));
    } else {
      number = unused_.back();
      unused_.pop_back();
      sessions_[number] = std::move(x);
    }
    events_.push({arrival_, ++order_, number});
    arrival_ += random_.exponential();
  }

  /// Extends the session for its next request, and returns the pause until the one after it, in seconds.
  double extend(session& x) {
    switch (x.what) {
    case kind::chat:
      add(random_.count(1.5, 0.9, 1, 30), x.context);
      return random_.lognormal(60, 1.2);
    case kind::agent:
      add(random_.count(3, 0.9, 1, 40), x.context);
      return random_.fraction() < 0.1 ? random_.lognormal(600, 1) : random_.lognormal(8, 0.8);
    case kind::document:
      add(1, x.context);
      return random_.lognormal(45, 0.8);
    case kind::prompt:
      add(1 + random_.below(3), x.context);
      return 0;
    }
    return 0;
  }

  mixed_spec spec_;
  chance random_;
  std::vector<block_ids> systems_;
  std::vector<block_ids> tools_;
  std::vector<block_ids> prompts_;
  zipf by_application_{applications, 1.0};
  zipf by_agent_{agent_kinds, 0.7};
  zipf by_prompt_{popular_prompts, 0.9};
  std::vector<session> sessions_;
  std::vector<std::size_t> unused_;
  std::priority_queue<event> events_;
  std::uint64_t order_ = 0;
  std::uint64_t next_id_ = 0;
  double arrival_ = 0;
};

} // namespace

result<mixed_spec> parse_mixed(std::string_view text) {
  mixed_spec spec;
  const std::array<std::uint64_t*, 6> fields{&spec.seed,   &spec.requests,  &spec.chats,
                                             &spec.agents, &spec.documents, &spec.prompts};
  if (auto bad = parse_numbers(text, "mixed", mixed_form, fields, mixed_number_max))
    return tl::unexpected<error>(std::move(*bad));
  if (spec.requests == 0 || spec.chats + spec.agents + spec.documents + spec.prompts == 0)
    return fail(errc::invalid_argument, fmt::format("{}: there must be at least 1 request, and 1 kind of them; the "
                                                    "form is {}",
                                                    text, mixed_form));
  return spec;
}

result<std::vector<trace_request>> make_mixed(const mixed_spec& spec, std::uint32_t block_tokens,
                                              std::optional<std::size_t> limit) {
  if (block_tokens == 0)
    return fail(errc::invalid_argument, "a trace cannot be generated for blocks of 0 tokens");
  const auto count = limit ? std::min<std::uint64_t>(*limit, spec.requests) : spec.requests;
  if (count > requests_max)
    return fail(errc::limit_exceeded,
                fmt::format("{} requests exceed the limit of this generator, {}", count, requests_max));
  generator source(spec);
  std::vector<trace_request> requests(count);
  for (auto& x : requests) {
    auto [at, blocks] = source.next();
    x.timestamp_ms = static_cast<std::uint64_t>(at * 1000);
    x.input_length = blocks.size() * block_tokens;
    x.hash_ids = std::move(blocks);
  }
  return requests;
}

} // namespace troupe::replay
