#include "tests/integration/crash_engines.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace troupe::test {

using nlohmann::json;

// -- talking ----------------------------------------------------------------------------------------------------------

node_caller::node_caller(int port) {
  where_.host = "127.0.0.1";
  where_.port = std::to_string(port);
  where_.authority = "127.0.0.1:" + where_.port;
}

std::optional<node_caller::reply> node_caller::call(std::string_view method, const std::string& path,
                                                    const json* body) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  if (!open_) {
    auto opened = client_detail::connection::open(where_, nullptr, deadline);
    if (!opened)
      return std::nullopt;
    open_ = std::move(*opened);
  }
  const auto text = body != nullptr ? body->dump() : std::string();
  const auto request = std::string(method) + " " + path + " HTTP/1.1\r\nHost: " + where_.authority +
                       "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(text.size()) +
                       "\r\n\r\n" + text;
  auto got = open_->exchange(request, std::size_t{16} << 20U, deadline);
  if (!got) {
    last_ = got.error().why.text;
    open_.reset();
    return std::nullopt;
  }
  last_ = path + ": " + std::to_string(got->status) + " " + got->body;
  if (!open_->is_reusable())
    open_.reset();
  return reply{got->status, got->body.empty() ? json() : json::parse(got->body, nullptr, false)};
}

std::string node_settings::describe() const {
  return durability + ", hf3fs.namespace " + ns + (vllm ? ", vllm" : ", no vllm") +
         (sglang ? ", sglang" : ", no sglang") + (own ? ", own namespace" : ", no own namespace");
}

// -- what all engines do ----------------------------------------------------------------------------------------------

crash_engine::crash_engine(std::string name, std::uint32_t ranks)
    : name_(std::move(name)), files_(ranks, std::vector<std::string>(slots)) {}

bool crash_engine::kept(const node_settings& before, const node_settings& now) const {
  return before.durable() && now.durable() && !place(now).empty() && place(before) == place(now);
}

void crash_engine::believe_all(belief what) {
  for (const auto& key : all_keys())
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      believe(key, rank, what);
}

crash_engine::belief crash_engine::of(const std::string& key, std::uint32_t rank) const {
  const auto at = beliefs_.find({key, rank});
  return at == beliefs_.end() ? belief::absent : at->second;
}

crash_engine::keys crash_engine::all_keys() const {
  keys out;
  for (std::size_t i = 0; i < key_count; ++i)
    out.push_back(name_ + " key " + std::to_string(i));
  return out;
}

bool crash_engine::must_be_found(const std::string& key, std::uint32_t rank) const {
  if (!whole_keys())
    return of(key, rank) == belief::committed;
  for (std::uint32_t r = 0; r < ranks(); ++r)
    if (of(key, r) != belief::committed)
      return false;
  return true;
}

std::string crash_engine::check_rank(node_caller& node, std::uint32_t rank, bool is_kept) {
  const auto wanted = all_keys();
  const auto where = locate(node, rank, wanted);
  const auto at = name_ + ", rank " + std::to_string(rank) + ": ";
  if (!where)
    return at + "the node does not say where its keys are: " + node.last();
  std::set<std::uint32_t> used;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& slot = (*where)[i];
    if (!slot) {
      if (is_kept && must_be_found(wanted[i], rank))
        return at + wanted[i] + " was committed and is lost";
      believe(wanted[i], rank, whole_keys() ? belief::unknown : belief::absent);
      continue;
    }
    ++found_;
    const auto place = at + "slot " + std::to_string(*slot) + " is said to have " + wanted[i];
    if (!is_kept)
      return place + ", of which nothing may be left";
    if (files_[rank].at(*slot) != wanted[i])
      return place + ", and has '" + files_[rank].at(*slot) + "'";
    if (!used.insert(*slot).second)
      return place + ", and another key as well";
    if (of(wanted[i], rank) == belief::absent)
      return place + ", which was erased or never saved";
    believe(wanted[i], rank, belief::committed);
  }
  return {};
}

std::string crash_engine::check(node_caller& node, bool is_kept) {
  if (!is_kept) {
    believe_all(belief::absent);
    known_ = false;
  }
  // Whom the node has to know need not say anything again.
  if (!known_ && !prepare(node))
    return name_ + " cannot register: " + node.last();
  known_ = true;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    if (auto wrong = check_rank(node, rank, is_kept); !wrong.empty())
      return wrong;
  return {};
}

bool crash_engine::save(node_caller& node, const keys& wanted) {
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    const auto given = reserve(node, rank, wanted);
    if (!given)
      return false;
    for (const auto& x : *given) {
      files_[rank].at(x.slot) = x.key;
      if (!must_be_found(x.key, rank))
        believe(x.key, rank, belief::unknown);
    }
    const auto done = commit(node, rank, *given);
    if (!done)
      return false;
    for (std::size_t i = 0; i < given->size(); ++i)
      if ((*done)[i]) {
        believe((*given)[i].key, rank, belief::committed);
        ++committed_;
      }
  }
  return true;
}

void crash_engine::work(node_caller& node, std::mt19937& random) {
  const auto all = all_keys();
  std::size_t erased = 0;
  for (;;) {
    std::set<std::string> some;
    for (auto n = 1 + random() % 6; n > 0; --n)
      some.insert(all[random() % all.size()]);
    const keys wanted(some.begin(), some.end());
    const auto what = random() % 40;
    if (what == 0 && can_begin_anew()) {
      // Half done it may be either: registered with nothing in it, or not at all.
      believe_all(belief::unknown);
      known_ = false;
      if (!begin_anew(node) || !prepare(node))
        return;
      known_ = true;
      believe_all(belief::absent);
      ++remade_;
    } else if (what < 8 && erased + wanted.size() <= most_erased()) {
      erased += wanted.size();
      for (const auto& key : wanted)
        for (std::uint32_t rank = 0; rank < ranks(); ++rank)
          believe(key, rank, belief::unknown);
      if (!erase(node, wanted))
        return;
      for (const auto& key : wanted)
        for (std::uint32_t rank = 0; rank < ranks(); ++rank)
          believe(key, rank, belief::absent);
    } else if (!save(node, wanted)) {
      return;
    }
  }
}

// -- the protocols ----------------------------------------------------------------------------------------------------

namespace {

/// vLLM's HF3FS protocol, with a namespace in the path or without one.
class vllm_engine final : public crash_engine {
public:
  vllm_engine(std::string name, std::string prefix) : crash_engine(std::move(name), 2), prefix_(std::move(prefix)) {}

  std::string place(const node_settings& now) const override { return now.vllm ? now.ns : ""; }

private:
  bool prepare(node_caller& node) override {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const auto x = node.post(prefix_ + "/rank/" + std::to_string(rank) + "/initialize", {{"num_pages", slots}});
      if (!x || !x->ok())
        return false;
    }
    return true;
  }

  std::optional<std::vector<page>> reserve(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    json pairs = json::array();
    for (const auto& key : wanted)
      pairs.push_back({key, ""});
    const auto x = node.post(prefix_ + "/keys/batch_allocate", {{"rank", rank}, {"keys", pairs}});
    if (!x || !x->ok())
      return std::nullopt;
    std::vector<page> out;
    for (const auto& one : x->body.at("results"))
      if (one.at(1).get<int>() >= 0)
        out.push_back({one.at(0).get<std::string>(), one.at(1).get<std::uint32_t>(), 0});
    return out;
  }

  std::optional<std::vector<bool>> commit(node_caller& node, std::uint32_t rank,
                                          const std::vector<page>& written) override {
    json pairs = json::array();
    for (const auto& x : written)
      pairs.push_back({x.key, x.slot});
    const auto x = node.post(prefix_ + "/keys/confirm_write",
                             {{"rank", rank}, {"confirmations", pairs}, {"pages_to_release", json::array()}});
    if (!x || !x->ok())
      return std::nullopt;
    return std::vector<bool>(written.size(), true);
  }

  std::optional<places> locate(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    const auto x = node.post(prefix_ + "/keys/get_locations", {{"rank", rank}, {"keys", wanted}});
    if (!x || !x->ok())
      return std::nullopt;
    places out;
    for (const auto& one : x->body.at("locations"))
      out.push_back(one.is_null() ? std::nullopt : std::optional(one.get<std::uint32_t>()));
    return out;
  }

  bool whole_keys() const override { return true; }

  std::string prefix_;
};

class sglang_engine final : public crash_engine {
public:
  sglang_engine() : crash_engine("sglang", 1) {}

  std::string place(const node_settings& now) const override { return now.sglang ? "sglang" : ""; }

private:
  std::optional<node_caller::reply> ask(node_caller& node, std::uint32_t rank, const char* what, json body) {
    body["namespace"] = "kv";
    auto x = node.post("/" + std::to_string(rank) + "/" + what, body);
    return x && x->ok() ? x : std::nullopt;
  }

  bool prepare(node_caller& node) override { return ask(node, 0, "initialize", {{"num_pages", slots}}).has_value(); }

  std::optional<std::vector<page>> reserve(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    json pairs = json::array();
    for (const auto& key : wanted)
      pairs.push_back({key, ""});
    const auto x = ask(node, rank, "reserve_and_allocate_page_indices", {{"keys", pairs}});
    if (!x)
      return std::nullopt;
    std::vector<page> out;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (const auto& one = x->body.at("indices").at(i); one.at(1).get<int>() >= 0)
        out.push_back({wanted[i], one.at(1).get<std::uint32_t>(), 0});
    return out;
  }

  std::optional<std::vector<bool>> commit(node_caller& node, std::uint32_t rank,
                                          const std::vector<page>& written) override {
    json pairs = json::array();
    for (const auto& x : written)
      pairs.push_back({x.key, x.slot});
    if (!ask(node, rank, "confirm_write", {{"written_keys_to_confirm", pairs}, {"pages_to_release", json::array()}}))
      return std::nullopt;
    return std::vector<bool>(written.size(), true);
  }

  std::optional<places> locate(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    const auto x = ask(node, rank, "get_page_indices", {{"keys", wanted}});
    if (!x)
      return std::nullopt;
    places out;
    for (const auto& one : x->body.at("indices"))
      out.push_back(one.is_null() ? std::nullopt : std::optional(one.get<std::uint32_t>()));
    return out;
  }

  // A slot to be written again is reserved for as long as a reservation lasts, which is longer than a run.
  std::size_t most_erased() const override { return (slots - key_count) / 2; }
  bool erase(node_caller& node, const keys& which) override {
    return ask(node, 0, "delete_keys", {{"keys", which}}).has_value();
  }
};

class native_engine final : public crash_engine {
public:
  native_engine(std::string name, std::uint32_t ranks, bool automatic, bool slot_index)
      : crash_engine(std::move(name), ranks), automatic_(automatic), slot_index_(slot_index) {}

  std::string place(const node_settings&) const override { return name(); }

private:
  std::string path(const char* what = "") const { return "/v1/namespaces/" + name() + what; }

  std::optional<unsigned> create(node_caller& node) {
    json body{{"name", name()}, {"model", name()}, {"slot_index", slot_index_}};
    if (automatic_)
      body["automatic"] = true;
    else
      body["world_size"] = ranks();
    const auto x = node.post("/v1/namespaces", body);
    return x ? std::optional(x->status) : std::nullopt;
  }

  bool remove(node_caller& node) {
    const auto x = node.call("DELETE", path("?force=true"));
    return x && (x->ok() || x->status == 404);
  }

  bool prepare(node_caller& node) override {
    auto made = create(node);
    // Half removed before a crash, or made with the other option.
    if (made && *made == 409) {
      if (!remove(node))
        return false;
      made = create(node);
    }
    if (!made || *made != 201)
      return false;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const auto x = node.post(path("/ranks"), {{"rank", rank}, {"slots", slots}});
      if (!x || !x->ok())
        return false;
    }
    return true;
  }

  std::optional<std::vector<page>> reserve(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    const auto x = node.post(path("/reserve"), {{"rank", rank}, {"keys", wanted}, {"expires_in_ms", 30000}});
    if (!x || !x->ok())
      return std::nullopt;
    token_ = x->body.at("token");
    std::vector<page> out;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (const auto& one = x->body.at("results").at(i); one.at("status") == "ok")
        out.push_back({wanted[i], one.at("slot").get<std::uint32_t>(), one.at("generation").get<std::uint32_t>()});
    return out;
  }

  std::optional<std::vector<bool>> commit(node_caller& node, std::uint32_t rank,
                                          const std::vector<page>& written) override {
    if (written.empty())
      return std::vector<bool>{};
    json pages = json::array();
    for (const auto& x : written)
      pages.push_back({{"key", x.key}, {"slot", x.slot}, {"generation", x.generation}});
    const auto x = node.post(path("/commit"), {{"rank", rank}, {"token", token_}, {"pages", pages}});
    if (!x || !x->ok())
      return std::nullopt;
    std::vector<bool> out;
    for (const auto& one : x->body.at("results"))
      out.push_back(one.at("status") == "ok");
    return out;
  }

  std::optional<places> locate(node_caller& node, std::uint32_t rank, const keys& wanted) override {
    const auto x = node.post(path("/locate"), {{"rank", rank}, {"keys", wanted}, {"lease_for_ms", 1}});
    if (!x || !x->ok())
      return std::nullopt;
    places out;
    for (const auto& one : x->body.at("results"))
      out.push_back(one.at("status") == "ok" ? std::optional(one.at("slot").get<std::uint32_t>()) : std::nullopt);
    return out;
  }

  std::size_t most_erased() const override { return std::numeric_limits<std::size_t>::max(); }
  bool erase(node_caller& node, const keys& which) override {
    const auto x = node.post(path("/erase"), {{"keys", which}});
    return x && x->ok();
  }

  bool can_begin_anew() const override { return true; }
  bool begin_anew(node_caller& node) override {
    if (!remove(node))
      return false;
    slot_index_ = !slot_index_;
    return true;
  }

  bool automatic_;
  bool slot_index_;
  json token_;
};

} // namespace

std::vector<std::unique_ptr<crash_engine>> all_crash_engines() {
  std::vector<std::unique_ptr<crash_engine>> out;
  out.push_back(std::make_unique<vllm_engine>("vllm", ""));
  out.push_back(std::make_unique<vllm_engine>("vllm-named", "/hf3fs/named"));
  out.push_back(std::make_unique<sglang_engine>());
  out.push_back(std::make_unique<native_engine>("native-fixed", 1, false, false));
  out.push_back(std::make_unique<native_engine>("native-fixed-index", 2, false, true));
  out.push_back(std::make_unique<native_engine>("native-automatic", 2, true, false));
  out.push_back(std::make_unique<native_engine>("native-automatic-index", 1, true, true));
  return out;
}

} // namespace troupe::test
