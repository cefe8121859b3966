#include "base/message_digest.hpp"

#include <algorithm>
#include <openssl/evp.h>

namespace troupe {

namespace {

void free_context(EVP_MD_CTX* x) noexcept {
  EVP_MD_CTX_free(x);
}

} // namespace

struct message_digest::implementation {
  std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> algorithm;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), free_context};
};

message_digest::message_digest(const char* algorithm)
    : x_(new implementation{{EVP_MD_fetch(nullptr, algorithm, nullptr), EVP_MD_free}}) {}

message_digest::message_digest(message_digest&&) noexcept = default;
message_digest& message_digest::operator=(message_digest&&) noexcept = default;
message_digest::~message_digest() = default;

bool message_digest::available() const noexcept {
  return x_->algorithm && x_->context;
}

bool message_digest::begin() noexcept {
  return available() && EVP_DigestInit_ex2(x_->context.get(), x_->algorithm.get(), nullptr) == 1;
}

bool message_digest::add(byte_view bytes) noexcept {
  return EVP_DigestUpdate(x_->context.get(), bytes.data(), bytes.size()) == 1;
}

bool message_digest::end(std::span<std::byte> out) noexcept {
  return EVP_DigestFinal_ex(x_->context.get(), reinterpret_cast<unsigned char*>(out.data()), nullptr) == 1;
}

bool message_digest::digest(std::initializer_list<byte_view> parts, std::span<std::byte> out) noexcept {
  return begin() && std::ranges::all_of(parts, [this](byte_view part) { return add(part); }) && end(out);
}

} // namespace troupe
