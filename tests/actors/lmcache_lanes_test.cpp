#include "actors/lmcache/arena_users.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/lmcache/page_lane.hpp"
#include "actors/support/system_config.hpp"
#include "tests/actors/lmcache_node.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"
#include "tests/named_memory.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace lmcache_lanes_test {

/// Threads of the LMCache server that use memory which all other parts have released.

using namespace troupe;
using namespace troupe::test;
using lmcache::protocol::operation;

namespace {

constexpr std::chrono::seconds patience{60};
constexpr std::uint64_t page_bytes = 256;

/// The events of an arena's life, for several threads.
struct arena_story {
  std::mutex mutex;
  std::condition_variable changed;
  bool in_use = false;
  bool may_go_on = false;
  bool gone = false;

  template <class Condition>
  bool wait(Condition holds) {
    std::unique_lock guard(mutex);
    return changed.wait_for(guard, patience, holds);
  }
  void set(bool arena_story::*what) {
    const std::lock_guard guard(mutex);
    this->*what = true;
    changed.notify_all();
  }
};

/// Memory whose address is returned only when the test allows it.
class slow_extents final : public io::extent_source {
public:
  explicit slow_extents(std::shared_ptr<arena_story> story) : story_(std::move(story)) {}
  ~slow_extents() override { story_->set(&arena_story::gone); }

  using io::extent_source::assign;
  result<io::extent> assign(std::optional<io::numa_node> wish) override { return memory_.assign(wish); }
  bool take_back(std::uint32_t number) override { return memory_.take_back(number); }
  std::uint32_t available() const override { return memory_.available(); }
  io::extent_counts counts() const override { return memory_.counts(); }
  std::span<std::byte> memory() noexcept override {
    story_->set(&arena_story::in_use);
    story_->wait([this] { return story_->may_go_on; });
    return memory_.memory();
  }
  const io::arena_facts& info() const noexcept override { return memory_.info(); }

private:
  std::shared_ptr<arena_story> story_;
  memory_extents memory_{1, std::uint64_t{2} << 20U};
};

/// A node that clients can attach to, with a shard and a rank, where every request succeeds. Messages about ended
/// attachments are forwarded to the test in their order.
caf::behavior friendly_node(caf::event_based_actor* self, const caf::actor& notified) {
  return {
      [self](const attach_request& wanted, const caf::actor&) { return attached_to(self, wanted); },
      [self, notified](caf::leave_atom, owner_id, const caf::actor&) { self->send(notified, std::string("leaves")); },
      [self, notified](owner_quiesced_atom, owner_id) { self->send(notified, std::string("rests")); },
      [](const reserve_request& x) {
        reserve_reply out;
        out.results.items.assign(x.keys.size(), location{});
        return out;
      },
      [](place_atom, const frame_request& x) {
        frame_reply out{1, {}};
        out.frames.items.assign(x.pages.size(), page_frame{});
        return out;
      },
      [self, notified](fill_atom, const fill_request& x) {
        self->send(notified, std::string("fills"));
        io_reply out;
        out.results.items.assign(x.gathered.size(), 0);
        return out;
      },
      [](commit_atom, const finish_request& x) {
        finish_reply out;
        out.results.items.assign(x.pages.size(), 0);
        return out;
      },
      [](abort_atom, const finish_request&) { return finish_reply{}; },
  };
}

lane_order sealing() {
  lane_order out{true, {}, 0, page_bytes, {}};
  out.items.push_back({page_ref{}, 0, io::slot_bytes(page_bytes)});
  return out;
}

} // namespace

TEST_CASE("lmcache lanes: memory stays mapped until the lane that uses it is done", "[lmcache]") {
  const auto story = std::make_shared<arena_story>();
  auto extents = std::make_shared<slow_extents>(story);
  system_config settings{config::caf_config{}};
  caf::actor_system system(settings);
  auto users = std::make_unique<arena_users>(extents);
  const auto lane = system.spawn<page_lane, caf::detached>(users->hold());
  caf::scoped_actor self(system);
  auto sealed = self->request(lane, patience, sealing());
  REQUIRE(story->wait([&] { return story->in_use; }));

  // As when the node ends.
  extents.reset();
  self->send_exit(lane, caf::exit_reason::user_shutdown);
  CHECK_FALSE(users->wait(duration::zero()));
  CHECK_FALSE(story->gone);
  story->set(&arena_story::may_go_on);
  sealed.receive([](const io_reply& x) { CHECK(x.results.items == std::vector<std::uint8_t>{0}); },
                 [](const caf::error& e) { FAIL(from_caf(e).text); });
  CHECK(users->wait(patience));
  users.reset();
  CHECK(story->wait([&] { return story->gone; }));
}

TEST_CASE("lmcache lanes: a worker's frames stay pinned until its requests are done", "[lmcache]") {
  const bool says_so = GENERATE(true, false);
  INFO((says_so ? "it unregisters" : "its connection ends"));
  const auto story = std::make_shared<arena_story>();
  system_config settings{config::caf_config{}};
  caf::actor_system system(settings);
  caf::scoped_actor self(system);
  const auto node = system.spawn(friendly_node, caf::actor_cast<caf::actor>(self));
  const auto inbox = std::make_shared<lmcache_inbox>();
  const auto server =
      spawn_actor<lmcache_server>(system, server_parts(self, node, inbox, std::make_shared<slow_extents>(story)));
  const auto put = [&](lmcache_inbox::event x) {
    inbox->put(std::move(x));
    caf::anon_send(server, caf::update_atom_v);
  };
  const auto ask = [&](lmcache::protocol::operation what, const std::string& number) {
    lmcache::incoming x;
    x.client = 1;
    x.number = number;
    x.what = what;
    x.instance = 1;
    x.process = ::getpid();
    x.registration = lmcache::context{{{small_namespace(), {}}}};
    x.chunks.model = small_namespace().model;
    x.chunks.world_size = 1;
    x.chunks.worker = 0;
    x.chunks.request = "r";
    x.chunks.end = 2;
    x.chunks.keys = test_task(2).keys.items;
    put(std::make_shared<lmcache::incoming>(std::move(x)));
  };
  const auto next = [&] {
    std::string out;
    self->receive([&](std::string& x) { out = std::move(x); }, caf::after(patience) >> [] {});
    return out;
  };
  ask(operation::register_context, "registered");
  REQUIRE(next() == "registered");
  ask(operation::prepare_store, "prepared");
  REQUIRE(next() == "prepared");
  ask(operation::commit_store, "committed");
  REQUIRE(story->wait([&] { return story->in_use; }));
  if (says_so)
    ask(operation::unregister_context, "gone");
  else
    put(lmcache::client_number{1});
  // After this reply the worker is known to have ended. The lookup client of its namespace detaches with it and reports
  // that it is quiesced.
  ask(operation::noop, "answered");
  std::deque<std::string> notified;
  while (notified.empty() || notified.back() != "answered")
    notified.push_back(next());
  CHECK(std::ranges::count(notified, "leaves") <= 1);
  CHECK(std::ranges::count(notified, "rests") <= 1);
  CHECK(std::ranges::count(notified, "fills") == 0);
  story->set(&arena_story::may_go_on);
  // The worker's own: filled first.
  const std::ptrdiff_t rests = says_so ? 2 : 1;
  while (std::ranges::count(notified, "leaves") < 2 || std::ranges::count(notified, "rests") < rests) {
    notified.push_back(next());
    REQUIRE_FALSE(notified.back().empty());
  }
  CHECK(std::ranges::count(notified, "fills") == 1);
  self->send_exit(server, caf::exit_reason::user_shutdown);
  self->send_exit(node, caf::exit_reason::user_shutdown);
}

// -- workers that register, reconnect and unregister while a lane writes into their memory --

namespace {

/// Lanes that work in the arena stop at a gate.
class gated_extents final : public io::extent_source {
public:
  using io::extent_source::assign;
  result<io::extent> assign(std::optional<io::numa_node> wish) override { return memory_.assign(wish); }
  bool take_back(std::uint32_t number) override { return memory_.take_back(number); }
  std::uint32_t available() const override { return memory_.available(); }
  io::extent_counts counts() const override { return memory_.counts(); }
  std::span<std::byte> memory() noexcept override {
    std::unique_lock guard(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait_for(guard, patience, [this] { return open_; });
    return memory_.memory();
  }
  const io::arena_facts& info() const noexcept override { return memory_.info(); }

  bool wait_for(std::size_t count) {
    std::unique_lock guard(mutex_);
    return changed_.wait_for(guard, patience, [&] { return arrived_ >= count; });
  }
  std::size_t arrived() {
    const std::lock_guard guard(mutex_);
    return arrived_;
  }
  void open() {
    const std::lock_guard guard(mutex_);
    open_ = true;
    changed_.notify_all();
  }

private:
  memory_extents memory_{1, std::uint64_t{2} << 20U};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_ = 0;
  bool open_ = false;
};

/// A node of which clients can attach, with a shard and a rank that have every page.
caf::behavior generous_node(caf::event_based_actor* self) {
  return {
      [self](const attach_request& wanted, const caf::actor&) { return attached_to(self, wanted); },
      [](caf::leave_atom, owner_id, const caf::actor&) {},
      [](owner_quiesced_atom, owner_id) {},
      [](const locate_request& x) {
        locate_reply out;
        out.locations.items.assign(x.keys.size(), location{});
        return out;
      },
      [](fetch_atom, const frame_request& x) {
        frame_reply out{1, {}};
        out.frames.items.assign(x.pages.size(), page_frame{});
        return out;
      },
      [](unpin_atom, pin_number) {},
      [](const release_request&) {},
      [](const invalidate_request& x) {
        finish_reply out;
        out.results.items.assign(x.pages.size(), 0);
        return out;
      },
  };
}

struct registrations_world {
  std::shared_ptr<gated_extents> extents = std::make_shared<gated_extents>();
  named_memory memory{std::size_t{1} << 16U};
  named_memory others{std::size_t{1} << 16U};
  system_config settings{config::caf_config{}};
  caf::actor_system system{settings};
  caf::scoped_actor self{system};
  caf::actor node = system.spawn(generous_node);
  std::shared_ptr<lmcache_inbox> inbox = std::make_shared<lmcache_inbox>();
  lmcache_actor server;

  registrations_world() { server = spawn_actor<lmcache_server>(system, server_parts(self, node, inbox, extents)); }
  ~registrations_world() {
    extents->open();
    self->send_exit(server, caf::exit_reason::user_shutdown);
    self->send_exit(node, caf::exit_reason::user_shutdown);
  }

  void put(lmcache_inbox::event x) {
    inbox->put(std::move(x));
    caf::anon_send(server, caf::update_atom_v);
  }
  void ask(operation what, const std::string& number, lmcache::client_number client = 1, std::uint64_t offset = 0) {
    put(wanted(what, number, client, offset, memory, 1));
  }
  std::shared_ptr<lmcache::incoming> wanted(operation what, const std::string& number, lmcache::client_number client,
                                            std::uint64_t offset, const named_memory& in, std::int32_t process) {
    auto x = std::make_shared<lmcache::incoming>();
    x->client = client;
    x->number = number;
    x->what = what;
    x->instance = process;
    x->process = process;
    const auto ns = small_namespace();
    x->registration = lmcache::context{{{ns, {}}}};
    auto layout = std::make_shared<remote_layout>();
    layout->memories.emplace_back(shared_memory_handle{in.name(), in.size()});
    layout->runs.push_back({0, offset, ns.geometry.page_bytes(), ns.geometry.page_bytes()});
    layout->blocks = 4;
    x->opened = lmcache::open_context{ns, layout, false};
    x->chunks.model = ns.model;
    x->chunks.world_size = 1;
    x->chunks.worker = 0;
    x->chunks.request = "r";
    x->chunks.end = 2;
    x->chunks.keys = test_task(2).keys.items;
    x->blocks = {1, 2};
    return x;
  }
  std::string next() {
    std::string out;
    self->receive([&](std::string& x) { out = std::move(x); }, caf::after(patience) >> [] {});
    return out;
  }
  /// The requests that have been answered: a worker that registers later is among them.
  std::vector<std::string> answered() {
    std::vector<std::string> out;
    for (std::int32_t process = 2; process < 6; ++process) {
      put(wanted(operation::register_kv_cache, "other", 10, 0, others, process));
      for (auto x = next(); x != "other" && !x.empty(); x = next())
        out.push_back(x);
    }
    return out;
  }
  /// A lane is about to write into the worker's blocks.
  void begin_retrieve() {
    ask(operation::register_kv_cache, "registered");
    REQUIRE(next() == "registered");
    ask(operation::retrieve, "retrieved");
    REQUIRE(extents->wait_for(1));
  }
};

} // namespace

TEST_CASE_METHOD(registrations_world,
                 "lmcache lanes: a registration is not answered while a lane writes into the worker's memory",
                 "[lmcache]") {
  begin_retrieve();
  const auto how = GENERATE(0, 1, 2, 3, 4, 5);
  INFO("how " << how);
  std::vector<std::string> asked{"a"};
  switch (how) {
  case 0: // as it was
    ask(operation::register_kv_cache, "a");
    break;
  case 1: // twice
    ask(operation::register_kv_cache, "a");
    ask(operation::register_kv_cache, "b");
    asked.emplace_back("b");
    break;
  case 2: // by another connection, which the worker uses before the node knows it
    ask(operation::register_kv_cache, "a", 2);
    put(lmcache::client_number{1});
    break;
  case 3: // by another connection, with other memory
    put(lmcache::client_number{1});
    ask(operation::register_kv_cache, "a", 2, 4096);
    break;
  case 4:
    ask(operation::unregister_kv_cache, "a");
    break;
  case 5: // from now on it copies by itself
    ask(operation::register_context, "a");
    break;
  }
  CHECK(answered().empty());
  extents->open();
  std::vector<std::string> notified;
  while (notified.size() < asked.size() + 1) {
    notified.push_back(next());
    REQUIRE_FALSE(notified.back().empty());
  }
  asked.emplace_back("retrieved");
  std::ranges::sort(notified);
  CHECK(notified == asked);
}

TEST_CASE_METHOD(registrations_world,
                 "lmcache lanes: a server that shuts down answers every request after its lanes are done",
                 "[lmcache]") {
  begin_retrieve();
  ask(operation::register_kv_cache, "again");
  auto drained = self->request(server, patience, drain_atom_v);
  ask(operation::ping, "ping");
  CHECK(next() == "ping");
  CHECK(answered().empty());
  extents->open();
  std::vector<std::string> notified{next(), next()};
  std::ranges::sort(notified);
  CHECK(notified == std::vector<std::string>{"again", "retrieved"});
  bool done = false;
  drained.receive([&] { done = true; }, [](const caf::error& e) { FAIL(from_caf(e).text); });
  CHECK(done);
}

} // namespace lmcache_lanes_test
