#include "fuzz/store_records.hpp"

#include "fuzz/check.hpp"
#include "store/handshake_records.hpp"
#include "store/records.hpp"

#include <algorithm>
#include <memory>

namespace troupe::fuzz {

namespace {

using namespace store;

std::string key_of(const node_identity&) {
  std::string out;
  append_identity_key(out);
  return out;
}

std::string key_of(const namespace_record& x) {
  std::string out;
  append_namespace_key(out, x.id);
  return out;
}

std::string key_of(const rank_record& x) {
  std::string out;
  append_rank_key(out, x.ns, x.rank);
  return out;
}

std::string key_of(const page_record& x) {
  std::string out;
  append_page_key(out, x.ns, x.key, x.rank);
  return out;
}

std::string key_of(const handshake_engine_record& x) {
  std::string out;
  append_handshake_key(out, x.engine);
  return out;
}

std::string key_of(const handshake_rank_record& x) {
  std::string out;
  append_handshake_key(out, x.engine, x.rank);
  return out;
}

template <class Record>
int check(result<Record> (*decode)(std::string_view, std::string_view), std::string_view key, std::string_view value) {
  const auto read = decode(key, value);
  if (!read) {
    demand(!read.error().text.empty() && read.error().code != errc::ok, "a refusal without a reason");
    return 0;
  }
  // A record of an older build may have other bytes, but it is the same record.
  std::string again;
  append_value(again, *read);
  demand(key_of(*read) == key, "a record with another key than it was read from");
  const auto back = decode(key, again);
  demand(back.has_value() && *back == *read, "a record that changes when it is written again");
  return 1;
}

/// A buffer of exactly the required length, so that a sanitizer detects a read beyond the end.
class exact {
public:
  explicit exact(std::string_view text) : bytes_(std::make_unique<char[]>(text.size())), size_(text.size()) {
    text.copy(bytes_.get(), size_);
  }
  std::string_view text() const { return {bytes_.get(), size_}; }

private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

} // namespace

int read_store_records(std::string_view text) {
  if (text.empty())
    return 0;
  const auto key_bytes = std::min<std::size_t>(static_cast<unsigned char>(text.front()), text.size() - 1);
  const exact key(text.substr(1, key_bytes));
  const exact value(text.substr(1 + key_bytes));
  return check(decode_identity, key.text(), value.text()) + check(decode_namespace, key.text(), value.text()) +
         check(decode_rank, key.text(), value.text()) + check(decode_page, key.text(), value.text()) +
         check(decode_handshake_engine, key.text(), value.text()) +
         check(decode_handshake_rank, key.text(), value.text());
}

std::string record_text(std::string_view key, std::string_view value) {
  std::string out(1, static_cast<char>(key.size()));
  return out.append(key).append(value);
}

} // namespace troupe::fuzz
