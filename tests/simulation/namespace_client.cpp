#include "tests/simulation/namespace_client.hpp"

#include "codec/page_codec.hpp"
#include "io/page.hpp"
#include "tests/simulation/device.hpp"
#include "tests/simulation/key_tree.hpp"
#include "tests/simulation/node_words.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace troupe::simulation {

using std::chrono::microseconds;

namespace {

std::string text_of(const page_ref& page, rank_number rank) {
  return "rank " + std::to_string(rank) + ", slot " + std::to_string(page.where.slot) + " (" +
         std::to_string(page.where.generation) + "), key " + to_string(page.key);
}

} // namespace

namespace_client::namespace_client(environment& world, namespace_node& node, const namespace_parameters& p,
                                   std::uint32_t number)
    : world_(world), node_(node), p_(p), random_(world.random.fork()), number_(number),
      requests_([&world](const std::string& name) { world.count(name); }) {}

// -- life and death ---------------------------------------------------------------------------------------------------

void namespace_client::start() {
  ++life_;
  running_ = true;
  busy_ = 0;
  attaching_ = false;
  process_ = p_.unknown_processes && random_.one_in(3) ? 0 : node_.processes().begin();
  for (std::uint32_t i = 0; i < p_.sessions; ++i)
    next();
}

void namespace_client::kill() {
  if (!running_)
    return;
  running_ = false;
  ++life_;
  busy_ = 0;
  // A node that has ended answers nothing any more.
  node_.running() ? requests_.abandon_all() : requests_.forget_all();
  if (process_ != 0)
    node_.processes().end(process_, world_.now() + (world_.winding_down ? duration::zero() : p_.process_hang));
  // Its link dies without a message; its devices continue to copy.
  if (at_ && at_->life == node_.life() && node_.running())
    static_cast<asker*>(at_->by->get())->cleanup(caf::make_error(caf::sec::request_receiver_down), nullptr);
  at_ = nullptr;
}

void namespace_client::leave() {
  if (running_ && at_)
    detach(at_);
}

void namespace_client::node_restarted() {
  at_ = nullptr;
  requests_.forget_all();
  if (!running_)
    return;
  ++life_;
  busy_ = 0;
  attaching_ = false;
  for (std::uint32_t i = 0; i < p_.sessions; ++i)
    next();
}

void namespace_client::after(duration time, std::function<void()> run) {
  world_.schedule.after(time, [this, life = life_, run = std::move(run)] {
    if (life == life_)
      run();
    else
      world_.schedule.idle();
  });
}

void namespace_client::next() {
  after(random_.skewed_time(microseconds(50), p_.think_time), [this] {
    if (world_.winding_down)
      return;
    if (!node_.running() || attaching_)
      return next();
    if (!at_) {
      attach(random_.below(p_.namespaces.size()), random_.one_in(6) ? namespace_wish::exact : namespace_wish::made,
             [this](errc) { next(); });
      return;
    }
    if (random_.one_in(64)) {
      detach(at_);
      return next();
    }
    const auto t = make_task();
    t->done = [this](const std::string&) { next(); };
    random_.one_in(2) ? save(t) : load(t);
  });
}

// -- attachments ------------------------------------------------------------------------------------------------------

void namespace_client::attach(std::size_t ns, namespace_wish wish, std::function<void(errc)> then) {
  attaching_ = true;
  ++busy_;
  const auto& spec = p_.namespaces[ns];
  attach_request wanted;
  wanted.client_name = "client " + std::to_string(number_);
  wanted.process = process_;
  wanted.wish = wish;
  wanted.ns = spec;
  if (wish == namespace_wish::made)
    node_.making(spec.id());
  const auto by = node_.new_asker();
  const auto request = ++last_request_;
  requests_.asked(request, "attach");
  node_.ask(by, caf::actor_cast<caf::strong_actor_ptr>(node_.supervisor()),
            caf::make_message(wanted, caf::actor_cast<caf::actor>(by)),
            [this, by, ns, request, id = spec.id(), life = life_, process = process_,
             made = wish == namespace_wish::made, then = std::move(then)](caf::message& answer) {
              requests_.answered(request);
              const auto reply = answer_as<attach_reply>(answer);
              if (made)
                node_.asked_to_make(id);
              if (reply)
                node_.attached(id);
              if (life != life_) {
                static_cast<asker*>(by->get())->cleanup(caf::make_error(caf::sec::request_receiver_down), nullptr);
                return;
              }
              attaching_ = false;
              --busy_;
              world_.count("attach", reply ? errc::ok : reply.error().code);
              if (!reply)
                return then(reply.error().code);
              at_ = std::make_shared<attachment>();
              at_->reply = *reply;
              at_->ns = ns;
              at_->memory = node_.memory();
              at_->process = process;
              at_->by = by;
              at_->life = node_.life();
              for (rank_number rank = 0; rank < reply->ranks.size(); ++rank)
                at_->incarnations.push_back(node_.folder().incarnation(id, rank));
              then(errc::ok);
            });
}

void namespace_client::detach(attached x) {
  if (x == at_)
    at_ = nullptr;
  if (std::exchange(x->over, true))
    return;
  if (x->life != node_.life() || !node_.running())
    return;
  node_.ask(x->by, caf::actor_cast<caf::strong_actor_ptr>(node_.supervisor()),
            caf::make_message(caf::leave_atom_v, x->reply.owner, caf::actor_cast<caf::actor>(x->by)),
            [](caf::message&) {});
  rest(x);
}

void namespace_client::rest(const attached& x) {
  if (x->over && x->copies == 0 && x->life == node_.life() && node_.running() && running_)
    node_.ask(x->by, caf::actor_cast<caf::strong_actor_ptr>(node_.supervisor()),
              caf::make_message(owner_quiesced_atom_v, x->reply.owner), [](caf::message&) {});
}

// -- tasks ------------------------------------------------------------------------------------------------------------

namespace_client::task_ptr namespace_client::make_task() {
  const auto t = std::make_shared<task>();
  t->at = at_;
  t->rank = random_.number(0, static_cast<std::uint32_t>(at_->reply.ranks.size()) - 1);
  t->name = {at_->reply.owner, ++last_ticket_};
  for (auto n = random_.number(1, 4); n > 0; --n) {
    const auto key = child_of({7, 7}, random_.below(p_.keys));
    const auto shard = troupe::shard_of(key, p_.shards);
    if (t->keys.empty())
      t->shard = shard;
    if (shard == t->shard && std::find(t->keys.begin(), t->keys.end(), key) == t->keys.end())
      t->keys.push_back(key);
  }
  return t;
}

caf::strong_actor_ptr namespace_client::shard_of(const task& t) const {
  return caf::actor_cast<caf::strong_actor_ptr>(t.at->reply.shards[t.shard]);
}

caf::strong_actor_ptr namespace_client::worker_of(const task& t) const {
  return caf::actor_cast<caf::strong_actor_ptr>(t.at->reply.ranks[t.rank].worker);
}

std::vector<std::byte> namespace_client::content(const task& t, const key_digest& key, bool encoded) const {
  const auto page = p_.namespaces[t.at->ns].geometry.page_bytes();
  return page_of({key.hi ^ t.at->incarnations[t.rank], encoded ? ~key.lo : key.lo}, t.rank,
                 encoded ? codec::stored_bytes(page_encoding::bf16, page) : page);
}

/// In a part of the time all pages have an encoding, in another one none, or half of them.
bool namespace_client::chooses_encoding() {
  if (!p_.encodings)
    return false;
  switch (mix(static_cast<std::uint64_t>(world_.now().time_since_epoch() / p_.encoding_period), 1) % 3) {
  case 0:
    return true;
  case 1:
    return random_.one_in(2);
  default:
    return false;
  }
}

std::span<std::byte> namespace_client::frame_of(const task& t, std::size_t i) const {
  const auto page = p_.namespaces[t.at->ns].geometry.page_bytes();
  return t.at->memory->memory().subspan(t.frames[i].offset,
                                        t.frames[i].is_encoded() ? io::encoded_slot_bytes(page) : io::slot_bytes(page));
}

bool namespace_client::overruns(const task& t, std::size_t i) const {
  return t.frames[i].is_encoded() && !t.encoded[i];
}

io::page_identity namespace_client::identity(const task& t, const page_ref& page) const {
  const auto& spec = p_.namespaces[t.at->ns];
  return {spec.id(), page.key, t.rank, page.where, spec.geometry.page_bytes()};
}

void namespace_client::ask(const task_ptr& t, const caf::strong_actor_ptr& to, caf::message what, asker::then done) {
  ++busy_;
  const auto request = ++last_request_;
  if (node_.running() && t->at->life == node_.life())
    requests_.asked(request, name_of(*to->home_system, what));
  node_.ask(t->at->by, to, std::move(what),
            [this, request, life = life_, done = std::move(done)](caf::message& answer) {
              requests_.answered(request);
              if (life != life_)
                return;
              --busy_;
              done(answer);
            });
}

// -- saves ------------------------------------------------------------------------------------------------------------

void namespace_client::save(const task_ptr& t) {
  ask(t, shard_of(*t),
      caf::make_message(reserve_request{t->at->reply.ns_id, t->rank, t->name, p_.reservation, t->keys, {}}),
      [this, t](caf::message& answer) {
        const auto reply = answer_as<reserve_reply>(answer);
        if (!reply)
          return abort(t, to_string(reply.error()));
        std::string why = "nothing is to be written";
        for (std::size_t i = 0; i < reply->results.size(); ++i) {
          world_.count("reserve", reply->results[i].code());
          if (reply->results[i].code() == errc::ok)
            t->pages.push_back({t->keys[i], reply->results[i].where});
          else
            why = to_string(reply->results[i].code());
        }
        if (t->pages.empty())
          return abort(t, why);
        place(t);
      });
}

void namespace_client::place(const task_ptr& t) {
  frame_request wanted{t->pages, p_.patience};
  if (t->encoded.empty())
    std::generate_n(std::back_inserter(t->encoded), t->pages.size(), [this] { return chooses_encoding(); });
  // Now and then it takes a page for one of the other kind.
  if (p_.encodings && !t->needs_whole)
    for (const bool x : t->encoded)
      wanted.sizes.items.push_back(
          static_cast<std::uint8_t>(x != random_.one_in(8) ? frame_size::encoded : frame_size::whole));
  ask(t, worker_of(*t), caf::make_message(place_atom_v, std::move(wanted)), [this, t](caf::message& answer) {
    const auto reply = answer_as<frame_reply>(answer);
    if (!reply)
      return abort(t, to_string(reply.error()));
    // It has said, or is about to say, that it touches nothing any more.
    if (t->at->over)
      return t->done("detached");
    t->pin = reply->pin;
    t->gathered.assign(t->pages.size(), static_cast<std::uint8_t>(errc::cancelled));
    for (std::size_t i = 0; i < t->pages.size(); ++i) {
      world_.count("place", reply->frames[i].code());
      t->frames.push_back(reply->frames[i]);
      if (reply->frames[i].code() != errc::ok)
        continue;
      if (t->needs_whole && reply->frames[i].is_encoded())
        world_.fail("frames", text_of(t->pages[i], t->rank) + " gets a frame that is too small");
      ++t->copied;
      t->gathered[i] = 0;
    }
    if (t->copied == 0)
      return abort(t, "there are no frames");
    t->at->copies += t->copied;
    for (std::size_t i = 0; i < t->pages.size(); ++i)
      if (t->gathered[i] == 0)
        gather(t, i);
  });
}

/// A device writes, first one half and then the other, as long as its process is there.
void namespace_client::gather(const task_ptr& t, std::size_t i) {
  const auto& where = t->pages[i];
  const auto number = t->at->memory->begin_copy(
      t->frames[i].offset, "client " + std::to_string(number_) + " gathers " + text_of(where, t->rank),
      while_there(*t));
  auto bytes = frame_of(*t, i);
  auto page = content(*t, where.key, t->encoded[i]);
  if (overruns(*t, i)) {
    t->gathered[i] = static_cast<std::uint8_t>(errc::unsupported);
    page.clear();
    if (world_.has(defect::overrun_frame))
      std::memset(bytes.data() + bytes.size(), 1,
                  std::min<std::size_t>(io::page_alignment,
                                        t->at->memory->memory().size() - t->frames[i].offset - bytes.size()));
  }
  // Nothing of a page that does not fit.
  std::ranges::copy(std::span(page).first(page.size() / 2), bytes.begin() + io::page_header_bytes);
  world_.schedule.after(random_.skewed_time(microseconds(10), p_.copy_time),
                        [this, t, i, number, bytes, page, life = life_] {
                          t->at->memory->end_copy(number);
                          if (life != life_)
                            world_.count("copy: after a kill");
                          if (t->at->process != 0 && node_.processes().gone(t->at->process, world_.now()))
                            return world_.schedule.idle();
                          const auto half = page.size() / 2;
                          std::ranges::copy(std::span(page).subspan(half),
                                            bytes.begin() + io::page_header_bytes + static_cast<std::ptrdiff_t>(half));
                          if (!page.empty())
                            io::seal_page(bytes, identity(*t, t->pages[i]),
                                          {t->encoded[i] ? page_encoding::bf16 : page_encoding::raw, page.size(),
                                           io::checksum_of(bytes.subspan(io::page_header_bytes, page.size()))});
                          if (life == life_)
                            copied(t);
                        });
}

std::function<bool()> namespace_client::while_there(const task& t) const {
  return [this, process = t.at->process] { return process == 0 || !node_.processes().gone(process, world_.now()); };
}

void namespace_client::copied(const task_ptr& t) {
  --t->at->copies;
  if (--t->copied == 0)
    fill(t);
  else
    rest(t->at);
}

void namespace_client::fill(const task_ptr& t) {
  ask(t, worker_of(*t), caf::make_message(fill_atom_v, fill_request{t->pin, t->gathered, std::chrono::seconds(5)}),
      [this, t](caf::message& answer) {
        const auto reply = answer_as<io_reply>(answer);
        if (!reply)
          return abort(t, to_string(reply.error()));
        std::vector<page_ref> good;
        for (std::size_t i = 0; i < t->pages.size(); ++i) {
          world_.count("fill", static_cast<errc>(reply->results[i]));
          if (reply->results[i] != 0)
            continue;
          good.push_back(t->pages[i]);
          world_.count(t->encoded[i] ? "page: encoded" : "page: as it is");
        }
        if (const auto rest = split_off(t)) {
          world_.count("page: gets a whole frame");
          t->done = [this, rest](const std::string&) { place(rest); };
        }
        if (good.empty() && t->pages.empty())
          return t->done({});
        if (good.empty())
          return abort(t, "nothing is stored");
        commit(t, good);
      });
  rest(t->at);
}

namespace_client::task_ptr namespace_client::split_off(const task_ptr& t) {
  const auto rest = std::make_shared<task>(*t);
  rest->pages.clear();
  rest->encoded.clear();
  rest->frames.clear();
  rest->needs_whole = true;
  std::vector<page_ref> others;
  for (std::size_t i = 0; i < t->pages.size(); ++i)
    (t->gathered[i] == static_cast<std::uint8_t>(errc::unsupported) ? rest->pages : others).push_back(t->pages[i]);
  if (rest->pages.empty())
    return nullptr;
  rest->encoded.assign(rest->pages.size(), false);
  t->pages = others;
  return rest;
}

void namespace_client::commit(const task_ptr& t, const std::vector<page_ref>& pages) {
  const auto& id = t->at->reply.ns_id;
  for (const auto& x : pages)
    node_.committing(id, t->rank, t->at->incarnations[t->rank], x);
  ask(t, shard_of(*t), caf::make_message(commit_atom_v, finish_request{id, t->rank, t->name, pages}),
      [this, t, pages](caf::message& answer) {
        const auto reply = answer_as<finish_reply>(answer);
        if (!reply)
          return abort(t, to_string(reply.error()));
        std::string why;
        for (const auto code : reply->results) {
          world_.count("commit", static_cast<errc>(code));
          if (code != 0)
            why = to_string(static_cast<errc>(code));
        }
        if (pages.size() < t->pages.size())
          return abort(t, why);
        t->done(why);
      });
}

void namespace_client::abort(const task_ptr& t, const std::string& why) {
  // Its handles may have ended with the namespace.
  if (t->at->over || t->at != at_)
    return t->done(why);
  ask(t, shard_of(*t), caf::make_message(abort_atom_v, finish_request{t->at->reply.ns_id, t->rank, t->name, t->pages}),
      [this, t, why](caf::message& answer) {
        if (const auto reply = answer_as<finish_reply>(answer);
            !reply && reply.error().code == errc::unreachable && t->at == at_) {
          world_.count("attachment ends with its namespace");
          detach(t->at);
        }
        t->done(why);
      });
}

// -- loads ------------------------------------------------------------------------------------------------------------

void namespace_client::load(const task_ptr& t) {
  const auto& id = t->at->reply.ns_id;
  ask(t, shard_of(*t), caf::make_message(locate_request{id, t->rank, t->name, p_.lease, t->keys}),
      [this, t](caf::message& answer) {
        const auto reply = answer_as<locate_reply>(answer);
        if (!reply)
          return end_load(t, to_string(reply.error()));
        for (std::size_t i = 0; i < reply->locations.size(); ++i) {
          world_.count("locate", reply->locations[i].code());
          if (reply->locations[i].code() != errc::ok)
            continue;
          const page_ref page{t->keys[i], reply->locations[i].where};
          node_.notified(t->at->reply.ns_id, t->rank, t->at->incarnations[t->rank], page);
          t->pages.push_back(page);
        }
        if (t->pages.empty())
          return end_load(t, "not found");
        fetch(t);
      });
}

void namespace_client::fetch(const task_ptr& t) {
  ask(t, worker_of(*t), caf::make_message(fetch_atom_v, frame_request{t->pages, p_.patience}),
      [this, t](caf::message& answer) {
        const auto reply = answer_as<frame_reply>(answer);
        if (!reply)
          return end_load(t, to_string(reply.error()));
        if (t->at->over)
          return t->done("detached");
        t->pin = reply->pin;
        std::vector<std::size_t> there;
        for (std::size_t i = 0; i < t->pages.size(); ++i) {
          world_.count(reply->frames[i].promoted != 0 ? "fetch from disk" : "fetch", reply->frames[i].code());
          t->frames.push_back(reply->frames[i]);
          if (reply->frames[i].code() == errc::ok)
            there.push_back(i);
        }
        if (there.empty())
          return end_load(t, "there are no frames");
        t->copied = there.size();
        t->at->copies += t->copied;
        for (const auto i : there)
          scatter(t, i);
      });
}

void namespace_client::scatter(const task_ptr& t, std::size_t i) {
  const bool good = check_page(*t, i, false);
  const auto number = t->at->memory->begin_copy(
      t->frames[i].offset, "client " + std::to_string(number_) + " scatters " + text_of(t->pages[i], t->rank),
      while_there(*t));
  world_.schedule.after(random_.skewed_time(microseconds(10), p_.copy_time), [this, t, i, number, good, life = life_] {
    t->at->memory->end_copy(number);
    if (life != life_)
      return world_.schedule.idle();
    if (good)
      check_page(*t, i, true);
    --t->at->copies;
    if (--t->copied > 0)
      return rest(t->at);
    ask(t, worker_of(*t), caf::make_message(unpin_atom_v, t->pin), [this, t](caf::message&) { end_load(t, {}); });
    rest(t->at);
  });
}

bool namespace_client::check_page(const task& t, std::size_t i, bool again) {
  const auto& page = t.pages[i];
  const auto& id = t.at->reply.ns_id;
  const auto bytes = frame_of(t, i);
  const auto verdict = io::verify_page(bytes, identity(t, page));
  world_.count("load", verdict);
  if (verdict != errc::ok) {
    if (again || !node_.may_have_lost(id, t.rank, t.at->incarnations[t.rank]))
      world_.fail("bytes", text_of(page, t.rank) + " is returned to a reader, and is not that page" +
                               (again ? " any more: " : ": ") + std::string(to_string(verdict)));
    return false;
  }
  const auto stored = io::expected_payload(bytes, identity(t, page));
  const auto wanted = content(t, page.key, stored && stored->encoding == page_encoding::bf16);
  if (std::memcmp(bytes.data() + io::page_header_bytes, wanted.data(), wanted.size()) != 0)
    world_.fail("bytes", text_of(page, t.rank) + " has bytes of an earlier namespace of that name");
  return true;
}

void namespace_client::end_load(const task_ptr& t, const std::string& why) {
  if (t->at->over || t->at != at_)
    return t->done(why);
  ask(t, shard_of(*t), caf::make_message(release_request{t->at->reply.ns_id, t->name, 0}),
      [this, t, why](caf::message& answer) {
        if (const auto reply = answer_as<void>(answer);
            !reply && reply.error().code == errc::unreachable && t->at == at_) {
          world_.count("attachment ends with its namespace");
          detach(t->at);
        }
        t->done(why);
      });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void namespace_client::try_out(std::size_t ns, std::function<void(std::string)> done) {
  attach(ns, namespace_wish::made, [this, ns, done = std::move(done)](errc code) {
    if (code != errc::ok)
      return done("namespace '" + p_.namespaces[ns].name + "' cannot be made: " + std::string(to_string(code)));
    const auto t = make_task();
    t->rank = 0;
    t->keys.resize(1);
    t->shard = troupe::shard_of(t->keys[0], p_.shards);
    t->done = [this, done, key = t->keys[0], shard = t->shard](const std::string& wrong) {
      if (!wrong.empty())
        return done("nothing can be saved: " + wrong);
      const auto back = make_task();
      back->rank = 0;
      back->keys = {key};
      back->shard = shard;
      back->done = [this, done](const std::string& why) {
        if (at_)
          detach(at_);
        done(why.empty() ? "" : "what was saved is not found: " + why);
      };
      load(back);
    };
    save(t);
  });
}

} // namespace troupe::simulation
