#include "tests/conformance/metadata_server.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace troupe::test {

using json = nlohmann::json;

// -- what follows from the interface ----------------------------------------------------------------------------------

metadata_server::allocation metadata_server::allocate(std::uint32_t rank, const keys_t& keys) {
  std::vector<wanted_key> items;
  for (const auto& key : keys)
    items.push_back({key, true});
  return allocate_items(rank, items);
}

page metadata_server::allocate_one(std::uint32_t rank, const std::string& key) {
  const auto given = allocate(rank, {key});
  return given && !given->empty() ? given->front().second : -1;
}

bool metadata_server::save(std::uint32_t rank, const std::string& key) {
  const auto to = allocate_one(rank, key);
  return to >= 0 && confirm(rank, {{key, to}}, {}) == 204;
}

std::optional<page> metadata_server::where(std::uint32_t rank, const std::string& key) {
  const auto found = locations(rank, {key});
  return found ? found->at(0) : std::nullopt;
}

bool metadata_server::eventually_save(std::uint32_t rank, const std::string& key) {
  for (int attempts = 0; attempts < 1000; ++attempts) {
    if (save(rank, key))
      return true;
    wait();
  }
  return false;
}

// -- over HTTP --------------------------------------------------------------------------------------------------------

served_over_http::served_over_http(std::uint16_t port, std::string token, std::string prefix)
    : port_(port), token_(std::move(token)), prefix_(std::move(prefix)), client_(port) {}

http::reply served_over_http::post(const std::string& path, const std::string& body) {
  const auto header = token_.empty() ? std::string{} : "Authorization: Bearer " + token_ + "\r\n";
  return client_.call(http::post(prefix_ + path, body, header));
}

int served_over_http::initialize(std::uint32_t rank, page pages) {
  return post("/rank/" + std::to_string(rank) + "/initialize", json{{"num_pages", pages}, {"role", "worker"}}.dump())
      .code;
}

int served_over_http::confirm(std::uint32_t rank, const std::vector<std::pair<std::string, page>>& written,
                              const pages_t& released) {
  return post("/keys/confirm_write",
              json{{"rank", rank}, {"confirmations", written}, {"pages_to_release", released}}.dump())
      .code;
}

int served_over_http::clear_as_stranger() {
  return http::client{port_}.call(http::post(prefix_ + "/clear", "{}")).code;
}

metadata_server::allocation served_over_http::allocate_json(const json& rank, const json& keys) {
  const auto answer = post("/keys/batch_allocate", json{{"rank", rank}, {"keys", keys}}.dump());
  if (answer.code != 200)
    return std::nullopt;
  return json::parse(answer.body).at("results").get<std::vector<std::pair<std::string, page>>>();
}

metadata_server::allocation served_over_http::allocate_items(std::uint32_t rank, const std::vector<wanted_key>& items) {
  auto keys = json::array();
  for (const auto& x : items)
    keys.push_back(x.is_pair ? json{x.text, ""} : json(x.text));
  return allocate_json(rank, keys);
}

metadata_server::allocation served_over_http::allocate_by_text(const std::string& rank, const keys_t& keys) {
  auto pairs = json::array();
  for (const auto& key : keys)
    pairs.push_back(json{key, ""});
  return allocate_json(rank, pairs);
}

std::vector<bool> served_over_http::exists(const keys_t& keys) {
  return json::parse(post("/keys/batch_exists", json{{"keys", keys}}.dump()).body)
      .at("exists")
      .get<std::vector<bool>>();
}

std::optional<std::vector<std::optional<page>>> served_over_http::locations(std::uint32_t rank, const keys_t& keys) {
  const auto answer = post("/keys/get_locations", json{{"rank", rank}, {"keys", keys}}.dump());
  if (answer.code != 200)
    return std::nullopt;
  std::vector<std::optional<page>> out;
  const auto body = json::parse(answer.body);
  for (const auto& x : body.at("locations"))
    out.push_back(x.is_null() ? std::nullopt : std::optional{x.get<page>()});
  return out;
}

metadata_server& served_over_http::ns(const std::string& name) {
  auto& there = namespaces_[name];
  if (!there)
    there = std::make_unique<served_over_http>(port_, token_, "/hf3fs/" + name);
  return *there;
}

void served_over_http::wait() {
  // Reservations and rest end by the clock of the service, which is the machine's.
  std::this_thread::sleep_for(std::chrono::milliseconds{10});
}

// -- as it was --------------------------------------------------------------------------------------------------------

int old_server::initialize(std::uint32_t rank, page pages) {
  if (pages <= 0)
    return 400;
  auto [known, is_new] = free_.try_emplace(rank);
  for (page p = 0; is_new && p < pages; ++p)
    known->second.push_back(p);
  return 200;
}

metadata_server::allocation old_server::allocate_items(std::uint32_t rank, const std::vector<wanted_key>& items) {
  const auto known = free_.find(rank);
  if (known == free_.end())
    return std::nullopt;
  auto& free = known->second;
  // All or nothing, and taken before anything else is looked at.
  std::vector<page> taken;
  if (free.size() >= items.size()) {
    taken.assign(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(items.size()));
    free.erase(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(items.size()));
  }
  std::vector<std::pair<std::string, page>> out;
  const auto set = [&](const std::string& key, page to) {
    const auto same = std::ranges::find(out, key, &std::pair<std::string, page>::first);
    if (same == out.end())
      out.emplace_back(key, to);
    else
      same->second = to;
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    // A text was unpacked into its characters: two of them made a pair, others an error, and the pages were lost.
    if (!items[i].is_pair && items[i].text.size() != 2)
      return std::nullopt;
    const auto key = items[i].is_pair ? items[i].text : items[i].text.substr(0, 1);
    const auto stored = keys_.find(key);
    if (stored != keys_.end() && stored->second.complete() && stored->second.pages.contains(rank)) {
      if (i < taken.size())
        free.push_back(taken[i]);
      set(key, stored->second.pages.at(rank));
    } else {
      set(key, i < taken.size() ? taken[i] : -1);
    }
  }
  return out;
}

int old_server::confirm(std::uint32_t rank, const std::vector<std::pair<std::string, page>>& written,
                        const pages_t& released) {
  for (const auto& [key, where] : written) {
    const auto [stored, is_new] = keys_.try_emplace(key);
    if (is_new)
      stored->second.ranks_at_first_confirm = free_.size();
    stored->second.pages[rank] = where;
  }
  if (released.empty())
    return 204;
  const auto known = free_.find(rank);
  if (known == free_.end())
    return 500;
  for (const auto where : released)
    if (std::ranges::find(known->second, where) == known->second.end())
      known->second.push_back(where);
  return 204;
}

int old_server::clear() {
  free_.clear();
  keys_.clear();
  return 204;
}

std::vector<bool> old_server::exists(const keys_t& keys) {
  std::vector<bool> out;
  for (const auto& key : keys) {
    const auto stored = keys_.find(key);
    out.push_back(stored != keys_.end() && stored->second.complete());
  }
  return out;
}

std::optional<std::vector<std::optional<page>>> old_server::locations(std::uint32_t rank, const keys_t& keys) {
  if (!free_.contains(rank))
    return std::nullopt;
  std::vector<std::optional<page>> out;
  for (const auto& key : keys) {
    const auto stored = keys_.find(key);
    const bool is_there = stored != keys_.end() && stored->second.complete() && stored->second.pages.contains(rank);
    out.push_back(is_there ? std::optional{stored->second.pages.at(rank)} : std::nullopt);
  }
  return out;
}

} // namespace troupe::test
