#include "base/base64.hpp"

#include <algorithm>
#include <cstddef>
#include <openssl/evp.h>

namespace troupe {

namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes and characters of one call of OpenSSL, which counts them with an int; whole groups of three and four.
constexpr std::size_t piece_bytes = std::size_t{3} << 20U;
constexpr std::size_t piece_chars = piece_bytes / 3 * 4;

const unsigned char* input(std::string_view x) {
  return reinterpret_cast<const unsigned char*>(x.data());
}

} // namespace

std::string to_base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4, '\0');
  std::size_t done = 0;
  for (std::size_t from = 0; from < bytes.size(); from += piece_bytes) {
    const auto piece = bytes.substr(from, piece_bytes);
    // OpenSSL ends each piece with a zero byte: the next piece replaces it, and the last one is the text's own.
    done += static_cast<std::size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()) + done, input(piece),
                                                     static_cast<int>(piece.size())));
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0)
    return std::nullopt;
  std::size_t padding = 0;
  while (padding < std::min<std::size_t>(2, text.size()) && text[text.size() - 1 - padding] == '=')
    ++padding;
  // OpenSSL ignores blanks at both ends and accepts padding anywhere.
  if (text.substr(0, text.size() - padding).find_first_not_of(alphabet) != std::string_view::npos)
    return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  for (std::size_t from = 0; from < text.size(); from += piece_chars) {
    const auto piece = text.substr(from, piece_chars);
    if (EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()) + from / 4 * 3, input(piece),
                        static_cast<int>(piece.size())) < 0)
      return std::nullopt;
  }
  out.resize(out.size() - padding);
  return out;
}

} // namespace troupe
