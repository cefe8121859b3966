#include "fuzz/encoded_pages.hpp"

#include "codec/page_codec.hpp"
#include "fuzz/check.hpp"

#include <algorithm>
#include <memory>
#include <span>

namespace troupe::fuzz {

namespace {

using namespace codec;

/// A buffer of exactly the required length, so that a sanitizer detects an access beyond its end.
class exact_buffer {
public:
  explicit exact_buffer(std::size_t size) : bytes_(std::make_unique<std::byte[]>(size)), size_(size) {}

  std::span<std::byte> span() const { return {bytes_.get(), size_}; }

  bool operator==(const exact_buffer& other) const { return std::ranges::equal(span(), other.span()); }

private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

exact_buffer copy_of(std::string_view text, std::size_t size) {
  exact_buffer out(size);
  std::ranges::copy(std::as_bytes(std::span(text.substr(0, size))), out.span().begin());
  return out;
}

int check_decoding(std::string_view encoded, std::size_t payload_bytes) {
  const auto size = encoded_bytes(payload_bytes);
  if (!size)
    return 0;
  const auto page = copy_of(encoded, *size);
  const exact_buffer payload(payload_bytes);
  const auto sound = decode(page.span(), payload.span(), instructions::plain);
  demand(sound || !sound.error().text.empty(), "a refusal without a reason");
  for (const auto with : available_instructions()) {
    const exact_buffer other(payload_bytes);
    const auto done = decode(page.span(), other.span(), with);
    demand(done.has_value() == sound.has_value(), "a page that one implementation decodes and another one does not");
    demand(!sound || other == payload, "a page that is decoded into different payloads");
  }
  return sound ? 1 : 0;
}

int check_encoding(std::string_view text) {
  const auto size = encoded_bytes(text.size());
  if (!size)
    return 0;
  const auto payload = copy_of(text, text.size());
  const exact_buffer page(*size);
  const auto fits = encode(payload.span(), page.span(), instructions::plain);
  demand(fits.has_value(), "a payload of a valid length that is refused");
  for (const auto with : available_instructions()) {
    const exact_buffer other(*size);
    const auto done = encode(payload.span(), other.span(), with);
    demand(done && *done == *fits, "a payload that one implementation encodes and another one does not");
    if (*fits == outcome::does_not_fit)
      continue;
    demand(other == page, "implementations that write different bytes");
    const exact_buffer back(text.size());
    demand(decode(page.span(), back.span(), with).has_value(), "a page that cannot be decoded");
    demand(back == payload, "a payload that changes");
  }
  return *fits == outcome::encoded ? 1 : 0;
}

} // namespace

int read_encoded_page(std::string_view text) {
  if (text.size() < 2)
    return 0;
  const auto elements = static_cast<std::size_t>(static_cast<unsigned char>(text[0])) |
                        std::size_t{static_cast<unsigned char>(text[1])} << 8U;
  return check_encoding(text) + check_decoding(text.substr(2), elements * 2);
}

std::string encoded_page_text(std::size_t elements, std::string_view encoded) {
  std::string out{static_cast<char>(elements & 0xffU), static_cast<char>(elements >> 8U)};
  return out.append(encoded);
}

} // namespace troupe::fuzz
