#pragma once

#include "store/handshake_records.hpp"
#include "store/metadata_store.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// The table of records that batches make, and that a node which starts reads.
class record_table {
public:
  void apply(const store::write_batch& batch) {
    using kind = store::write_batch::change::kind;
    batch.for_each([this](const store::write_batch::change& x) {
      if (x.what == kind::put)
        records_[std::string(x.key)] = std::string(x.value);
      else if (x.what == kind::erase)
        records_.erase(std::string(x.key));
      else
        std::erase_if(records_, [&](const auto& r) { return r.first.starts_with(x.key); });
    });
  }

  std::vector<store::page_record> pages() const {
    return all<store::page_record>(store::table::pages, store::decode_page);
  }
  std::vector<store::rank_record> ranks() const {
    return all<store::rank_record>(store::table::ranks, store::decode_rank);
  }
  std::vector<store::namespace_record> namespaces() const {
    return all<store::namespace_record>(store::table::namespaces, store::decode_namespace);
  }

  std::vector<store::description_record> descriptions() const {
    return all<store::description_record>(store::table::descriptions, store::decode_description);
  }

  /// Tells of what engines have published, each followed by its ranks.
  result<void> visit_handshakes(store::load_visitor& visitor) const {
    for (const auto& [key, value] : records_) {
      if (!key.starts_with(store::first_of(store::table::handshakes)))
        continue;
      auto taken = store::is_handshake_engine(key)
                       ? visitor.on_handshake(store::decode_handshake_engine(key, value).value())
                       : visitor.on_handshake(store::decode_handshake_rank(key, value).value());
      if (!taken)
        return taken;
    }
    return {};
  }

  std::optional<store::node_identity> identity() const {
    const auto found = all<store::node_identity>(store::table::identity, store::decode_identity);
    return found.empty() ? std::nullopt : std::optional(found[0]);
  }

private:
  template <class Record, class Decode>
  std::vector<Record> all(store::table which, Decode decode) const {
    std::vector<Record> out;
    for (const auto& [key, value] : records_)
      if (key.starts_with(store::first_of(which)))
        out.push_back(decode(key, value).value());
    return out;
  }

  std::map<std::string, std::string> records_;
};

/// A store in memory, which can be opened again with its contents.
class record_store final : public store::metadata_store {
public:
  const store::node_identity& identity() const noexcept override { return identity_; }

  result<void> commit(store::write_batch&& batch, store::commit_callback done) override {
    {
      const std::lock_guard guard(mutex_);
      table_.apply(std::exchange(batch, {}));
    }
    done({});
    return {};
  }

  result<store::load_summary> load(store::load_visitor& visitor, unsigned) override {
    const auto now = table();
    for (const auto& x : now.namespaces())
      if (auto taken = visitor.on_namespace(x); !taken)
        return tl::unexpected<error>(taken.error());
    for (const auto& x : now.ranks())
      if (auto taken = visitor.on_rank(x); !taken)
        return tl::unexpected<error>(taken.error());
    if (auto taken = now.visit_handshakes(visitor); !taken)
      return tl::unexpected<error>(taken.error());
    const auto pages = now.pages();
    if (auto taken = visitor.on_pages(pages); !taken)
      return tl::unexpected<error>(taken.error());
    return store::load_summary{now.namespaces().size(), now.ranks().size(), pages.size()};
  }

  result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const store::description_record>)>& take) override {
    const auto all = table().descriptions();
    if (all.empty())
      return std::uint64_t{0};
    if (auto taken = take(all); !taken)
      return tl::unexpected<error>(taken.error());
    return all.size();
  }

  result<void> close() override { return {}; }
  store::store_stats stats() const override { return {}; }

  record_table table() const {
    const std::lock_guard guard(mutex_);
    return table_;
  }

  template <class Record>
  void put(const Record& record) {
    store::write_batch batch;
    batch.put(record);
    const std::lock_guard guard(mutex_);
    table_.apply(batch);
  }

  /// The identity that was committed last.
  std::optional<store::node_identity> last_identity() const { return table().identity(); }

  /// The identity of the store; a commit of another identity does not change it, as in an open store.
  store::node_identity identity_ = store::first_identity();

private:
  mutable std::mutex mutex_;
  record_table table_;
};

} // namespace troupe::test
