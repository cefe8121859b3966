#include "actors/cluster/takeover/adopted_index.hpp"

#include "base/log.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/slab/slab_reader.hpp"
#include "store/epoch_file.hpp"
#include "store/metadata_store.hpp"
#include "store/rocksdb_store.hpp"

#include <algorithm>
#include <fcntl.h>
#include <system_error>

namespace troupe::cluster {

namespace fs = std::filesystem;

namespace {

/// Slab files are in the node's data directory or one level below, which may be a link.
constexpr int depth_max = 2;
/// Memory is reserved in steps of at least this number of pages.
constexpr std::size_t pages_per_step = 4096;

} // namespace

std::optional<slot_ref> adopted_rank::find(const key_digest& key) const {
  const auto found = std::ranges::lower_bound(pages, key, {}, &entry::key);
  if (found == pages.end() || found->key != key)
    return std::nullopt;
  return found->where;
}

/// Fills an `adopted_index`.
class adopted_index_reader final : public store::load_visitor {
public:
  adopted_index_reader(adopted_index& into, shared_budget memory, std::function<bool()> ends)
      : into_(into), memory_(std::move(memory)), ends_(std::move(ends)) {
    into_.memory_ = memory_share(memory_);
  }

  void find_files(const fs::path& directory, const fs::path& shared) {
    std::error_code failed;
    const auto root = fs::weakly_canonical(shared, failed);
    auto at = fs::recursive_directory_iterator(directory, fs::directory_options::follow_directory_symlink, failed);
    for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
      std::error_code ignored;
      if (at.depth() >= depth_max)
        at.disable_recursion_pending();
      if (at->path().extension() == ".slab" && at->is_regular_file(ignored))
        add_file(at->path(), root);
    }
  }

  store::load_visitor& begin(const store::node_identity& kept, const std::optional<incarnation_number>& epoch) {
    is_believed_ = store::continues_epoch(kept.epoch, kept.next_epoch, epoch);
    return *this;
  }

  result<void> on_namespace(const store::namespace_record&) override { return {}; }
  result<void> on_rank(const store::rank_record&) override { return {}; }

  result<void> on_pages(std::span<const store::page_record> pages) override {
    if (ends_ && ends_())
      return fail(errc::shutting_down, "the node is shutting down");
    if (!is_believed_)
      return {};
    for (const auto& x : pages) {
      const auto ns = into_.namespaces_.find(x.ns);
      if (ns == into_.namespaces_.end())
        continue;
      const auto rank = ns->second.find(x.rank);
      // The record is of an earlier file of that path, or its slot does not exist.
      if (rank == ns->second.end() || x.incarnation == 0 || rank->second.incarnation != x.incarnation ||
          x.where.slot >= rank->second.slots)
        continue;
      auto& pages_there = rank->second.pages;
      if (pages_there.size() == pages_there.capacity())
        if (auto room = make_room(pages_there); !room)
          return room;
      pages_there.push_back({x.key, x.where});
      ++into_.pages_;
      into_.keys_ += rank == ns->second.begin() ? 1 : 0;
    }
    return {};
  }

  void finish() {
    for (auto& [ns, ranks] : into_.namespaces_)
      for (auto& [number, x] : ranks) {
        shrink(x.pages);
        std::ranges::sort(x.pages, {}, &adopted_rank::entry::key);
      }
  }

private:
  void add_file(const fs::path& path, const fs::path& root) {
    const unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    auto spec = opened ? io::identify_slab(opened.get(), path) : fail(errc::io_error, "cannot be opened");
    std::error_code failed;
    const auto below = fs::weakly_canonical(path, failed).lexically_relative(root);
    if (!spec || failed || below.empty() || *below.begin() == "..") {
      log::get("cluster")->warn("slab file of a dead node skipped: {}: {}", path.string(),
                                spec ? "it is not below " + root.string() : spec.error().text);
      return;
    }
    into_.namespaces_[spec->ns][spec->rank] = {below.string(), spec->incarnation, spec->slot_bytes, spec->slots};
  }

  using entries = std::vector<adopted_rank::entry>;

  static std::uint64_t bytes_of(std::size_t count) { return std::uint64_t{count} * sizeof(adopted_rank::entry); }

  /// Whether there is memory for `count` more pages. A part of the budget is left for this node's own index.
  bool has_room(std::size_t count) const {
    const auto bytes = bytes_of(count);
    return !memory_ || (memory_->has_room(bytes) && into_.memory_.bytes() + bytes <= memory_->limit() / 4);
  }

  /// Changes the capacity. The old and the new array exist at once while one is copied into the other.
  void change(entries& x, std::size_t capacity) {
    const auto before = into_.memory_.bytes();
    const auto old = bytes_of(x.capacity());
    into_.memory_.set(before + bytes_of(capacity));
    entries made;
    made.reserve(capacity);
    made.assign(x.begin(), x.end());
    x.swap(made);
    made = {};
    into_.memory_.set(before - old + bytes_of(x.capacity()));
  }

  result<void> make_room(entries& x) {
    const auto wanted = x.capacity() + std::max<std::size_t>(x.capacity() / 2, pages_per_step);
    if (!has_room(wanted))
      return fail(errc::no_memory, "no memory for its index; raise registry.memory_bytes");
    change(x, wanted);
    return {};
  }

  void shrink(entries& x) {
    if (x.size() < x.capacity() && has_room(x.size()))
      change(x, x.size());
  }

  adopted_index& into_;
  shared_budget memory_;
  const std::function<bool()> ends_;
  bool is_believed_ = false;
};

result<std::shared_ptr<const adopted_index>> adopted_index::read(const fs::path& directory, const fs::path& shared,
                                                                 const shared_budget& memory,
                                                                 const std::function<bool()>& ends) {
  auto out = std::make_shared<adopted_index>();
  adopted_index_reader reader(*out, memory, ends);
  reader.find_files(directory, shared);
  const auto epoch = store::read_epoch(directory);
  if (!epoch)
    return tl::unexpected<error>(epoch.error());
  const auto seen =
      store::rocksdb_store::look(directory / "index", [&](const store::node_identity& kept) -> store::load_visitor& {
        return reader.begin(kept, *epoch);
      });
  if (!seen)
    return tl::unexpected<error>(seen.error());
  reader.finish();
  return out;
}

bool adopted_index::has(const namespace_id& ns, std::size_t ranks, std::uint64_t page_bytes) const {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end() || found->second.size() != ranks || found->second.rbegin()->first + 1 != ranks)
    return false;
  return std::ranges::all_of(found->second,
                             [&](const auto& x) { return x.second.slot_bytes == io::slot_bytes(page_bytes); });
}

std::vector<namespace_id> adopted_index::namespaces() const {
  std::vector<namespace_id> out;
  for (const auto& [id, ranks] : namespaces_)
    out.push_back(id);
  return out;
}

std::uint32_t adopted_index::match(const namespace_id& ns, std::span<const key_digest> keys) const {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end())
    return 0;
  std::uint32_t out = 0;
  for (const auto& key : keys) {
    if (!std::ranges::all_of(found->second, [&](const auto& x) { return x.second.find(key).has_value(); }))
      break;
    ++out;
  }
  return out;
}

const adopted_rank* adopted_index::rank(const namespace_id& ns, rank_number number) const {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end())
    return nullptr;
  const auto rank = found->second.find(number);
  return rank == found->second.end() ? nullptr : &rank->second;
}

} // namespace troupe::cluster
