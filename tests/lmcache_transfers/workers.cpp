#include "tests/lmcache_transfers/world.hpp"

#include <span>

namespace troupe::lmcache_transfers {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::uint32_t blocks = 16;
constexpr std::uint64_t documents = 6;

key_digest key_of(content x) {
  return hash_key(std::as_bytes(std::span(&x, 1)));
}

} // namespace

void world::start() {
  auto& x = workers_[++last_worker_];
  x.number = last_worker_;
  x.by_node = random_.one_in(2);
  x.client = ++last_client_;
  x.blocks.resize(blocks);
  if (!x.by_node && random_.one_in(2)) {
    x.groups = {{}, {2, false}, {1, true}};
    count("started with groups");
  }
  count("started");
  enroll(x);
}

void world::enroll(worker& x) {
  drop_all(x);
  rest_lost(x);
  server_rules::registration wanted;
  wanted.name = {x.client, static_cast<lmcache::instance_id>(x.number)};
  wanted.process = static_cast<std::int32_t>(1000 + x.number);
  if (x.by_node) {
    auto memory = std::make_shared<remote_layout>();
    memory->memories.emplace_back(shared_memory_handle{"memory " + std::to_string(x.number), blocks});
    wanted.memory = std::move(memory);
  }
  x.last_change = rules_.enroll(std::move(wanted), now_);
  changes_[x.last_change] = {x.number, x.client};
  flush();
}

void world::unregister(worker& x) {
  count("unregistered");
  drop_all(x);
  rest_lost(x);
  x.last_change = rules_.unregister({x.client, static_cast<lmcache::instance_id>(x.number)},
                                    static_cast<std::int32_t>(1000 + x.number), now_);
  changes_[x.last_change] = {x.number, x.client};
  flush();
}

void world::drop_all(worker& x) {
  ++x.life;
  x.is_settled = false;
  for (auto& y : x.blocks)
    y = ++last_junk_;
}

void world::rest_lost(const worker& x) {
  if (const auto node = lost_.extract({x.client, static_cast<lmcache::instance_id>(x.number)}); !node.empty())
    for (auto& each : nodes_)
      each.rest(node.mapped().of);
}

void world::reconnect(worker& x) {
  count("reconnected");
  leave(x);
  // It continues its accesses to frames until it registers.
  after(random_.skewed_time(milliseconds(1), seconds(20)), [this, client = x.client] {
    std::erase_if(lost_, [client](const auto& y) { return y.first.first == client; });
    rules_.client_disconnected(client, now_);
    flush();
  });
  x.client = ++last_client_;
  after(random_.skewed_time(seconds(1), seconds(60)), [this, number = x.number, client = x.client] {
    if (auto& y = workers_.at(number); !y.dead && y.client == client)
      enroll(y);
  });
}

void world::die(worker& x) {
  count("died");
  leave(x);
  x.dead = true;
  after(random_.skewed_time(milliseconds(1), seconds(20)), [this, client = x.client, number = x.number] {
    std::erase_if(lost_, [client](const auto& y) { return y.first.first == client; });
    rules_.client_disconnected(client, now_);
    flush();
    // The node sees the end of the process.
    for (auto& [of, y] : made_)
      if (y.of == number && y.over)
        for (auto& each : nodes_)
          each.rest(of);
  });
}

void world::leave(const worker& x) {
  waited_for_.abandon_if([client = x.client](const auto* request) { return request->client == client; });
}

world::worker* world::pick() {
  std::vector<worker*> there;
  for (auto& [number, x] : workers_)
    if (!x.dead)
      there.push_back(&x);
  return there.empty() ? nullptr : random_.pick(there);
}

world::worker* world::alive(worker_number who, std::uint64_t life) {
  auto& x = workers_.at(who);
  return x.dead || x.life != life ? nullptr : &x;
}

request_ptr world::make_request(const worker& x, operation what, std::uint64_t document, std::uint32_t chunks) {
  lmcache::incoming out;
  out.what = what;
  out.client = x.client;
  out.instance = static_cast<std::int64_t>(x.number);
  out.chunks.request = "r" + std::to_string(++last_request_);
  out.chunks.worker = 0;
  out.chunks.end = chunks;
  for (std::uint32_t i = 0; i < chunks; ++i) {
    const content meant = document * 100 + i;
    out.chunks.keys.push_back(key_of(meant));
    meant_[out.chunks.keys.back()] = meant;
  }
  return std::make_shared<lmcache::incoming>(std::move(out));
}

request_ptr world::ask(const worker& x, lmcache::incoming what) {
  what.client = x.client;
  const auto asked = std::make_shared<const lmcache::incoming>(std::move(what));

  asked_[asked.get()] = {asked, later(now_, lmcache::time_to_answer(*asked))};
  waited_for_.asked(asked.get(), lmcache::protocol::to_string(asked->what));
  // In the order of sending, because it is one connection.
  after(duration::zero(), [this, asked] { begin(asked); });
  return asked;
}

void world::transfer(worker& x) {
  if (!x.is_settled)
    return;
  if (x.groups.size() > 1)
    return run_request(x);
  const bool stores = random_.one_in(2);
  x.by_node ? copy_by_node(x, stores) : prepare(x, stores);
}

// -- the node copies --------------------------------------------------------------------------------------------------

void world::copy_by_node(worker& x, bool stores) {
  const auto chunks = random_.number(1, 3);
  const auto wanted =
      make_request(x, stores ? operation::store : operation::retrieve, random_.below(documents), chunks);
  auto request = *wanted;
  for (std::uint32_t i = 0; i < blocks && request.blocks.size() < chunks; ++i) {
    bool is_free = true;
    for (const auto& [other, theirs] : x.busy)
      is_free &= std::ranges::find(theirs, i) == theirs.end();
    if (is_free)
      request.blocks.push_back(i);
  }
  if (request.blocks.size() < chunks)
    return;
  for (std::uint32_t i = 0; i < chunks; ++i)
    x.blocks[request.blocks[i]] = stores ? meaning(0, request.chunks.keys[i]) : ++last_junk_;
  const auto mine = request.blocks;
  x.busy[ask(x, std::move(request)).get()] = mine;
  count(stores ? "store" : "retrieve");
}

// -- the worker copies ------------------------------------------------------------------------------------------------

void world::prepare(worker& x, bool stores) {
  auto request = *make_request(x, stores ? operation::prepare_store : operation::prepare_retrieve,
                               random_.below(documents), random_.number(1, 3));
  count(stores ? "prepared a store" : "prepared a retrieve");
  const auto again = rarely(10);
  const auto first = ask(x, request);
  if (!again)
    return;
  // The memory of the first one is not accessed any more, whatever its answer.
  after(random_.skewed_time(milliseconds(1), seconds(2)), [this, number = x.number, life = x.life, first, request] {
    auto* const y = alive(number, life);
    if (y == nullptr || y->client != first->client)
      return;
    count("prepared twice");
    dropped_.insert(first.get());
    waited_for_.abandoned(first.get());
    ask(*y, request);
  });
}

void world::notified(const transfer_rules::prepared& x) {
  const auto who = static_cast<worker_number>(*x.request->instance);
  const auto& y = workers_.at(who);
  const bool writes = x.request->what == operation::prepare_store;
  if (x.pages.empty())
    fire(x.request, true);
  if (y.dead || y.client != x.request->client || x.pages.empty() || dropped_.contains(x.request.get()))
    return;
  count(writes ? "asked to write" : "asked to read");
  if (rarely(20)) {
    fire(x.request, false);
    return count("never committed");
  }
  if (writes && rarely(10)) {
    count("sent tensors");
    return commit(who, x.request, true);
  }
  const auto pause =
      rarely(10) ? random_.time(seconds(20), minutes(3)) : random_.skewed_time(milliseconds(1), seconds(2));
  if (pause > minutes(1))
    count("slow worker");
  after(pause, [this, who, life = y.life, x, writes] {
    if (alive(who, life) != nullptr)
      writes ? write(who, x, 0) : read(who, x, 0);
  });
}

void world::write(worker_number who, const transfer_rules::prepared& x, std::size_t next) {
  if (dropped_.contains(x.request.get()))
    return;
  if (next == x.pages.size())
    return commit(who, x.request, false);
  const auto& page = x.pages[next];
  auto& node = node_of(x.of, page.group);
  if (!node.is_pinned(x.of, page.offset))
    broken("frames", "worker " + std::to_string(who) + " writes into a frame that is not its own");
  node.at(page.offset).holds = written_by(*x.request, page.group, page.chunk, page.page.key);
  after(random_.skewed_time(milliseconds(1), milliseconds(50)), [this, who, life = workers_.at(who).life, x, next] {
    if (alive(who, life) != nullptr)
      write(who, x, next + 1);
  });
}

void world::read(worker_number who, const transfer_rules::prepared& x, std::size_t next) {
  if (dropped_.contains(x.request.get()))
    return;
  if (next == x.pages.size())
    return commit(who, x.request, false);
  const auto& page = x.pages[next];
  auto& node = node_of(x.of, page.group);
  if (!node.is_pinned(x.of, page.offset))
    broken("frames", "worker " + std::to_string(who) + " reads from a frame that is not pinned");
  if (node.at(page.offset).holds != meaning(made_.at(x.of).groups[page.group].node, page.page.key))
    broken("bytes", "worker " + std::to_string(who) + " reads another page than it has asked for");
  after(random_.skewed_time(milliseconds(1), milliseconds(50)), [this, who, life = workers_.at(who).life, x, next] {
    if (alive(who, life) != nullptr)
      read(who, x, next + 1);
  });
}

void world::commit(worker_number who, const request_ptr& prepared, bool with_tensors) {
  auto request = *prepared;
  request.what = prepared->what == operation::prepare_store ? operation::commit_store : operation::commit_retrieve;
  request.carries_tensors = with_tensors && !has(defect::seal_tensors);
  auto& x = workers_.at(who);
  const auto asked = ask(x, request);
  if (const auto next = then_.extract(prepared.get()); !next.empty())
    then_.emplace(asked.get(), std::move(next.mapped()));
  // The request arrives all the same.
  if (rarely(20))
    return die(x);
  if (!rarely(10))
    return;
  count("committed twice");
  ask(x, std::move(request));
}

} // namespace troupe::lmcache_transfers
