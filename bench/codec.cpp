// How far pages of BF16 values are compressed, and how fast, by one core: each implementation of the codec, and a copy.
//
// Usage: troupe-bench-codec [FILE PAGE_BYTES]…
//   FILE   raw elements of BF16, in whole pages: measured beside the generated values, of a real model for example

#include "bench/measuring.hpp"
#include "codec/page_codec.hpp"
#include "workload/kv_values/kv_values.hpp"
#include "workload/replay/text_table.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::bench;
using namespace troupe::replay;

constexpr int rounds = 5;
constexpr std::uint64_t page_of_kinds = std::uint64_t{2} << 20U;
/// More than the caches hold.
constexpr std::uint64_t working_set = std::uint64_t{256} << 20U;

using bytes = std::vector<std::byte>;

std::string speed(std::uint64_t moved, const std::function<void()>& work) {
  duration best = duration::max();
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min<duration>(best, std::chrono::steady_clock::now() - start);
  }
  return fmt::format("{:.1f}", gigabytes_per_second(moved, best));
}

/// The Shannon entropy of the exponents of a page, in bits.
double exponent_entropy(std::span<const std::byte> page) {
  std::array<std::uint64_t, 256> counts{};
  for (std::size_t i = 0; i + 1 < page.size(); i += 2) {
    std::uint16_t element = 0;
    std::memcpy(&element, page.data() + i, 2);
    ++counts[element >> 7U & 0xffU];
  }
  double out = 0;
  for (const auto count : counts)
    if (count != 0) {
      const auto share = static_cast<double>(count) * 2 / static_cast<double>(page.size());
      out -= share * std::log2(share);
    }
  return out;
}

/// Pages of one kind, their encodings, and room to decode them.
class subject {
public:
  subject(std::string name, bytes payloads, std::uint64_t page_bytes)
      : name_(std::move(name)), payloads_(std::move(payloads)), page_bytes_(page_bytes),
        encoded_bytes_(value_or_die(codec::encoded_bytes(page_bytes))), pages_(payloads_.size() / page_bytes),
        encoded_(encoded_bytes_ * pages_), decoded_(payloads_.size()) {}

  void measure(text_table& shares, text_table& speeds) {
    std::uint64_t fits = 0;
    std::uint64_t escapes = 0;
    double entropy = 0;
    for (std::size_t i = 0; i < pages_; ++i) {
      entropy += exponent_entropy(payload(i)) / static_cast<double>(pages_);
      if (value_or_die(codec::encode(payload(i), page(i))) != codec::outcome::encoded)
        continue;
      ++fits;
      codec::page_header header;
      std::memcpy(&header, page(i).data(), sizeof header);
      escapes += header.escapes;
    }
    const auto tiles = codec::layout_of(page_bytes_).tiles;
    const auto stored = static_cast<double>(fits * encoded_bytes_ + (pages_ - fits) * page_bytes_);
    shares.row(
        {name_, human_bytes(page_bytes_), human_count(pages_), fmt::format("{:.2f}", entropy),
         fmt::format("{:.3f}", (8 + entropy) / 16),
         fmt::format("{:.4f}", stored / static_cast<double>(payloads_.size())),
         fits == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(escapes) / static_cast<double>(fits * tiles)),
         human_percent(share(pages_ - fits, pages_))});
    std::vector<std::string> row{
        name_, speed(payloads_.size(), [&] { std::memcpy(decoded_.data(), payloads_.data(), payloads_.size()); })};
    for (const auto with : codec::available_instructions()) {
      // An encoder stops at the first tile that does not fit.
      row.push_back(fits < pages_ ? "-" : speed(payloads_.size(), [&] { encode_all(with); }));
      row.push_back(fits < pages_ ? "-" : speed(payloads_.size(), [&] { decode_all(with); }));
      if (fits == pages_ && decoded_ != payloads_)
        die(name_ + ": decoded into other bytes");
    }
    speeds.row(std::move(row));
  }

private:
  std::span<const std::byte> payload(std::size_t i) const {
    return std::span(payloads_).subspan(i * page_bytes_, page_bytes_);
  }
  std::span<std::byte> page(std::size_t i) { return std::span(encoded_).subspan(i * encoded_bytes_, encoded_bytes_); }

  void encode_all(codec::instructions with) {
    for (std::size_t i = 0; i < pages_; ++i)
      value_or_die(codec::encode(payload(i), page(i), with));
  }

  void decode_all(codec::instructions with) {
    for (std::size_t i = 0; i < pages_; ++i)
      if (auto done = codec::decode(page(i), std::span(decoded_).subspan(i * page_bytes_, page_bytes_), with); !done)
        die(to_string(done.error()));
  }

  std::string name_;
  bytes payloads_;
  std::uint64_t page_bytes_;
  std::uint64_t encoded_bytes_;
  std::size_t pages_;
  bytes encoded_;
  bytes decoded_;
};

/// Some MiB of values of the kind, over and over.
bytes generated(workload::value_kind kind) {
  std::mt19937_64 random(1);
  const auto some = workload::make_values(kind, std::size_t{8} << 20U, random);
  bytes out;
  out.reserve(working_set);
  while (out.size() < working_set)
    out.insert(out.end(), some.begin(), some.end());
  return out;
}

bytes read_pages(const std::string& file, std::uint64_t page_bytes) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(file, failed);
  if (failed)
    die(file + ": " + failed.message());
  const auto most = std::min<std::uint64_t>(size, working_set);
  bytes out(most - most % page_bytes);
  std::ifstream in(file, std::ios::binary);
  if (out.empty() || !in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size())))
    die(file + ": cannot be read as pages of " + std::to_string(page_bytes) + " bytes");
  return out;
}

} // namespace

int main(int count, char** arguments) {
  text_table shares({"values", "page", "pages", "exponent bits", "bound", "stored", "escapes a tile", "raw pages"});
  std::vector<std::string> header{"GB/s of raw bytes", "memcpy"};
  for (const auto with : codec::available_instructions())
    for (const auto* what : {"encode", "decode"})
      header.push_back(fmt::format("{} {}", what, to_string(with)));
  text_table speeds(header);
  for (const auto kind : workload::all_value_kinds())
    subject(std::string(to_string(kind)), generated(kind), page_of_kinds).measure(shares, speeds);
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string file(arguments[i]);
    const auto page_bytes = std::strtoull(arguments[i + 1], nullptr, 10);
    value_or_die(codec::encoded_bytes(page_bytes));
    subject(std::filesystem::path(file).filename().string(), read_pages(file, page_bytes), page_bytes)
        .measure(shares, speeds);
  }
  std::printf("%s\n%s\n", shares.str().c_str(), speeds.str().c_str());
}
