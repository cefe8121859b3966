// Puts, gets and lookups of pages through the C interface, at a node in another process:
//
//     troupe-bench-pages NODE PAGES PAGE_BYTES PIECES CALLERS ROUNDS [THREADS]
//
// A pool of PAGES pages of PAGE_BYTES, each in PIECES pieces of memory. In each round all pages are put under new keys
// and read back into other blocks, in calls of 128 pages by CALLERS threads; all bytes are compared. Then one key is
// looked up many times. Prints a JSON object: GB/s of each round, microseconds of lookups, and the number of wrong or
// missing pages. THREADS: `troupe_connect_options.threads`.

#include "connector/capi/troupe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace {

struct destroyer {
  void operator()(troupe_connection* x) const { troupe_connection_destroy(x); }
  void operator()(troupe_pages* x) const { troupe_pages_destroy(x); }
};
template <class T>
using handle = std::unique_ptr<T, destroyer>;

/// Calls `function` with the arguments and an error object, and throws its text.
template <class F, class... Ts>
void call(F function, Ts... arguments) {
  troupe_error error{};
  error.size = sizeof error;
  if (function(arguments..., &error) != TROUPE_OK)
    throw std::runtime_error(std::string(troupe_code_name(error.code)) + ": " + error.text);
}

template <class T>
T sized() {
  T out{};
  out.size = sizeof out;
  return out;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct load_options {
  const char* node = nullptr;
  std::uint32_t pages = 0;
  std::uint64_t page_bytes = 0;
  std::uint32_t pieces = 1;
  std::uint32_t callers = 1;
  std::uint32_t rounds = 1;
  std::uint32_t threads = 0;
};

/// The pages of one call, as SGLang asks for them.
constexpr std::uint32_t batch_pages = 128;
constexpr std::size_t key_bytes = 16;
constexpr double limit_seconds = 60;

/// Pages in two halves: the first is put, and the second is filled by gets.
class pool {
public:
  pool(troupe_connection* connection, const load_options& how)
      : how_(how), piece_bytes_(how.page_bytes / how.pieces), bytes_(std::size_t{2} * how.pages * how.page_bytes) {
    void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      throw std::runtime_error("no memory for the pool");
    memory_ = static_cast<std::uint8_t*>(at);
    for (std::uint64_t i = 0; i < bytes_ / 8; ++i) {
      const std::uint64_t word = (i + 1) * 0x9e3779b97f4a7c15ULL;
      std::memcpy(memory_ + i * 8, &word, sizeof word);
    }
    auto shape = sized<troupe_geometry>();
    shape.layers = how.pieces;
    shape.page_tokens = 64;
    shape.opaque_block_bytes = piece_bytes_;
    auto ns = sized<troupe_namespace>();
    ns.model = "bench/pages";
    ns.geometry = &shape;
    const auto options = sized<troupe_pages_options>();
    std::vector<troupe_layer> layers;
    for (std::uint32_t i = 0; i < how.pieces; ++i)
      layers.push_back({piece(i, 0), std::size_t{2} * how.pages * piece_bytes_, piece_bytes_, 0, 0, 0});
    troupe_pages* made = nullptr;
    call(troupe_pages_create, connection, &ns, &options, static_cast<const troupe_layer*>(layers.data()), layers.size(),
         2 * how.pages, &made);
    store_.reset(made);
  }
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  ~pool() {
    store_.reset();
    ::munmap(memory_, bytes_);
  }

  /// GB/s of all pages, put or read.
  double move(bool put, std::uint32_t round, std::atomic<std::size_t>& missing) {
    std::atomic<std::uint32_t> next{0};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> callers;
    for (std::uint32_t i = 0; i < how_.callers; ++i)
      callers.emplace_back([&] {
        for (;;) {
          const auto first = next.fetch_add(batch_pages);
          if (first >= how_.pages)
            return;
          missing += batch(put, round, first, std::min(batch_pages, how_.pages - first));
        }
      });
    for (auto& x : callers)
      x.join();
    return static_cast<double>(how_.pages * how_.page_bytes) / 1e9 / seconds_since(begin);
  }

  std::size_t wrong() const {
    std::size_t out = 0;
    for (std::uint32_t i = 0; i < how_.pages; ++i)
      for (std::uint32_t k = 0; k < how_.pieces; ++k)
        out += std::memcmp(piece(k, i), piece(k, how_.pages + i), piece_bytes_) == 0 ? 0U : 1U;
    return out;
  }

  /// New content for the pages to put, so that a get that writes nothing is wrong.
  void change(std::uint32_t round) {
    for (std::uint32_t i = 0; i < how_.pages; ++i)
      for (std::uint32_t k = 0; k < how_.pieces; ++k)
        piece(k, i)[(i * 977 + k) % piece_bytes_] = static_cast<std::uint8_t>(round + 1);
  }

  /// Microseconds of `count` lookups of one key, sorted.
  std::vector<double> lookups(std::uint32_t round, std::size_t count) {
    std::vector<double> out;
    const auto key = keys(round, 0, 1);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t found = 0;
      const auto begin = std::chrono::steady_clock::now();
      call(troupe_pages_exist, store_.get(), static_cast<const std::uint8_t*>(key.data()), std::size_t{1},
           limit_seconds, &found);
      out.push_back(1e6 * seconds_since(begin));
    }
    std::sort(out.begin(), out.end());
    return out;
  }

private:
  std::uint8_t* piece(std::uint32_t number, std::uint32_t page) const {
    return memory_ + (std::uint64_t{number} * 2 * how_.pages + page) * piece_bytes_;
  }

  static std::vector<std::uint8_t> keys(std::uint32_t round, std::uint32_t first, std::uint32_t count) {
    std::vector<std::uint8_t> out(count * key_bytes, 0xa5);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t number = (std::uint64_t{round} << 32U | (first + i)) * 0x9e3779b97f4a7c15ULL + 1;
      std::memcpy(out.data() + i * key_bytes, &number, sizeof number);
    }
    return out;
  }

  /// Returns the number of pages that were not moved.
  std::size_t batch(bool put, std::uint32_t round, std::uint32_t first, std::uint32_t count) {
    const auto named = keys(round, first, count);
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t i = 0; i < count; ++i)
      blocks.push_back(first + i + (put ? 0 : how_.pages));
    std::size_t done = 0;
    call(put ? troupe_pages_put : troupe_pages_get, store_.get(), named.data(),
         static_cast<const std::uint32_t*>(blocks.data()), std::size_t{count}, limit_seconds, nullptr, &done);
    return count - done;
  }

  load_options how_;
  std::uint64_t piece_bytes_;
  std::uint64_t bytes_;
  std::uint8_t* memory_ = nullptr;
  handle<troupe_pages> store_;
};

std::string listed(const std::vector<double>& numbers) {
  std::string out;
  for (const auto x : numbers)
    out += (out.empty() ? "" : ", ") + std::to_string(x);
  return "[" + out + "]";
}

void run(const load_options& how) {
  auto options = sized<troupe_connect_options>();
  options.address = how.node;
  options.client_name = "bench-pages";
  options.threads = how.threads;
  troupe_connection* connected = nullptr;
  call(troupe_connect, &options, &connected);
  const handle<troupe_connection> connection(connected);
  pool memory(connection.get(), how);
  std::atomic<std::size_t> missing{0};
  std::size_t wrong = 0;
  std::vector<double> puts;
  std::vector<double> gets;
  for (std::uint32_t round = 0; round < how.rounds; ++round) {
    memory.change(round);
    puts.push_back(memory.move(true, round, missing));
    gets.push_back(memory.move(false, round, missing));
    wrong += memory.wrong();
  }
  const auto times = memory.lookups(how.rounds - 1, 3000);
  std::cout << R"({"put": )" << listed(puts) << R"(, "get": )" << listed(gets) << R"(, "exist_us": )"
            << listed({times[times.size() / 2], times[times.size() * 99 / 100]}) << R"(, "missing": )" << missing
            << R"(, "wrong": )" << wrong << "}\n";
}

} // namespace

int main(int argc, char** argv) try {
  if (argc < 7) {
    std::cerr << "usage: troupe-bench-pages NODE PAGES PAGE_BYTES PIECES CALLERS ROUNDS [THREADS]\n";
    return 2;
  }
  const auto number = [&](int i) { return argc > i ? std::strtoul(argv[i], nullptr, 10) : 0; };
  const auto small = [&](int i) { return static_cast<std::uint32_t>(number(i)); };
  run({argv[1], small(2), number(3), std::max(small(4), 1U), std::max(small(5), 1U), std::max(small(6), 1U), small(7)});
  return 0;
} catch (const std::exception& e) {
  std::cerr << "troupe-bench-pages: " << e.what() << '\n';
  return 1;
}
