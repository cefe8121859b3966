#include "tests/cluster_simulation/etcd.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace troupe::cluster_simulation {

namespace {

using json = nlohmann::json;

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr unsigned digit_bits = 6;
constexpr unsigned byte_bits = 8;

std::string encoded(std::string_view bytes) {
  std::string out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const auto c : bytes) {
    bits = bits << byte_bits | static_cast<unsigned char>(c);
    for (count += byte_bits; count >= digit_bits; count -= digit_bits)
      out += base64_digits[bits >> (count - digit_bits) & 63U];
  }
  if (count > 0)
    out += base64_digits[bits << (digit_bits - count) & 63U];
  out.append((4 - out.size() % 4) % 4, '=');
  return out;
}

std::string decoded(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const auto c : text) {
    const auto digit = base64_digits.find(c);
    if (digit == std::string_view::npos)
      break;
    bits = bits << digit_bits | static_cast<std::uint32_t>(digit);
    count += digit_bits;
    if (count < byte_bits)
      continue;
    count -= byte_bits;
    out += static_cast<char>(bits >> count & 255U);
  }
  return out;
}

std::int64_t number_in(const json& x, const char* key) {
  return x.contains(key) ? std::stoll(x.at(key).get<std::string>()) : 0;
}

std::string bytes_in(const json& x, const char* key) {
  return decoded(x.value(key, std::string{}));
}

json header_of(std::int64_t revision) {
  return {{"cluster_id", "14841639068965178418"}, {"revision", std::to_string(revision)}, {"raft_term", "2"}};
}

constexpr unsigned well = 200;

cluster::etcd_reply refusal(unsigned status, int code, const char* why) {
  return {status, json{{"error", why}, {"code", code}, {"message", why}}.dump()};
}

cluster::etcd_reply no_such_lease() {
  return refusal(404, 5, "etcdserver: requested lease not found");
}

cluster::etcd_reply no_space() {
  return refusal(429, 8, "etcdserver: mvcc: database space exceeded");
}

timestamp end_of_lease(std::int64_t seconds, timestamp now) {
  return later(now, std::chrono::seconds(seconds));
}

} // namespace

cluster::etcd_reply etcd::answer(std::string_view path, const std::string& body, timestamp now) {
  const auto x = json::parse(body);
  if (path == "/v3/lease/grant") {
    if (full_)
      return no_space();
    const auto seconds = number_in(x, "TTL");
    leases_[++last_lease_] = {seconds, end_of_lease(seconds, now)};
    return {
        well,
        json{{"header", header_of(revision_)}, {"ID", std::to_string(last_lease_)}, {"TTL", std::to_string(seconds)}}
            .dump()};
  }
  if (path == "/v3/lease/keepalive") {
    json out{{"header", header_of(revision_)}, {"ID", std::to_string(number_in(x, "ID"))}};
    if (const auto found = leases_.find(number_in(x, "ID")); found != leases_.end()) {
      found->second.until = end_of_lease(found->second.seconds, now);
      out["TTL"] = std::to_string(found->second.seconds);
    }
    return {well, json{{"result", out}}.dump()};
  }
  if (path == "/v3/lease/revoke") {
    if (!end_lease(number_in(x, "ID")))
      return no_such_lease();
    return {well, json{{"header", header_of(revision_)}}.dump()};
  }
  if (path == "/v3/kv/put") {
    const auto lease = number_in(x, "lease");
    if (full_)
      return no_space();
    if (lease != 0 && !leases_.contains(lease))
      return no_such_lease();
    put(bytes_in(x, "key"), bytes_in(x, "value"), lease);
    return {well, json{{"header", header_of(revision_)}}.dump()};
  }
  json kvs = json::array();
  for (auto i = keys_.lower_bound(bytes_in(x, "key")); i != keys_.lower_bound(bytes_in(x, "range_end")); ++i)
    kvs.push_back({{"key", encoded(i->first)},
                   {"value", encoded(i->second.value)},
                   {"mod_revision", std::to_string(i->second.revision)},
                   {"lease", std::to_string(i->second.lease)}});
  json out{{"header", header_of(revision_)}};
  if (!kvs.empty()) {
    out["count"] = std::to_string(kvs.size());
    out["kvs"] = std::move(kvs);
  }
  return {well, out.dump()};
}

std::uint64_t etcd::watch(const std::string& body) {
  const auto x = json::parse(body).at("create_request");
  watches_[++last_watch_] = {bytes_in(x, "key"), bytes_in(x, "range_end"), number_in(x, "start_revision"), false};
  return last_watch_;
}

std::vector<etcd::line> etcd::take_lines() {
  std::vector<line> out;
  for (auto i = watches_.begin(); i != watches_.end();) {
    auto& [which, x] = *i;
    if (!std::exchange(x.notified, true))
      out.push_back({which, json{{"result", {{"header", header_of(revision_)}, {"created", true}}}}.dump()});
    if (x.next <= compacted_) {
      const json end{
          {"header", header_of(revision_)}, {"canceled", true}, {"compact_revision", std::to_string(compacted_)}};
      out.push_back({which, json{{"result", end}}.dump(), true});
      i = watches_.erase(i);
      continue;
    }
    json events = json::array();
    for (const auto& c : changes_) {
      if (c.revision < x.next || c.key < x.first || c.key >= x.end)
        continue;
      json kv{{"key", encoded(c.key)}, {"mod_revision", std::to_string(c.revision)}};
      if (!c.removed)
        kv["value"] = encoded(c.value);
      json event{{"kv", std::move(kv)}};
      if (c.removed)
        event["type"] = "DELETE";
      events.push_back(std::move(event));
    }
    x.next = std::max(x.next, revision_ + 1);
    if (!events.empty())
      out.push_back({which, json{{"result", {{"header", header_of(revision_)}, {"events", events}}}}.dump()});
    ++i;
  }
  return out;
}

std::vector<std::int64_t> etcd::over(timestamp now) const {
  std::vector<std::int64_t> out;
  for (const auto& [which, x] : leases_)
    if (x.until <= now)
      out.push_back(which);
  return out;
}

bool etcd::end_lease(std::int64_t which) {
  if (leases_.erase(which) == 0)
    return false;
  std::vector<std::string> ended;
  for (const auto& [key, x] : keys_)
    if (x.lease == which)
      ended.push_back(key);
  for (const auto& key : ended)
    remove(key);
  return true;
}

void etcd::put(const std::string& key, const std::string& value, std::int64_t lease) {
  keys_[key] = {value, lease, ++revision_};
  changes_.push_back({revision_, key, value, false});
}

bool etcd::remove(const std::string& key) {
  if (keys_.erase(key) == 0)
    return false;
  changes_.push_back({++revision_, key, {}, true});
  return true;
}

void etcd::lose_all() {
  keys_.clear();
  leases_.clear();
  changes_.clear();
  revision_ = 1;
  compacted_ = 0;
}

void etcd::keep_copy() {
  copy_ = {keys_, leases_, revision_};
}

void etcd::set_back(timestamp now) {
  keys_ = copy_.keys;
  leases_ = copy_.leases;
  for (auto& [which, x] : leases_)
    x.until = end_of_lease(x.seconds, now);
  changes_.clear();
  revision_ = copy_.revision;
  compacted_ = copy_.revision;
}

} // namespace troupe::cluster_simulation
