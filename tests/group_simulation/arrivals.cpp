#include "base/digest.hpp"
#include "tests/group_simulation/engine.hpp"

#include <algorithm>

namespace troupe::group_simulation {

namespace {

/// Requests of one family have the same tokens up to some of these positions.
content token_at(std::uint64_t family, std::uint64_t branch, std::uint32_t position, std::uint32_t fork) {
  return mix(mix(family, position), position < fork ? 0 : branch + 1);
}

} // namespace

connector::block_hash hash_of(content prefix) {
  connector::block_hash out{};
  for (std::size_t i = 0; i < 8; ++i)
    out[i] = static_cast<std::byte>(prefix >> (8 * i));
  return out;
}

request* engine::find(const std::string& name) {
  const auto i = requests_.find(name);
  return i == requests_.end() ? nullptr : i->second.get();
}

void engine::add_request() {
  auto& random = world_.random;
  auto made = std::make_unique<request>();
  auto& x = *made;
  x.life = ++last_life_;
  x.name = "r" + std::to_string(random.one_in(4) ? x.life % 5 : 100 + x.life);
  if (requests_.contains(x.name))
    return;
  x.prompt = random.one_in(3)
                 ? random.number(1, world_.made.prompt_max / world_.made.page_tokens) * world_.made.page_tokens
                 : random.number(1, world_.made.prompt_max);
  x.end = x.prompt + random.number(1, world_.made.output_max);
  const auto family = random.below(2);
  const auto branch = random.one_in(3) ? x.life + 10 : random.below(3);
  const auto fork = random.pick(std::vector<std::uint32_t>{world_.made.page_tokens, 3 * world_.made.page_tokens, 1000});
  x.prefix.push_back(0);
  for (std::uint32_t i = 0; i < x.prompt; ++i)
    x.prefix.push_back(mix(x.prefix.back(), token_at(family, branch, i, fork)));
  x.tables.resize(world_.made.tables());
  extend(x);
  world_.trace("comes", x.name, x.prompt, x.end);
  world_.count("request");
  waiting_.push_back(&x);
  requests_.emplace(x.name, std::move(made));
  if (!random.one_in(4))
    scheduler_.on_new_request(x);
}

void engine::extend(request& x) {
  const auto page = world_.made.page_tokens;
  while ((x.hashes.size() + 1) * page <= x.tokens()) {
    const auto first = static_cast<std::uint32_t>(x.hashes.size()) * page;
    x.hashes.push_back(hash_of(x.prefix[first + page]));
    connector::key_chain keys({connector::key_source::engine_hashes, page, 1}, {world_.made.groups.front().ns}, {});
    keys.add_hashes({0, x.hashes});
    x.keys.assign(keys.keys().begin(), keys.keys().end());
    cache_.meaning(x.keys.back(), {x.prefix.begin() + first + 1, x.prefix.begin() + first + page + 1});
  }
}

void engine::free_all(request& x) {
  for (auto& table : x.tables) {
    for (const auto block : table)
      if (block != empty_block)
        pool_.free(block);
    table.clear();
  }
}

void engine::finish(request& x) {
  std::erase(waiting_, &x);
  std::erase(running_, &x);
  const bool loads = x.now == request::phase::loading;
  const bool waits = scheduler_.finished(x);
  if (waits && !loads)
    world_.broken("engine", x.name + " has finished, and the engine is to keep its blocks although no load goes on");
  if (waits) {
    world_.count("aborted during its load");
    x.now = request::phase::leaving;
    return;
  }
  forget(x);
}

void engine::forget(request& x) {
  scheduler_.received(x);
  scheduler_.forget(x);
  free_all(x);
  requests_.erase(x.name);
}

void engine::abort_one() {
  std::vector<request*> all;
  for (const auto& [name, x] : requests_)
    if (x->now != request::phase::leaving)
      all.push_back(x.get());
  if (all.empty())
    return;
  auto& x = *world_.random.pick(all);
  constexpr const char* names[] = {"aborted: waiting", "aborted: loading", "aborted: loaded", "aborted: running"};
  world_.count(names[static_cast<int>(x.now)]);
  world_.trace("is aborted", x.name, static_cast<std::uint64_t>(x.now));
  finish(x);
}

} // namespace troupe::group_simulation
