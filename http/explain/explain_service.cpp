#include "http/explain/explain_service.hpp"

#include "actors/support/gather.hpp"
#include "base/parse_number.hpp"
#include "http/server/json_members.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

namespace troupe::http::explain {

namespace {

/// Parts to read from each shard, for that many lookups: some are joined with others, and repetitions count once.
constexpr std::size_t parts_per_lookup = 4;

std::optional<owner_id> owner_of(std::string_view text) {
  return text.size() == 16 ? parse_number<owner_id>(text, 16) : std::nullopt;
}

} // namespace

/// What is known when a question has been answered by the histories.
struct explain_service::answer {
  caller_ptr who;
  unix_clock::reading now{};
  std::vector<joined_lookup> lookups;
  /// The namespaces that the caller may use.
  std::map<namespace_id, namespace_info> namespaces;
  timestamp events_since{};
  /// For each lookup and each of its ends.
  std::vector<std::vector<missing_key>> ends;
};

/// A question to a shard: the state of a missing key in this namespace.
struct explain_service::key_question {
  std::size_t lookup = 0;
  std::size_t end = 0;
  namespace_id ns;
  key_digest key;
};

explain_service::explain_service(const node_services& services, std::shared_ptr<const metadata_service> service)
    : service_(std::move(service)), histories_(services.lookups), clients_(services.clients),
      started_(std::chrono::steady_clock::now()) {}

std::shared_ptr<const explain_service> explain_service::make(const node_services& services,
                                                             std::shared_ptr<const metadata_service> service) {
  return std::shared_ptr<const explain_service>(new explain_service(services, std::move(service)));
}

void explain_service::ask(const question& wanted, caller_ptr who, std::function<void(result<std::string>)> then) const {
  service_->describe({}, [self = shared_from_this(), wanted, who = std::move(who),
                          then = std::move(then)](result<std::vector<namespace_info>> all) {
    if (!all)
      return then(tl::unexpected<error>(std::move(all.error())));
    answer x;
    x.who = who;
    for (auto& ns : *all)
      if (who->may_use(ns.spec.name)) {
        const auto id = ns.spec.id();
        x.namespaces.emplace(id, std::move(ns));
      }
    if (auto collected = self->collect(x, wanted); !collected)
      return then(tl::unexpected<error>(std::move(collected.error())));
    self->look_up(std::move(x), then);
  });
}

result<void> explain_service::collect(answer& to, const question& wanted) const {
  lookup_filter filter{.name = wanted.lookup, .request = wanted.request};
  // Those that the caller may read, in the order of their ids.
  std::vector<namespace_id> readable;
  for (const auto& [id, ns] : to.namespaces)
    if (wanted.namespace_name.empty() || ns.spec.name == wanted.namespace_name)
      readable.push_back(id);
  if (readable.empty() && !wanted.namespace_name.empty())
    return fail(errc::not_found, "no namespace has the name \"" + wanted.namespace_name + '"');
  filter.namespaces = readable;
  std::vector<owner_id> owners;
  if (!wanted.client.empty()) {
    owners = clients_->owners_of(wanted.client);
    if (const auto owner = owner_of(wanted.client))
      owners.push_back(*owner);
    // For a limited caller, clients of other namespaces do not exist: it gets the same answer for all that it cannot
    // see.
    if (owners.empty() && to.who->is_limited())
      owners.push_back(0);
    if (owners.empty())
      return fail(errc::not_found, "no client \"" + wanted.client +
                                       "\" is attached, or was among the last ones that left; `troupe status` "
                                       "and /v1/status list those that are attached");
    filter.owners = owners;
  }
  to.now = unix_clock::read();
  to.events_since = timestamp::min();
  std::vector<explained_part> parts;
  for (const auto& history : histories_) {
    auto view = history->read(filter, wanted.last * parts_per_lookup);
    to.events_since = std::max(to.events_since, view.events_since);
    std::ranges::move(view.parts, std::back_inserter(parts));
  }
  to.lookups = join(std::move(parts), wanted.last);
  for (const auto& lookup : to.lookups) {
    auto& ends = to.ends.emplace_back();
    for (const auto& end : lookup.ends) {
      missing_key key{.known = end, .events_since = to.events_since};
      key.ranks = static_cast<std::uint32_t>(to.namespaces.at(lookup.ns).ranks.size());
      key.since_start = to.events_since <= started_;
      ends.push_back(std::move(key));
    }
  }
  return {};
}

std::vector<explain_service::key_question> explain_service::questions_of(const answer& x) const {
  std::vector<key_question> out;
  for (std::size_t i = 0; i < x.ends.size(); ++i)
    for (std::size_t k = 0; k < x.ends[i].size(); ++k) {
      const auto& known = x.ends[i][k].known;
      out.push_back({i, k, known.part.ns, known.part.missing});
      // A key that was here does not need another namespace to explain why it is missing.
      if (known.part.state != missing_state::absent || known.before || known.arrived)
        continue;
      std::size_t others = 0;
      for (const auto& [id, ns] : x.namespaces)
        if (id != known.part.ns && others++ < others_most)
          out.push_back({i, k, id, known.part.missing});
    }
  return out;
}

void explain_service::look_up(answer x, std::function<void(result<std::string>)> then) const {
  const auto questions = questions_of(x);
  const auto all = gather_from_threads(
      questions.size(), std::move(x), [self = shared_from_this(), then = std::move(then)](result<answer> all_known) {
        then(all_known ? result<std::string>(self->text_of(*all_known)) : tl::unexpected<error>(all_known.error()));
      });
  for (const auto& question : questions)
    service_->look_up(question.ns, question.key, [all, question](const result<key_reply>& found) {
      // A key that is nowhere, or a namespace that was removed meanwhile, adds nothing.
      if (found)
        all->locked([&](answer& to) {
          auto& key = to.ends[question.lookup][question.end];
          const bool has_page =
              std::ranges::any_of(found->pages, [](const key_page& p) { return p.state == key_page::use::live; });
          const auto& here = to.namespaces.at(key.known.part.ns).spec;
          if (question.ns == key.known.part.ns)
            key.complete_now = found->complete;
          else if (has_page)
            key.others.push_back({to.namespaces.at(question.ns).spec.name, found->complete,
                                  differences(here, to.namespaces.at(question.ns).spec)});
        });
      all->part_done();
    });
}

namespace {

void append_others(std::string& out, const std::vector<other_namespace>& all) {
  append_list(out, all, [&out](const other_namespace& x) {
    json_members m(out);
    m.add("namespace", x.name).add("complete", x.complete);
    append_list(m.key("differs"), x.differs, [&out](const identity_difference& d) {
      json_members one(out);
      one.add("field", d.field);
      if (!d.here.empty() || !d.there.empty())
        one.add("here", d.here).add("there", d.there);
      one.end();
    });
    m.end();
  });
}

void append_end(std::string& out, const missing_key& x, bool shows_keys) {
  const auto why = why_missing(x);
  json_members m(out);
  m.add("reason", why.reason).add("text", why.text);
  if (x.known.part.state == missing_state::incomplete)
    m.add("rank", x.known.part.rank);
  m.add("complete_now", x.complete_now);
  append_others(m.key("other_namespaces"), x.others);
  if (shows_keys)
    m.add("key", to_string(x.known.part.missing));
  m.end();
}

} // namespace

std::string explain_service::text_of(const answer& x) const {
  const auto unix_ms = [&](timestamp at) {
    return std::chrono::floor<std::chrono::milliseconds>(clock_.of(at, x.now)).count();
  };
  std::string out;
  json_members all(out);
  all.add("kept", !histories_.empty());
  all.add("events_since_ms", unix_ms(histories_.empty() ? x.now.after : std::max(x.events_since, started_)));
  std::size_t at = 0;
  append_list(all.key("lookups"), x.lookups, [&](const joined_lookup& lookup) {
    const auto& ends = x.ends[at++];
    const auto& ns = x.namespaces.at(lookup.ns);
    json_members m(out);
    m.add("id", id_of(lookup.name)).add("client", clients_->name_of(lookup.name.owner));
    if (!lookup.request.empty())
      m.add("request", lookup.request.text());
    m.add("namespace", ns.spec.name).add("at_ms", unix_ms(lookup.at));
    m.add("asked", lookup.asked).add("found", lookup.found);
    m.add("block_tokens", ns.spec.geometry.block_tokens);
    if (lookup.tiers_known)
      m.add("memory", lookup.found - lookup.on_disk - lookup.fetched).add("disk", lookup.on_disk);
    m.add("peer", lookup.fetched).add("each", lookup.each).add("repeats", lookup.repeats);
    append_list(m.key("ends"), ends,
                [&](const missing_key& end) { append_end(out, end, x.who->grants >= role::admin); });
    if (lookup.refused != errc::ok) {
      const auto why = why_refused(lookup.refused);
      json_members(m.key("refused")).add("reason", why.reason).add("text", why.text).end();
    }
    m.end();
  });
  all.end();
  return out;
}

} // namespace troupe::http::explain
