#include "fuzz/etcd_answers.hpp"

#include "actors/cluster/etcd/etcd_protocol.hpp"
#include "actors/cluster/etcd/etcd_rules.hpp"
#include "fuzz/check.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

namespace troupe::fuzz {

namespace {

using namespace cluster;

template <class T>
bool count(const result<T>& x, int& accepted) {
  if (x)
    ++accepted;
  else
    demand(!x.error().text.empty() && x.error().code != errc::ok, "a refusal without a reason");
  return x.has_value();
}

void hear(std::string_view text, const std::string& user) {
  constexpr std::string_view prefix = "/troupe/ours/nodes/";
  etcd_rules rules({"etcd:2379",
                    std::string(prefix),
                    "me:7000",
                    {"self", 7},
                    std::chrono::seconds(10),
                    std::chrono::milliseconds(10),
                    std::chrono::seconds(1),
                    1,
                    user});
  timestamp now{};
  std::uint64_t watch = 0;
  bool let_in = false;
  for (int i = 0; i < 12; ++i) {
    now = std::max(now, rules.next_event());
    rules.on_time(now);
    for (const auto& effect : rules.take_outbox()) {
      const etcd_reply reply{i % 5 == 4 ? 500U : 200U, std::string(text)};
      if (const auto* const asked = std::get_if<etcd_request>(&effect)) {
        demand(user.empty() ? asked->token.empty() : let_in || asked->token.empty(), "a token that was never issued");
        rules.on_answer(asked->number, reply, now);
      } else if (const auto* const login = std::get_if<etcd_login>(&effect)) {
        demand(!user.empty(), "a login without a user");
        let_in = let_in || read_login(reply);
        rules.on_answer(login->number, reply, now);
      }
      if (const auto* const begun = std::get_if<etcd_watch>(&effect))
        watch = begun->number;
      else if (const auto* const members = std::get_if<etcd_members>(&effect))
        for (const auto& x : members->addresses)
          demand(is_listed_address(x), "an invalid address");
    }
    rules.on_watch(watch, text, now);
    demand(rules.next_event() <= now + std::chrono::seconds(10), "rules that have stopped");
  }
}

} // namespace

int read_etcd_answers(std::string_view text) {
  int accepted = 0;
  const etcd_reply reply{200, std::string(text)};
  if (const auto x = read_login(reply); count(x, accepted))
    demand(!x->empty() && x->find_first_of("\r\n \t") == std::string::npos, "a token that is not valid in a header");
  if (const auto x = read_grant(reply); count(x, accepted))
    demand(x->id > 0 && x->seconds > 0, "an invalid lease");
  if (const auto x = read_keep_alive(reply); count(x, accepted))
    demand(x->id > 0 && x->seconds >= 0, "an invalid lease");
  if (const auto x = read_put(reply); count(x, accepted))
    demand(*x >= 0, "a negative revision");
  if (const auto x = read_range(reply); count(x, accepted))
    for (const auto& entry : x->entries)
      demand(!entry.key.empty() && entry.revision >= 0 && !entry.removed, "an invalid entry");
  if (const auto x = read_watch(text); count(x, accepted))
    for (const auto& entry : x->entries)
      demand(!entry.key.empty() && entry.revision >= 0, "an invalid watch event");
  if (const auto x = read_listed(text); count(x, accepted))
    demand(read_listed(write_listed(*x)) == *x, "a node that changes when it is written again");
  int refused = 0;
  count(read_range({503, std::string(text)}), refused);
  count(read_login({400, std::string(text)}), refused);
  demand(refused == 0, "a refusal that is treated as an answer");
  hear(text, {});
  hear(text, "me");
  return accepted;
}

} // namespace troupe::fuzz
