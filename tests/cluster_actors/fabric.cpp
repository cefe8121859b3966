#include "tests/cluster_actors/fabric.hpp"

#include "tests/cluster_actors/host.hpp"
#include "tests/simulation/entropy.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

namespace troupe::cluster_actors {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

parameters parameters::of(simulation::random_source& random) {
  parameters out;
  out.hosts = random.number(2, 4);
  out.stranger = out.hosts > 2 && random.one_in(3);
  out.same_names = random.one_in(4);
  out.by_name = random.one_in(4);
  out.ranks = random.number(1, 2);
  out.shards = random.number(1, 2);
  for (std::uint32_t i = random.number(1, 2); i > 0; --i) {
    namespace_spec ns;
    ns.name = "space " + std::to_string(i);
    ns.model = ns.name;
    ns.dtype = "float16";
    ns.world_size = out.ranks;
    ns.geometry = {.layers = 1, .parts = 2, .heads = 1, .head_size = 4, .element_bytes = 2, .block_tokens = 4};
    out.namespaces.push_back(ns);
  }
  out.blocks = random.number(4, 16);
  out.batch_keys = random.number(4, 16);
  out.chunk_keys = random.number(1, 6);
  out.chains = random.number(2, 4);
  out.chain_length = random.number(4, 14);
  out.redirects = random.one_in(2);
  out.keep_copies = random.one_in(2);
  out.hello_interval = random.time(milliseconds(100), seconds(1));
  out.ask_time = random.time(milliseconds(20), milliseconds(100));
  out.fetch_time = random.time(milliseconds(100), seconds(2));
  out.task_deadline = 2 * out.fetch_time + random.time(milliseconds(100), seconds(4));
  out.backoff_max = random.time(milliseconds(100), seconds(2));
  out.network_delay = random.skewed_time(microseconds(100), milliseconds(40));
  out.page_time = random.skewed_time(microseconds(20), milliseconds(60));
  out.notice_max = random.skewed_time(milliseconds(1), milliseconds(500));
  out.work_interval = random.skewed_time(milliseconds(5), milliseconds(200));
  out.nemesis_interval = random.skewed_time(milliseconds(50), seconds(2));
  return out;
}

std::string parameters::describe() const {
  std::ostringstream out;
  const auto ms = [](duration x) { return std::chrono::duration_cast<milliseconds>(x).count(); };
  out << hosts << " hosts" << (stranger ? " with a stranger" : "") << (same_names ? " of the same name" : "")
      << (by_name ? " found by a name" : "") << ", " << namespaces.size() << " namespaces, " << ranks << " ranks, "
      << blocks << " blocks, " << chains << " chains of " << chain_length << " keys; hello/ask/fetch/task "
      << ms(hello_interval) << '/' << ms(ask_time) << '/' << ms(fetch_time) << '/' << ms(task_deadline)
      << " ms, delays " << ms(network_delay) << '/' << ms(page_time) << '/' << ms(notice_max) << " ms";
  return out.str();
}

fabric::fabric(std::uint64_t seed, defect built_in, bool verbose)
    : env(simulation::seed_entropy(seed), simulation::defect::none, verbose), random(env.random.fork()),
      p(parameters::of(random)), built_in_(built_in) {}

fabric::~fabric() {
  for (const auto& x : hosts)
    x->kill();
}

void fabric::cut(std::size_t a, std::size_t b) {
  const auto lost = between(a, b).number++;
  for (const auto& [here, there] : {std::pair(a, b), std::pair(b, a)})
    env.schedule.after(random.skewed_time(microseconds(100), p.notice_max), [this, here = here, there = there, lost] {
      auto& x = *hosts[here];
      if (!x.runs())
        return env.schedule.idle();
      if (x.in()->paused())
        return env.schedule.postpone(x.in()->goes_on());
      x.notice_loss(there, lost);
    });
}

void fabric::block(std::size_t a, std::size_t b, duration time) {
  cut(a, b);
  between(a, b).blocked_until = now() + time;
}

void fabric::silence(std::size_t a, std::size_t b, duration time) {
  between(a, b).silent_until = now() + time;
}

void fabric::cut_all(std::size_t of) {
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (i != of)
      cut(i, of);
}

void fabric::heal() {
  for (auto& [pair, x] : lines_)
    x.blocked_until = x.silent_until = now();
}

void fabric::send(std::size_t from, std::size_t to, std::uint64_t connection, std::function<void(host&)> what) {
  auto& via = between(from, to);
  const auto at = std::max(now(), via.silent_until) + delay();
  env.schedule.at(at, [this, from, to, connection, what = std::move(what)] {
    auto& x = *hosts[to];
    if (between(from, to).number != connection || !x.runs())
      return env.schedule.idle();
    if (x.in()->paused())
      return env.schedule.postpone(x.in()->goes_on());
    what(x);
  });
}

} // namespace troupe::cluster_actors
