#include "actors/node/supervisor/description_restore.hpp"

#include "actors/node/supervisor/blocking_calls.hpp"
#include "events/description_rules.hpp"
#include "events/description_text.hpp"
#include "messages/description_pages.hpp"

#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Pages, and bytes of what is said about them, in one message to a shard.
constexpr std::size_t pages_most = 256;
constexpr std::size_t bytes_most = std::size_t{256} << 10U;
/// Erasures are written when they reach this size.
constexpr std::size_t change_bytes_most = std::size_t{1} << 20U;
/// How often, and how many times, the publisher is waited for where its queue is half full. Beyond that, changes are
/// dropped as they are whenever it does not keep up.
constexpr std::chrono::milliseconds pause{1};
constexpr int pauses_most = 10'000;

class describer {
public:
  describer(caf::actor_system& system, store::metadata_store& store, std::span<const registry_actor> shards,
            const events::feed& to)
      : system_(system), store_(store), to_(to), parts_(shards.size()) {
    for (std::size_t i = 0; i < shards.size(); ++i)
      parts_[i].shard = shards[i];
  }

  result<void> take(std::span<const store::description_record> records) {
    for (const auto& x : records) {
      auto one = events::description_of(x.text);
      if (one)
        one->keys.items.push_back(x.key);
      if (!one || events::fault_of(*one)) {
        erase(x.ns, x.key);
        continue;
      }
      auto& part = parts_[shard_of(x.key, static_cast<std::uint32_t>(parts_.size()))];
      if (is_full(part.next) || part.next.ns != x.ns || !events::same_shape(part.next.pages, *one))
        if (auto sent = send(part); !sent)
          return sent;
      part.next.ns = x.ns;
      if (part.next.pages.keys.empty())
        part.next.pages = std::move(*one);
      else
        append_page(part.next.pages, *one, 0);
    }
    return changes_.bytes() < change_bytes_most ? result<void>{} : commit_and_wait(store_, std::exchange(changes_, {}));
  }

  result<restored_descriptions> finish() {
    for (auto& part : parts_) {
      auto ended = send(part);
      if (ended)
        ended = take_answer(part);
      if (!ended)
        return tl::unexpected<error>(ended.error());
    }
    if (auto erased = commit_and_wait(store_, std::exchange(changes_, {})); !erased)
      return tl::unexpected<error>(erased.error());
    return out_;
  }

private:
  /// What one shard works on, and what it gets next.
  struct part_of_shard {
    registry_actor shard;
    describe_pages_request next;
    describe_pages_request sent;
    std::future<result<result_codes>> answer;
  };

  static bool is_full(const describe_pages_request& x) {
    return x.pages.keys.size() >= pages_most || events::weight_of(x.pages) >= bytes_most;
  }

  void erase(const namespace_id& ns, const key_digest& key) {
    changes_.erase_description(ns, key);
    ++out_.erased;
  }

  result<void> send(part_of_shard& x) {
    if (auto before = take_answer(x); !before || x.next.pages.keys.empty())
      return before;
    for (int i = 0; i < pauses_most && to_.queued_bytes() > to_.bytes_max() / 2; ++i)
      std::this_thread::sleep_for(pause);
    x.sent = std::exchange(x.next, {});
    x.answer = begin_ask<result_codes>(system_, x.shard, x.sent);
    return {};
  }

  result<void> take_answer(part_of_shard& x) {
    if (!x.answer.valid())
      return {};
    const auto reply = x.answer.get();
    if (!reply) {
      // The pages of a namespace that is not served now are kept, and so is what was said about them.
      if (reply.error().code == errc::unknown_namespace)
        return {};
      return tl::unexpected<error>(reply.error());
    }
    for (std::size_t i = 0; i < std::min(reply->results.size(), x.sent.pages.keys.size()); ++i)
      if (errc_from_wire(reply->results[i]) == errc::ok)
        ++out_.keys;
      else
        erase(x.sent.ns, x.sent.pages.keys[i]);
    return {};
  }

  caf::actor_system& system_;
  store::metadata_store& store_;
  const events::feed& to_;
  std::vector<part_of_shard> parts_;
  store::write_batch changes_;
  restored_descriptions out_;
};

/// Erases all, if there are any.
result<restored_descriptions> erase_all(store::metadata_store& from) {
  bool found = false;
  const auto seen = from.load_descriptions([&](std::span<const store::description_record>) -> result<void> {
    found = true;
    return fail(errc::exists, "there are descriptions");
  });
  if (!found)
    return seen ? result<restored_descriptions>{} : tl::unexpected<error>(seen.error());
  store::write_batch all;
  all.erase_descriptions();
  if (auto erased = commit_and_wait(from, std::move(all)); !erased)
    return tl::unexpected<error>(erased.error());
  return restored_descriptions{};
}

} // namespace

result<restored_descriptions> restore_descriptions(caf::actor_system& system, store::metadata_store& from,
                                                   std::span<const registry_actor> shards, const events::feed* to) {
  if (to == nullptr)
    return erase_all(from);
  describer reader(system, from, shards, *to);
  if (auto read = from.load_descriptions(
          [&](std::span<const store::description_record> records) { return reader.take(records); });
      !read)
    return tl::unexpected<error>(read.error());
  return reader.finish();
}

} // namespace troupe
