/// The C interface from C++, with owning handles: two pools of host memory that share their pages through the node.
///
///     build/release/troupe serve --config configs/single-node.json
///     build/release/examples/troupe-example-cpp-pool data/single

#include "connector/capi/troupe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
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

constexpr std::size_t page_bytes = 65536;
constexpr std::uint32_t pages = 8;

struct pool {
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(page_bytes * pages);
  handle<troupe_pages> store;

  explicit pool(troupe_connection* connection) {
    auto shape = sized<troupe_geometry>();
    shape.layers = 1;
    shape.page_tokens = 64;
    shape.opaque_block_bytes = page_bytes;
    auto ns = sized<troupe_namespace>();
    ns.model = "example/tiny";
    ns.dtype = "bfloat16";
    ns.geometry = &shape;
    const auto options = sized<troupe_pages_options>();
    const troupe_layer layer{memory.data(), memory.size(), page_bytes, 0, 0, 0};
    troupe_pages* made = nullptr;
    call(troupe_pages_create, connection, &ns, &options, &layer, std::size_t{1}, pages, &made);
    store.reset(made);
  }

  auto page(std::uint32_t i) { return memory.begin() + static_cast<std::ptrdiff_t>(i * page_bytes); }
};

} // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: troupe-example-cpp-pool NODE\n";
    return 2;
  }
  auto how = sized<troupe_connect_options>();
  how.address = argv[1];
  how.client_name = "cpp-pool";
  troupe_connection* connected = nullptr;
  call(troupe_connect, &how, &connected);
  const handle<troupe_connection> connection(connected);
  pool mine(connection.get());
  pool yours(connection.get());

  std::random_device random;
  std::array<std::uint8_t, 16> key{};
  std::generate(key.begin(), key.end(), [&] { return static_cast<std::uint8_t>(random()); });
  std::generate(mine.page(3), mine.page(4), [&, i = 0]() mutable { return static_cast<std::uint8_t>(++i * 31); });
  const std::uint32_t from = 3;
  const std::uint32_t to = 5;
  std::size_t done = 0;
  call(troupe_pages_put, mine.store.get(), key.data(), &from, std::size_t{1}, 5.0, nullptr, &done);
  call(troupe_pages_get, yours.store.get(), key.data(), &to, std::size_t{1}, 5.0, nullptr, &done);
  const bool right = done == 1 && std::equal(mine.page(3), mine.page(4), yours.page(5));
  std::cout << (right ? "every byte is right\n" : "NOT EVERY BYTE IS RIGHT\n");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
