#include "io/foreign/foreign_pages.hpp"

#include "codec/page_codec.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace troupe::io {

namespace {

/// The pause before a file that could not be opened is tried again.
constexpr duration open_pause = std::chrono::seconds(10);

/// Slots that are read concurrently, if there is memory for them.
constexpr std::uint64_t frames_max = 32;

/// Whether a path that another node has named stays below the directory to which it is appended.
bool stays_below(const std::filesystem::path& path) {
  return !path.empty() && path.is_relative() &&
         std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

/// Copies the payload of a sound page, and decodes it if it is encoded.
errc unpack(std::span<const std::byte> slot, const page_identity& wanted, std::span<std::byte> to) {
  const auto stored = expected_payload(slot, wanted);
  if (!stored)
    return stored.error();
  const auto bytes = slot.subspan(page_header_bytes, stored->bytes);
  std::vector<std::byte> decoded(stored->encoding == page_encoding::raw ? 0 : to.size());
  // A block stays as it is if its page turns out not to be one.
  if (!decoded.empty() && !codec::decode(bytes, decoded))
    return errc::corrupt;
  std::ranges::copy(decoded.empty() ? bytes : std::span<const std::byte>(decoded), to.begin());
  return errc::ok;
}

} // namespace

result<void> foreign_pages::try_open(const std::string& path, incarnation_number incarnation, timestamp until) {
  if (!stays_below(path))
    return fail(errc::invalid_argument, "'" + path + "' is not a path below the shared directory");
  slab_spec expected;
  expected.ns = options_.ns;
  expected.rank = options_.rank;
  expected.slot_bytes = slot_bytes(options_.page_bytes);
  expected.incarnation = incarnation;
  const auto& storage = options_.storage;
  auto opened = storage.reader->open(storage.directory / path, expected, storage.direct, until);
  if (!opened)
    return tl::unexpected<error>(opened.error());
  if (!frames_) {
    const auto count = std::clamp<std::uint64_t>(options_.frame_bytes / expected.slot_bytes, 2, frames_max);
    auto made = storage.reader->make_frames(expected.slot_bytes, count);
    if (!made)
      return tl::unexpected<error>(made.error());
    frames_ = std::move(*made);
  }
  file_ = std::move(*opened);
  return {};
}

bool foreign_pages::open(const std::string& path, incarnation_number incarnation, timestamp until, timestamp now) {
  const bool same = path == path_ && incarnation == incarnation_;
  if (same && file_)
    return true;
  if (same && now < again_)
    return false;
  file_.reset();
  path_ = path;
  incarnation_ = incarnation;
  const auto opened = try_open(path, incarnation, until);
  if (opened) {
    notified_.clear();
    return true;
  }
  // Opening may have used up the deadline.
  again_ = later(std::max(now, std::chrono::steady_clock::now()), open_pause);
  if (notified_ != opened.error().text)
    trouble_ = notified_ = opened.error().text;
  return false;
}

std::vector<errc> foreign_pages::read(const std::string& path, incarnation_number incarnation,
                                      std::span<const foreign_page> pages, timestamp until, timestamp now) {
  std::vector<errc> out(pages.size(), errc::unsupported);
  if (!open(path, incarnation, until, now))
    return out;
  const auto page_bytes = options_.page_bytes;
  const auto blocks = options_.blocks.size() / page_bytes;
  std::vector<slot_number> slots;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    out[i] = errc::out_of_range;
    if (pages[i].where.slot >= file_->slab().spec().slots || (pages[i].block >= blocks && pages[i].block != null_block))
      continue;
    slots.push_back(pages[i].where.slot);
    places.push_back(i);
  }
  bool shortened = false;
  bool any_read = false;
  bool any_failed = false;
  options_.storage.reader->read(
      file_, frames_, slots, until, [&](std::size_t at, errc code, std::span<std::byte> slot) {
        const auto& page = pages[places[at]];
        shortened |= code == errc::slab_damaged;
        any_read |= code == errc::ok;
        any_failed |= code == errc::io_error;
        const page_identity wanted{options_.ns, page.key, options_.rank, page.where, page_bytes};
        if (code == errc::ok)
          code = verify_page(slot, wanted);
        if (code == errc::ok && page.block != null_block)
          code = unpack(slot, wanted, options_.blocks.subspan(page.block * page_bytes, page_bytes));
        out[places[at]] = code;
      });
  // The file was truncated, or its descriptor is stale, as after its file system was mounted anew: the next read opens
  // it again.
  if (shortened || (any_failed && !any_read))
    file_.reset();
  return out;
}

} // namespace troupe::io
