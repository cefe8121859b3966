#pragma once

#include "store/handshake_records.hpp"
#include "store/records.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::store {

/// Puts and deletes that become durable together or not at all, in the order in which they were added. It holds encoded
/// bytes, about 80 per page. Belongs to one thread until it is committed.
class write_batch {
public:
  /// Adds the record, or replaces an existing one.
  ///
  /// Replacing a page takes a slot away from it: call `require_sync` if that slot may be given to another key.
  void put(const namespace_record& record);
  void put(const rank_record& record);
  void put(const page_record& record);
  void put(const description_record& record);
  void put(const node_identity& record);
  void put(const handshake_engine_record& record);
  void put(const handshake_rank_record& record);

  /// Erasing a missing record is permitted. Only the record itself is erased: `erase_ranks` and `erase_pages` are for
  /// the ranks and pages of a namespace.
  void erase_namespace(const namespace_id& ns);
  void erase_rank(const namespace_id& ns, rank_number rank);
  /// Requires a sync of the batch, whatever the store's durability: see `require_sync`.
  void erase_page(const namespace_id& ns, const key_digest& key, rank_number rank);

  /// Descriptions are hints, so nothing has to be synced.
  void erase_description(const namespace_id& ns, const key_digest& key);
  /// Those of all namespaces.
  void erase_descriptions();

  /// Erases all earlier records of the namespace, in this batch or an earlier one. Synced as `erase_page`. Descriptions
  /// go with the pages.
  void erase_ranks(const namespace_id& ns);
  void erase_pages(const namespace_id& ns);

  /// Erases the earlier records of the engine and of its ranks, in this batch or an earlier one.
  void erase_handshakes(std::string_view engine);

  /// Appends the other batch to this one.
  void append(const write_batch& later);

  /// The batch is answered only once it is on the medium, also by a store with durability `relaxed`. For batches after
  /// which a slot may be given to another key; docs/decisions/0005 has the reason.
  void require_sync() noexcept { must_sync_ = true; }
  bool must_sync() const noexcept { return must_sync_; }

  bool empty() const noexcept { return records_ == 0; }
  /// The number of puts and deletes.
  std::size_t records() const noexcept { return records_; }
  /// The memory of the records.
  std::size_t bytes() const noexcept { return encoded_.size(); }

  /// One put or delete, as views into the batch.
  struct change {
    enum class kind : std::uint8_t { put, erase, erase_prefix };

    kind what = kind::put;
    /// With `erase_prefix`: the prefix of all erased keys.
    std::string_view key;
    /// Empty for a delete.
    std::string_view value;
  };

  /// Calls `f(const change&)` for each change, in order.
  template <class F>
  void for_each(F&& f) const {
    for (std::string_view rest = encoded_; !rest.empty();)
      f(take_change(rest));
  }

private:
  template <class AppendKey>
  void add_erase(std::uint32_t mark, AppendKey&& append_key);
  template <class AppendKey, class Record>
  void add_put(AppendKey&& append_key, const Record& record);

  static change take_change(std::string_view& rest) noexcept;

  /// For each change: size of the key (1), size of the value (4; the two largest mark deletes), key, value.
  std::string encoded_;
  std::size_t records_ = 0;
  bool must_sync_ = false;
};

} // namespace troupe::store
