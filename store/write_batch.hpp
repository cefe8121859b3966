#pragma once

#include "store/records.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::store {

/// Puts and deletes that become durable together or not at all, in the order in which they were added. Holds encoded
/// bytes: about 80 per page. Belongs to one thread until it is committed.
class write_batch {
public:
  /// Adds the record, or replaces the one that is there.
  ///
  /// Replacing a page takes a slot away from it: if that slot is to be given to another key, call `require_sync`.
  void put(const namespace_record& record);
  void put(const rank_record& record);
  void put(const page_record& record);
  void put(const node_identity& record);
  void put(const handshake_engine_record& record);
  void put(const handshake_rank_record& record);

  /// Erasing what is not there is fine. Only the record itself goes: for the ranks and pages of a namespace there are
  /// `erase_ranks` and `erase_pages`.
  void erase_namespace(const namespace_id& space);
  void erase_rank(const namespace_id& space, rank_number rank);
  /// The batch has to be synced from now on, whatever the store's durability: see `require_sync`.
  void erase_page(const namespace_id& space, const key_digest& key, rank_number rank);

  /// All of the namespace that came before, in this batch or an earlier one. Synced as `erase_page` is.
  void erase_ranks(const namespace_id& space);
  void erase_pages(const namespace_id& space);

  /// The engine's record and those of its ranks that came before, in this batch or an earlier one.
  void erase_handshakes(std::string_view engine);

  /// Adds what the other batch has after what this one has.
  void append(const write_batch& later);

  /// The batch is answered only once it is on the medium, also by a store whose durability is `relaxed`. For batches
  /// after which a slot may be given to another key; docs/decisions/0005 has the reason.
  void require_sync() noexcept { must_sync_ = true; }
  bool must_sync() const noexcept { return must_sync_; }

  bool empty() const noexcept { return records_ == 0; }
  /// Puts and deletes.
  std::size_t records() const noexcept { return records_; }
  /// Memory that the records take.
  std::size_t bytes() const noexcept { return encoded_.size(); }

  /// One put or delete, as views into the batch.
  struct change {
    enum class kind : std::uint8_t { put, erase, erase_prefix };

    kind what = kind::put;
    /// With `erase_prefix`, what all keys that go begin with.
    std::string_view key;
    /// Empty for a delete.
    std::string_view value;
  };

  /// Calls `f(const change&)` for each, in order.
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

  /// Per change: size of the key (1), size of the value (4; the two largest mark deletes), key, value.
  std::string encoded_;
  std::size_t records_ = 0;
  bool must_sync_ = false;
};

} // namespace troupe::store
