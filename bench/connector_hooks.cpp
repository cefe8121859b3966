#include "connector/groups/grouped_scheduler_state.hpp"
#include "connector/scheduler/scheduler_state.hpp"
#include "connector/wire.hpp"
#include "workload/replay/text_table.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <string>
#include <vector>

/// The cost of a connector's scheduler half in a step of the engine: the first lookup of each request, which hashes its
/// tokens, and every step in which it waits; and the cost of sending metadata to another process.

namespace {

std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> allocated_bytes{0};

} // namespace

// Not inlined: GCC 12 takes a free() that it sees beside a call of operator new for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size))
    return p;
  throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}

[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace troupe::connector {

namespace {

constexpr std::uint32_t prompt_tokens = 32'768;
constexpr std::uint32_t block_tokens = 16;
constexpr int steps = 2001;

double microseconds(duration x) {
  return std::chrono::duration<double, std::micro>(x).count();
}

std::string format(double x) {
  auto out = std::to_string(x);
  return out.substr(0, out.find('.') + 2);
}

struct measured {
  double median = 0;
  double p99 = 0;
  double allocations = 0;
  double bytes = 0;
};

/// Calls f() `steps` times.
template <class F>
measured measure(F f) {
  std::vector<double> times;
  times.reserve(steps);
  const auto allocations_before = allocations.load();
  const auto bytes_before = allocated_bytes.load();
  for (int i = 0; i < steps; ++i) {
    const auto started = std::chrono::steady_clock::now();
    f();
    times.push_back(microseconds(std::chrono::steady_clock::now() - started));
  }
  measured out;
  out.allocations = static_cast<double>(allocations.load() - allocations_before) / steps;
  out.bytes = static_cast<double>(allocated_bytes.load() - bytes_before) / steps;
  std::sort(times.begin(), times.end());
  out.median = times[steps / 2];
  out.p99 = times[steps * 99 / 100];
  return out;
}

/// A request id as engines make them.
std::string name_of(std::size_t i) {
  return "chatcmpl-5f2c9d0e1b7a4c3f8e6d" + std::to_string(1'000'000 + i);
}

class hooks {
public:
  hooks(key_source source, std::uint32_t blocks_per_page, std::size_t waiting, std::size_t running)
      : state_(options(source, blocks_per_page)), tokens_(prompt_tokens), hashes_(prompt_tokens / block_tokens),
        waiting_(waiting) {
    std::iota(tokens_.begin(), tokens_.end(), token_id{1});
    for (std::size_t i = 0; i < hashes_.size(); ++i)
      hashes_[i].fill(static_cast<std::byte>(i * 31));
    for (std::size_t i = 0; i < waiting + running; ++i)
      names_.push_back(name_of(i));
  }

  engine_request request(std::size_t i) const {
    return {.id = names_[i], .tokens = {0, tokens_}, .hashes = {0, hashes_}};
  }

  /// Each call reads the clock, as the hooks do.
  void ask(std::size_t i) { state_.get_num_new_matched_tokens(request(i), 0, std::chrono::steady_clock::now()); }

  void ask_all() {
    for (std::size_t i = 0; i < waiting_; ++i)
      ask(i);
  }

  void answer_all() {
    for (auto& x : state_.take_outbox())
      if (const auto* sent = std::get_if<lookup_submit>(&x))
        state_.on_lookup(sent->lookup, lookup_result{1, ticket{1, sent->lookup}}, std::chrono::steady_clock::now());
  }

  /// Starts requests that run and produce a token each.
  void start_running() {
    std::vector<block_id> blocks(hashes_.size() + 64);
    std::iota(blocks.begin(), blocks.end(), block_id{1});
    for (auto i = waiting_; i < names_.size(); ++i) {
      ask(i);
      answer_all();
      state_.update_state_after_alloc(names_[i], blocks, 0);
      const scheduled_request part{
          .id = names_[i], .computed_tokens = 0, .scheduled_tokens = prompt_tokens, .blocks = blocks};
      state_.build_connector_meta({.new_requests = {&part, 1}}, std::chrono::steady_clock::now());
      running_.push_back({.id = names_[i], .computed_tokens = prompt_tokens, .scheduled_tokens = 1});
    }
  }

  void build() { state_.build_connector_meta({.cached_requests = running_}, std::chrono::steady_clock::now()); }

private:
  static scheduler_options options(key_source source, std::uint32_t blocks_per_page) {
    scheduler_options out;
    out.ns = namespace_id{1, 2};
    out.keys = {source, block_tokens, blocks_per_page};
    out.lookups_max = 100'000;
    out.lease = std::chrono::hours(1);
    out.lookup_patience = std::chrono::hours(1);
    return out;
  }

  scheduler_state state_;
  std::vector<token_id> tokens_;
  std::vector<block_hash> hashes_;
  std::size_t waiting_;
  std::vector<std::string> names_;
  std::vector<scheduled_request> running_;
};

/// As `hooks`, for a model with four groups: full attention, two windows, and states. Every page of a request was found
/// but the last one's state, so each hit is decided by a search.
class grouped_hooks {
public:
  static constexpr std::uint32_t tables = 4;

  grouped_hooks(std::size_t waiting, std::size_t running)
      : state_(options()), hashes_(prompt_tokens / block_tokens), tokens_(prompt_tokens), waiting_(waiting) {
    for (std::size_t i = 0; i < hashes_.size(); ++i)
      hashes_[i].fill(static_cast<std::byte>(i * 31));
    for (std::size_t i = 0; i < waiting + running; ++i)
      names_.push_back(name_of(i));
  }

  void ask(std::size_t i) {
    state_.get_num_new_matched_tokens({.id = names_[i], .tokens = {0, tokens_}, .hashes = {0, hashes_}}, 0,
                                      std::chrono::steady_clock::now());
  }

  void ask_all() {
    for (std::size_t i = 0; i < waiting_; ++i)
      ask(i);
  }

  void answer_all() {
    for (auto& x : state_.take_outbox())
      if (const auto* sent = std::get_if<lookup_submit>(&x)) {
        lookup_result found;
        found.found.items.assign(sent->work.keys.size(), 1);
        if (sent->group == tables - 1)
          found.found.items.back() = 0;
        found.on_disk.items.assign(sent->work.keys.size(), 0);
        found.matched = static_cast<std::uint32_t>(sent->work.keys.size());
        found.lease = {1, sent->lookup};
        state_.on_lookup(sent->lookup, std::move(found), std::chrono::steady_clock::now());
      }
  }

  std::vector<lookup_submit> take_lookups() {
    std::vector<lookup_submit> out;
    for (auto& x : state_.take_outbox())
      if (auto* sent = std::get_if<lookup_submit>(&x))
        out.push_back(std::move(*sent));
    return out;
  }

  /// The answer to a lookup of which nothing is here, or to a search of which peers have all.
  void answer_with_peers(const lookup_submit& sent) {
    const bool search = sent.work.peers.what == peer_step::kind::search;
    lookup_result found;
    found.found.items.assign(sent.work.keys.size(), search ? 1 : 0);
    found.search = search ? sent.lookup : 0;
    found.has_peers = true;
    state_.on_lookup(sent.lookup, std::move(found), std::chrono::steady_clock::now());
  }

  void start_running() {
    std::vector<block_id> blocks;
    for (std::uint32_t t = 0; t < tables; ++t) {
      for (std::size_t i = 0; i < hashes_.size(); ++i)
        blocks.push_back(static_cast<block_id>(blocks.size() + 1));
      ends_.push_back(static_cast<std::uint32_t>(blocks.size()));
    }
    for (auto i = waiting_; i < names_.size(); ++i) {
      ask(i);
      answer_all();
      ask(i);
      state_.update_state_after_alloc(names_[i], {blocks, ends_}, 0);
      const scheduled_request part{.id = names_[i],
                                   .computed_tokens = 0,
                                   .scheduled_tokens = prompt_tokens,
                                   .blocks = {blocks, ends_},
                                   .tokens = {},
                                   .hashes = {},
                                   .states = {}};
      state_.build_connector_meta({.new_requests = {&part, 1}}, std::chrono::steady_clock::now());
      running_.push_back({.id = names_[i], .computed_tokens = prompt_tokens, .scheduled_tokens = 1});
    }
  }

  void build() {
    state_.build_connector_meta({.cached_requests = running_}, std::chrono::steady_clock::now());
    state_.take_block_holds();
  }

private:
  static grouped_options options() {
    const auto group = [](group_kind kind, std::uint32_t window, std::uint32_t table) {
      return page_group{
          .kind = kind, .tokens = window, .block_tokens = block_tokens, .tables = {table}, .ns = {1, table}};
    };
    grouped_options out;
    out.groups = {group(group_kind::full, 0, 0), group(group_kind::window, 1024, 1), group(group_kind::window, 4096, 2),
                  group(group_kind::state, 0, 3)};
    out.page_tokens = block_tokens;
    out.lookups_max = 100'000;
    out.lease = std::chrono::hours(1);
    out.lookup_patience = std::chrono::hours(1);
    return out;
  }

  grouped_scheduler_state state_;
  std::vector<block_hash> hashes_;
  std::vector<token_id> tokens_;
  std::size_t waiting_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> ends_;
  std::vector<scheduled_request> running_;
};

void print_first_calls() {
  replay::text_table table({"first question of a request of 32,768 tokens", "keys", "µs", "KiB allocated"});
  for (const auto source : {key_source::engine_hashes, key_source::rolling_chunk_hash, key_source::md5_chain})
    for (const std::uint32_t blocks : {1U, 16U}) {
      hooks x(source, blocks, steps, 0);
      std::size_t next = 0;
      const auto m = measure([&] { x.ask(next++); });
      table.row({std::string(to_string(source)), std::to_string(prompt_tokens / block_tokens / blocks),
                 format(m.median), format(m.bytes / 1024)});
    }
  std::cout << table.str() << '\n';
}

void print_steps() {
  replay::text_table table({"all hooks of a step", "µs", "p99", "allocations"});
  const auto row = [&](const char* name, const measured& m) {
    table.row({name, format(m.median), format(m.p99), format(m.allocations)});
  };
  hooks x(key_source::engine_hashes, 1, 256, 256);
  x.start_running();
  x.ask_all();
  row("256 wait for answers, none runs", measure([&] {
        x.ask_all();
        // Nothing is scheduled.
      }));
  row("256 wait for answers, 256 run", measure([&] {
        x.ask_all();
        x.build();
      }));
  x.answer_all();
  row("256 have answers and wait for blocks, 256 run", measure([&] {
        x.ask_all();
        x.build();
      }));
  grouped_hooks groups(256, 256);
  groups.start_running();
  groups.ask_all();
  row("four groups: 256 wait for answers, 256 run", measure([&] {
        groups.ask_all();
        groups.build();
      }));
  groups.answer_all();
  row("four groups: 256 have answers and wait for blocks, 256 run", measure([&] {
        groups.ask_all();
        groups.build();
      }));
  std::cout << table.str();
}

/// What a request costs once: the step in which the answers of all groups have arrived.
void print_decision() {
  replay::text_table table({"a hit is decided, 32,768 tokens in four groups", "µs", "p99"});
  grouped_hooks x(steps, 0);
  for (std::size_t i = 0; i < steps; ++i)
    x.ask(i);
  x.answer_all();
  std::size_t next = 0;
  const auto m = measure([&] { x.ask(next++); });
  table.row({"2,048 pages of each group, the last state missing", format(m.median), format(m.p99)});
  std::cout << '\n' << table.str();
}

/// What a request costs once whose pages are at other nodes: the last answer of a lookup, and then of a search.
void print_peers() {
  replay::text_table table({"peers have 32,768 tokens in four groups", "µs", "p99"});
  grouped_hooks x(steps, 0);
  for (std::size_t i = 0; i < steps; ++i)
    x.ask(i);
  for (const auto* const what : {"a search of 2,048 pages of each group begins", "a fetch of its hit begins"}) {
    const auto lookups = x.take_lookups();
    for (std::size_t i = 0; i < lookups.size(); ++i)
      if (i % grouped_hooks::tables + 1 < grouped_hooks::tables)
        x.answer_with_peers(lookups[i]);
    std::size_t next = grouped_hooks::tables - 1;
    const auto m = measure([&] {
      x.answer_with_peers(lookups[next]);
      next += grouped_hooks::tables;
    });
    table.row({what, format(m.median), format(m.p99)});
  }
  std::cout << '\n' << table.str();
}

/// The metadata of a step in which so many requests load, and so many store, pages of one block each.
connector_metadata metadata_of(std::size_t loads, std::size_t stores, std::size_t pages) {
  connector_metadata out;
  const std::vector<key_digest> keys(pages, key_digest{1, 2});
  const std::vector<block_id> blocks(pages, 7);
  for (std::size_t i = 0; i < loads; ++i)
    out.loads.push_back({i, name_of(i), keys, blocks, 0});
  for (std::size_t i = 0; i < stores; ++i)
    out.stores.push_back({i, i, name_of(i), 2047, key_digest{3, 4}, keys, blocks});
  return out;
}

void print_wire() {
  replay::text_table table({"metadata of a step to another process", "KiB", "encode µs", "p99", "decode µs", "p99"});
  const auto row = [&](const char* name, const connector_metadata& metadata) {
    std::vector<std::uint8_t> bytes;
    const auto encoding = measure([&] { encode(metadata, bytes); });
    std::size_t read = 0;
    const auto decoding = measure([&] { read += decode_metadata(bytes).value().loads.size(); });
    table.row({name, format(static_cast<double>(bytes.size()) / 1024), format(encoding.median), format(encoding.p99),
               format(decoding.median), format(decoding.p99)});
  };
  row("nothing to do", {});
  row("16 requests store a block", metadata_of(0, 16, 1));
  row("256 requests store a block", metadata_of(0, 256, 1));
  row("1 request loads 2,048 blocks", metadata_of(1, 0, 2048));
  row("256 requests load 2,048 blocks each", metadata_of(256, 0, 2048));
  std::cout << '\n' << table.str();
}

} // namespace

} // namespace troupe::connector

int main() {
  troupe::connector::print_first_calls();
  troupe::connector::print_steps();
  troupe::connector::print_decision();
  troupe::connector::print_peers();
  troupe::connector::print_wire();
}
