#include "io/claims/claim_files.hpp"

#include "base/digest.hpp"
#include "base/parse_number.hpp"
#include "base/unique_descriptor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

constexpr mode_t claims_mode = 0700;
constexpr mode_t claim_mode = 0600;
/// A claim that is listed and has disappeared a moment later was removed by the holder of a higher one.
constexpr int looks_max = 8;

tl::unexpected<error> claim_failed(int code, const char* verb, const fs::path& path) {
  auto why = system_error(code, std::string("cannot ") + verb + " the claim " + path.string());
  if (code == EEXIST)
    why.code = errc::exists;
  if (code == ENOENT)
    why.code = errc::not_found;
  return tl::unexpected(std::move(why));
}

std::optional<claim_number> number_of(std::string_view name) {
  const auto out = parse_number<claim_number>(name);
  return out == claim_number{0} ? std::nullopt : out;
}

/// Empty where the directory does not exist.
result<std::vector<claim_number>> list_claims(const fs::path& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(directory.c_str()), ::closedir);
  std::vector<claim_number> out;
  if (!listing && errno == ENOENT)
    return out;
  if (!listing)
    return tl::unexpected(system_error(errno, "cannot list " + directory.string()));
  for (;;) {
    errno = 0;
    const auto* const entry = ::readdir(listing.get());
    if (entry == nullptr && errno != 0)
      return tl::unexpected(system_error(errno, "cannot list " + directory.string()));
    if (entry == nullptr)
      return out;
    if (const auto number = number_of(static_cast<const char*>(entry->d_name)))
      out.push_back(*number);
  }
}

result<void> put(int descriptor, const fs::path& path, const claim_record& what) {
  const auto text = text_of(what);
  // One write is enough: the record lies within one block, and a reader detects a partial one by its checksum.
  errno = 0;
  if (::pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return claim_failed(errno != 0 ? errno : ENOSPC, "write", path);
  if (::fsync(descriptor) != 0)
    return claim_failed(errno, "sync", path);
  return {};
}

} // namespace

claim_directory::claim_directory(const fs::path& data_directory) : directory_(data_directory / "claims") {}

fs::path claim_directory::path_of(claim_number number) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%08llu", static_cast<unsigned long long>(number));
  return directory_ / name.data();
}

result<claim_sighting> claim_directory::look() {
  for (int looks = 0; looks < looks_max; ++looks) {
    const auto all = list_claims(directory_);
    if (!all)
      return tl::unexpected(all.error());
    if (all->empty())
      return claim_sighting{};
    claim_sighting out;
    out.number = *std::ranges::max_element(*all);
    const auto path = path_of(out.number);
    const unique_descriptor in(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!in && errno == ENOENT)
      continue;
    if (!in)
      return claim_failed(errno, "open", path);
    std::array<std::byte, claim_record_bytes> bytes{};
    const auto got = ::pread(in.get(), bytes.data(), bytes.size(), 0);
    if (got < 0)
      return claim_failed(errno, "read", path);
    const auto read = std::span(bytes).first(static_cast<std::size_t>(got));
    out.fingerprint = hash_key(read).lo;
    out.record = read_claim(read);
    return out;
  }
  return fail(errc::io_error,
              "the claims in " + directory_.string() + " keep changing while they are listed; try again");
}

result<void> claim_directory::make(claim_number number, const claim_record& what) {
  if (::mkdir(directory_.c_str(), claims_mode) != 0 && errno != EEXIST)
    return claim_failed(errno, "make the directory of", directory_);
  const auto path = path_of(number);
  const unique_descriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, claim_mode));
  if (!out)
    return claim_failed(errno, "make", path);
  if (auto done = put(out.get(), path, what); !done)
    return done;
  const unique_descriptor directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0)
    return claim_failed(errno, "sync the directory of", path);
  return {};
}

result<void> claim_directory::write(claim_number number, const claim_record& what) {
  const auto path = path_of(number);
  const unique_descriptor out(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!out)
    return claim_failed(errno, "open", path);
  return put(out.get(), path, what);
}

result<void> claim_directory::remove_below(claim_number number) {
  const auto all = list_claims(directory_);
  if (!all)
    return tl::unexpected(all.error());
  for (const auto x : *all)
    if (x < number && ::unlink(path_of(x).c_str()) != 0 && errno != ENOENT)
      return claim_failed(errno, "remove", path_of(x));
  return {};
}

} // namespace troupe::io
