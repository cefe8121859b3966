#include "connector/wire.hpp"

#include "connector/load_marks.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace troupe::connector {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");
static_assert(sizeof(key_digest) == 16 && std::is_trivially_copyable_v<key_digest>);

constexpr std::array<std::uint8_t, 4> wire_magic{'T', 'R', 'P', 'E'};

enum class wire_kind : std::uint16_t { metadata = 1, outcomes = 2 };

struct wire_header {
  std::array<std::uint8_t, 4> magic{};
  std::uint16_t version = 0;
  std::uint16_t kind = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(wire_header) == wire_header_bytes);

class wire_writer {
public:
  explicit wire_writer(std::vector<std::uint8_t>& out) : out_(out) { out_.resize(wire_header_bytes); }

  template <class T>
  void number(T x) {
    static_assert(std::is_unsigned_v<T>);
    raw(&x, sizeof x);
  }
  void count(std::size_t x) { number(static_cast<std::uint32_t>(x)); }
  void key(const key_digest& x) { raw(&x, sizeof x); }

  void text(std::string_view x) {
    count(x.size());
    raw(x.data(), x.size());
  }
  template <class T>
  void list(const std::vector<T>& x) {
    count(x.size());
    raw(x.data(), x.size() * sizeof(T));
  }

  void finish(wire_kind of) {
    const wire_header header{wire_magic, wire_version, static_cast<std::uint16_t>(of), 0, 0};
    std::memcpy(out_.data(), &header, sizeof header);
    seal_wire(out_);
  }

private:
  void raw(const void* from, std::size_t bytes) {
    if (bytes == 0)
      return;
    const auto* first = static_cast<const std::uint8_t*>(from);
    out_.insert(out_.end(), first, first + bytes);
  }

  std::vector<std::uint8_t>& out_;
};

/// Reads until something does not fit; after that every result is empty.
class wire_reader {
public:
  explicit wire_reader(std::span<const std::uint8_t> body) : rest_(body) {}

  bool failed() const noexcept { return failed_; }
  bool at_end() const noexcept { return !failed_ && rest_.empty(); }

  template <class T>
  T number() {
    T x{};
    raw(&x, sizeof x);
    return x;
  }
  key_digest key() {
    key_digest x;
    raw(&x, sizeof x);
    return x;
  }
  /// A number of elements of at least `element_bytes` each.
  std::size_t count(std::size_t element_bytes) {
    const auto x = number<std::uint32_t>();
    if (x > rest_.size() / element_bytes)
      failed_ = true;
    return failed_ ? 0 : x;
  }
  std::string text() {
    std::string x(count(1), '\0');
    raw(x.data(), x.size());
    return x;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> x(count(sizeof(T)));
    raw(x.data(), x.size() * sizeof(T));
    return x;
  }
  /// A byte that has to be 0 or 1.
  bool flag() {
    const auto x = number<std::uint8_t>();
    failed_ = failed_ || x > 1;
    return x == 1;
  }

private:
  void raw(void* to, std::size_t bytes) {
    if (failed_ || bytes > rest_.size()) {
      failed_ = true;
      return;
    }
    if (bytes == 0)
      return;
    std::memcpy(to, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }

  std::span<const std::uint8_t> rest_;
  bool failed_ = false;
};

/// The smallest size of one element.
constexpr std::size_t load_bytes = 8 + 8 + 1 + 4 + 4 + 4 + 4;
constexpr std::size_t store_bytes = 8 + 8 + 4 + 4 + 16 + 4 + 1 + 4 + 4;
constexpr std::size_t finish_bytes = 8 + 1 + 4;
constexpr std::size_t outcome_bytes = 8 + 4;

std::uint64_t checksum_of(std::span<const std::uint8_t> body) {
  return XXH3_64bits(body.data(), body.size());
}

/// The body, if the header is valid.
result<std::span<const std::uint8_t>> open(std::span<const std::uint8_t> bytes, wire_kind of) {
  const auto what = [&] {
    return std::string{of == wire_kind::metadata ? "metadata of a step" : "outcomes of stores"} + ": ";
  };
  wire_header header;
  if (bytes.size() < sizeof header)
    return fail(errc::corrupt, what() + std::to_string(bytes.size()) + " bytes are not enough");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != wire_magic)
    return fail(errc::corrupt, what() + "the bytes have another format");
  if (header.version != wire_version)
    return fail(errc::unsupported, what() + "they have version " + std::to_string(header.version) +
                                       ", and this library reads " + std::to_string(wire_version) +
                                       "; all processes of an engine must have the same library");
  if (header.kind != static_cast<std::uint16_t>(of))
    return fail(errc::corrupt, what() + "the bytes are of another kind");
  const auto body = bytes.subspan(sizeof header);
  if (header.bytes != body.size())
    return fail(errc::corrupt, what() + "there are " + std::to_string(body.size()) + " bytes instead of " +
                                   std::to_string(header.bytes));
  if (header.checksum != checksum_of(body))
    return fail(errc::corrupt, what() + "the checksum differs");
  return body;
}

} // namespace

void seal_wire(std::span<std::uint8_t> bytes) {
  wire_header header;
  if (bytes.size() < sizeof header)
    return;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto body = bytes.subspan(sizeof header);
  header.bytes = body.size();
  header.checksum = checksum_of(body);
  std::memcpy(bytes.data(), &header, sizeof header);
}

void encode(const connector_metadata& metadata, std::vector<std::uint8_t>& out) {
  wire_writer to(out);
  to.count(metadata.loads.size());
  for (const auto& x : metadata.loads) {
    to.number(x.session);
    to.number(x.id);
    to.number(static_cast<std::uint8_t>(x.between_steps));
    to.number(x.group);
    to.text(x.request);
    to.list(x.keys);
    to.list(x.blocks);
  }
  to.count(metadata.stores.size());
  for (const auto& x : metadata.stores) {
    to.number(x.id);
    to.number(x.session);
    to.text(x.request);
    to.number(x.first_page);
    to.key(x.parent);
    to.number(x.group);
    to.number(static_cast<std::uint8_t>(x.chained));
    to.list(x.keys);
    to.list(x.blocks);
  }
  to.list(metadata.preempted);
  to.count(metadata.finished.size());
  for (const auto& x : metadata.finished) {
    to.number(x.session);
    to.number(static_cast<std::uint8_t>(x.received));
    to.text(x.request);
  }
  to.finish(wire_kind::metadata);
}

void encode(std::span<const store_outcome> outcomes, std::vector<std::uint8_t>& out) {
  wire_writer to(out);
  to.count(outcomes.size());
  for (const auto& x : outcomes) {
    to.number(x.id);
    to.list(x.stored);
  }
  to.finish(wire_kind::outcomes);
}

result<connector_metadata> decode_metadata(std::span<const std::uint8_t> bytes) {
  const auto body = open(bytes, wire_kind::metadata);
  if (!body)
    return tl::unexpected(body.error());
  wire_reader from(*body);
  connector_metadata out;
  out.loads.resize(from.count(load_bytes));
  for (auto& x : out.loads) {
    x.session = from.number<session_id>();
    x.id = from.number<store_id>();
    x.between_steps = from.flag();
    x.group = from.number<std::uint32_t>();
    x.request = from.text();
    x.keys = from.list<key_digest>();
    x.blocks = from.list<block_id>();
  }
  out.stores.resize(from.count(store_bytes));
  for (auto& x : out.stores) {
    x.id = from.number<store_id>();
    x.session = from.number<session_id>();
    x.request = from.text();
    x.first_page = from.number<std::uint32_t>();
    x.parent = from.key();
    x.group = from.number<std::uint32_t>();
    x.chained = from.flag();
    x.keys = from.list<key_digest>();
    x.blocks = from.list<block_id>();
  }
  out.preempted = from.list<session_id>();
  out.finished.resize(from.count(finish_bytes));
  for (auto& x : out.finished) {
    x.session = from.number<session_id>();
    x.received = from.flag();
    x.request = from.text();
  }
  if (!from.at_end())
    return fail(errc::corrupt, "metadata of a step: a length exceeds the available bytes");
  return out;
}

result<std::vector<store_outcome>> decode_outcomes(std::span<const std::uint8_t> bytes) {
  const auto body = open(bytes, wire_kind::outcomes);
  if (!body)
    return tl::unexpected(body.error());
  wire_reader from(*body);
  std::vector<store_outcome> out(from.count(outcome_bytes));
  bool sound = true;
  for (auto& x : out) {
    x.id = from.number<store_id>();
    x.stored = from.list<std::uint8_t>();
    sound = sound && std::all_of(x.stored.begin(), x.stored.end(), [](std::uint8_t s) { return s <= page_untried; });
  }
  if (!sound || !from.at_end())
    return fail(errc::corrupt, "outcomes of stores: a number is invalid or exceeds the available bytes");
  return out;
}

} // namespace troupe::connector
