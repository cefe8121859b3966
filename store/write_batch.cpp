#include "store/write_batch.hpp"

#include <cstring>
#include <limits>

namespace troupe::store {

namespace {

constexpr std::size_t key_size_bytes = 1;
constexpr std::size_t value_size_bytes = sizeof(std::uint32_t);
constexpr std::size_t header_bytes = key_size_bytes + value_size_bytes;
constexpr std::uint32_t erase_mark = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t erase_prefix_mark = erase_mark - 1;

void set_value_size(std::string& encoded, std::size_t header, std::uint32_t size) {
  std::memcpy(encoded.data() + header + key_size_bytes, &size, sizeof size);
}

// Returns the position of the change's header.
template <class AppendKey>
std::size_t add_key(std::string& encoded, AppendKey&& append_key) {
  const auto header = encoded.size();
  encoded.append(header_bytes, '\0');
  append_key(encoded);
  const auto key_size = encoded.size() - header - header_bytes;
  encoded[header] = static_cast<char>(static_cast<unsigned char>(key_size));
  return header;
}

} // namespace

template <class AppendKey>
void write_batch::add_erase(std::uint32_t mark, AppendKey&& append_key) {
  set_value_size(encoded_, add_key(encoded_, append_key), mark);
  ++records_;
}

template <class AppendKey, class Record>
void write_batch::add_put(AppendKey&& append_key, const Record& record) {
  const auto header = add_key(encoded_, append_key);
  const auto before = encoded_.size();
  append_value(encoded_, record);
  set_value_size(encoded_, header, static_cast<std::uint32_t>(encoded_.size() - before));
  ++records_;
}

void write_batch::put(const namespace_record& record) {
  add_put([&](std::string& out) { append_namespace_key(out, record.id); }, record);
}

void write_batch::put(const rank_record& record) {
  add_put([&](std::string& out) { append_rank_key(out, record.ns, record.rank); }, record);
}

void write_batch::put(const page_record& record) {
  add_put([&](std::string& out) { append_page_key(out, record.ns, record.key, record.rank); }, record);
}

void write_batch::put(const description_record& record) {
  add_put([&](std::string& out) { append_description_key(out, record.ns, record.key); }, record);
}

void write_batch::erase_description(const namespace_id& ns, const key_digest& key) {
  add_erase(erase_mark, [&](std::string& out) { append_description_key(out, ns, key); });
}

void write_batch::erase_descriptions() {
  add_erase(erase_prefix_mark, [](std::string& out) { out += first_of(table::descriptions); });
}

void write_batch::put(const node_identity& record) {
  add_put([](std::string& out) { append_identity_key(out); }, record);
}

void write_batch::put(const handshake_engine_record& record) {
  add_put([&](std::string& out) { append_handshake_key(out, record.engine); }, record);
}

void write_batch::put(const handshake_rank_record& record) {
  add_put([&](std::string& out) { append_handshake_key(out, record.engine, record.rank); }, record);
}

void write_batch::erase_handshakes(std::string_view engine) {
  add_erase(erase_prefix_mark, [&](std::string& out) { append_handshake_key(out, engine); });
}

void write_batch::erase_namespace(const namespace_id& ns) {
  add_erase(erase_mark, [&](std::string& out) { append_namespace_key(out, ns); });
}

void write_batch::erase_rank(const namespace_id& ns, rank_number rank) {
  add_erase(erase_mark, [&](std::string& out) { append_rank_key(out, ns, rank); });
}

void write_batch::erase_page(const namespace_id& ns, const key_digest& key, rank_number rank) {
  add_erase(erase_mark, [&](std::string& out) { append_page_key(out, ns, key, rank); });
  require_sync();
}

void write_batch::erase_ranks(const namespace_id& ns) {
  add_erase(erase_prefix_mark, [&](std::string& out) { append_rank_prefix(out, ns); });
  require_sync();
}

void write_batch::erase_pages(const namespace_id& ns) {
  add_erase(erase_prefix_mark, [&](std::string& out) { append_page_prefix(out, ns); });
  add_erase(erase_prefix_mark, [&](std::string& out) { append_description_prefix(out, ns); });
  require_sync();
}

void write_batch::append(const write_batch& later) {
  encoded_ += later.encoded_;
  records_ += later.records_;
  must_sync_ = must_sync_ || later.must_sync_;
}

write_batch::change write_batch::take_change(std::string_view& rest) noexcept {
  const auto key_size = static_cast<std::size_t>(static_cast<unsigned char>(rest.front()));
  std::uint32_t value_size = 0;
  std::memcpy(&value_size, rest.data() + key_size_bytes, sizeof value_size);
  change next;
  if (value_size >= erase_prefix_mark) {
    next.what = value_size == erase_mark ? change::kind::erase : change::kind::erase_prefix;
    value_size = 0;
  }
  next.key = rest.substr(header_bytes, key_size);
  next.value = rest.substr(header_bytes + key_size, value_size);
  rest.remove_prefix(header_bytes + key_size + value_size);
  return next;
}

} // namespace troupe::store
