#include "events/description_text.hpp"

#include "messages/description_pages.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>

namespace troupe::events {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::uint8_t version = 1;

template <class T>
void put(std::string& out, T x) {
  out.append(reinterpret_cast<const char*>(&x), sizeof x);
}

template <class T>
void put_all(std::string& out, const packed<T>& from, std::size_t at, std::size_t count) {
  out.append(reinterpret_cast<const char*>(from.items.data() + at * count), count * sizeof(T));
}

/// Reads from the front; what is missing reads as zero and makes the whole unsound.
class text_reader {
public:
  explicit text_reader(std::string_view text) : rest_(text) {}

  template <class T>
  T number() {
    T out{};
    if (take(sizeof out))
      std::memcpy(&out, taken_.data(), sizeof out);
    return out;
  }

  std::string text(std::size_t bytes) { return take(bytes) ? std::string(taken_) : std::string(); }

  template <class T>
  void numbers(packed<T>& out, std::size_t count) {
    if (!take(count * sizeof(T)) || count == 0)
      return;
    out.items.resize(count);
    std::memcpy(out.items.data(), taken_.data(), count * sizeof(T));
  }

  std::string rest() { return text(rest_.size()); }
  bool sound() const noexcept { return sound_; }

private:
  bool take(std::size_t bytes) {
    sound_ = sound_ && bytes <= rest_.size();
    if (!sound_)
      return false;
    taken_ = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return true;
  }

  std::string_view rest_;
  std::string_view taken_;
  bool sound_ = true;
};

auto shape_of(const page_descriptions& x) {
  return std::tie(x.block_tokens, x.blocks_per_page, x.groups, x.lora);
}

} // namespace

std::string description_text(const page_descriptions& x, std::size_t at) {
  const std::size_t tokens = std::size_t{x.blocks_per_page} * x.block_tokens;
  std::string out;
  out.reserve(32 + x.lora.size() + x.blocks_per_page * sizeof(std::uint64_t) + tokens * sizeof(std::uint32_t));
  put(out, version);
  put(out, static_cast<std::uint16_t>(x.block_tokens));
  put(out, static_cast<std::uint8_t>(x.blocks_per_page));
  put(out, static_cast<std::uint8_t>(x.groups.size()));
  for (const auto& group : x.groups) {
    put(out, group.index);
    put(out, group.window);
    put(out, static_cast<std::uint8_t>(group.kind.size()));
    out += group.kind;
  }
  put(out, static_cast<std::uint16_t>(x.lora.size()));
  out += x.lora;
  put(out, static_cast<std::uint8_t>(x.has_parent[at] != 0 ? 1 : 0));
  put(out, x.parents[at]);
  put_all(out, x.hashes, at, x.blocks_per_page);
  put_all(out, x.tokens, at, tokens);
  out += extra_of(x, at);
  return out;
}

result<page_descriptions> description_of(std::string_view text) {
  text_reader in(text);
  if (in.number<std::uint8_t>() != version)
    return fail(errc::corrupt, "the description of a page has another version");
  page_descriptions out;
  out.block_tokens = in.number<std::uint16_t>();
  out.blocks_per_page = in.number<std::uint8_t>();
  const auto groups = in.number<std::uint8_t>();
  for (std::uint8_t i = 0; i < groups && in.sound(); ++i) {
    auto& group = out.groups.emplace_back();
    group.index = in.number<std::uint32_t>();
    group.window = in.number<std::uint32_t>();
    group.kind = in.text(in.number<std::uint8_t>());
  }
  out.lora = in.text(in.number<std::uint16_t>());
  out.has_parent.items.push_back(in.number<std::uint8_t>());
  out.parents.items.push_back(in.number<std::uint64_t>());
  in.numbers(out.hashes, out.blocks_per_page);
  in.numbers(out.tokens, std::size_t{out.blocks_per_page} * out.block_tokens);
  if (!in.sound())
    return fail(errc::corrupt, "the description of a page is cut off");
  out.extra = in.rest();
  if (!out.extra.empty())
    out.extra_ends.items.push_back(static_cast<std::uint32_t>(out.extra.size()));
  return out;
}

bool same_shape(const page_descriptions& a, const page_descriptions& b) {
  return shape_of(a) == shape_of(b);
}

} // namespace troupe::events
