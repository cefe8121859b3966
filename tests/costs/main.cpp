// The program that costs.py measures: the metadata service with its HTTP server in this process, on a port that is
// printed first, and the rules that no protocol reaches. It executes commands from its standard input, one a line, and
// prints "done" after each:
//
//   begin          the measurement starts
//   end NAME       the measurement ends and gets this name
//   match N        N lookups of 512 keys, each with a lease that is released
//   pages N        N pages of 64 KiB sealed and verified
//   transfers N    N pages written and read by the io engine; prints "none" without io_uring
//
// Under valgrind, `begin` and `end` make callgrind dump its counts; in a trace of system calls, the reads of both lines
// mark the begin and the end.

#include "actors/node/registry/registry_state.hpp"
#include "io/make_engine.hpp"
#include "io/page.hpp"
#include "tests/conformance/slot_node.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_DUMP_STATS_AT(name) static_cast<void>(name)
#endif

namespace {

using namespace troupe;

constexpr std::uint64_t page_bytes = std::uint64_t{64} * 1024;
constexpr std::uint32_t keys_of_a_lookup = 512;

[[noreturn]] void fail_with(const std::string& what) {
  std::cerr << what << '\n';
  std::exit(1);
}

/// One rank whose keys are all there, without actors.
class lookups {
public:
  lookups() : registry_(registry_options{}) {
    namespace_spec spec;
    spec.name = "costs";
    spec.world_size = 1;
    ns_ = spec.id();
    if (!registry_.add_namespace(spec))
      fail_with("no namespace");
    reserve_request wanted{ns_, 0, {1, 1}, std::chrono::seconds(10), {}, {}};
    for (std::uint64_t i = 1; i <= keys_of_a_lookup; ++i)
      wanted.keys.items.push_back({i * 0x9e3779b97f4a7c15ULL, i * 0xbf58476d1ce4e5b9ULL});
    keys_ = wanted.keys;
    const auto plan = registry_.begin_reserve(wanted, now_);
    std::vector<slot_ref> slots;
    for (std::uint32_t i = 0; i < keys_of_a_lookup; ++i)
      slots.push_back({i, 1});
    const auto given = registry_.finish_reserve(plan->plan, slots, now_);
    finish_request written{ns_, 0, {1, 1}, {}};
    for (std::uint32_t i = 0; i < keys_of_a_lookup; ++i)
      written.pages.items.push_back({keys_[i], given->results[i].where});
    if (!registry_.commit(written, now_))
      fail_with("no commit");
    static_cast<void>(registry_.take_outbox());
  }

  void run(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
      const ticket lease{2, ++last_};
      const auto found = registry_.match({ns_, lease, std::chrono::seconds(10), keys_}, now_);
      if (!found || found->matched != keys_of_a_lookup || !registry_.release({ns_, lease, 0}, now_))
        fail_with("a lookup finds not what is there");
    }
  }

private:
  registry_state registry_;
  namespace_id ns_;
  packed<key_digest> keys_;
  timestamp now_{std::chrono::seconds(1)};
  std::uint64_t last_ = 0;
};

struct free_memory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// A slot as it is written.
class slot_memory {
public:
  slot_memory() : bytes_(static_cast<std::byte*>(std::aligned_alloc(io::page_alignment, io::slot_bytes(page_bytes)))) {
    std::fill_n(bytes_.get(), io::slot_bytes(page_bytes), std::byte{7});
  }
  std::span<std::byte> span() const { return {bytes_.get(), io::slot_bytes(page_bytes)}; }

private:
  std::unique_ptr<std::byte, free_memory> bytes_;
};

void seal_and_verify(std::uint64_t times) {
  const slot_memory slot;
  for (std::uint64_t i = 1; i <= times; ++i) {
    const io::page_identity page{{1, 2}, {i, i}, 0, {static_cast<slot_number>(i), 1}, page_bytes};
    io::seal_page(slot.span(), page);
    if (io::verify_page(slot.span(), page) != errc::ok)
      fail_with("a page is not what was sealed");
  }
}

/// Pages of a file, one after the other.
class transfers {
public:
  static std::unique_ptr<transfers> start() {
    auto out = std::unique_ptr<transfers>(new transfers);
    io::engine_options how;
    how.kind = io::engine_kind::uring;
    auto made = io::make_engine(how, [x = out.get()](std::span<const io::completion> done) { x->ended(done); });
    if (!made)
      return nullptr;
    out->engine_ = std::move(*made);
    const auto file = out->engine_->add_file(out->descriptor_);
    const auto buffer = out->engine_->add_buffer(out->slot_.span());
    if (!file || !buffer)
      return nullptr;
    out->file_ = *file;
    out->buffer_ = *buffer;
    return out;
  }

  ~transfers() {
    if (engine_)
      engine_->stop();
    ::close(descriptor_);
  }
  transfers(const transfers&) = delete;
  transfers& operator=(const transfers&) = delete;

  void run(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i)
      for (const auto op : {io::operation::write, io::operation::read}) {
        std::unique_lock lock(mutex_);
        const auto bytes = slot_.span();
        const io::request wanted{op, file_, 0, bytes.data(), bytes.size(), buffer_, ++last_};
        const auto before = ended_;
        lock.unlock();
        engine_->submit({&wanted, 1});
        lock.lock();
        came_.wait(lock, [&] { return ended_ > before; });
      }
  }

private:
  transfers() {
    auto path = (std::filesystem::temp_directory_path() / "troupe-costs-XXXXXX").string();
    descriptor_ = ::mkstemp(path.data());
    if (descriptor_ < 0)
      fail_with("no temporary file");
    ::unlink(path.c_str());
  }

  void ended(std::span<const io::completion> done) {
    for (const auto& x : done)
      if (x.status != errc::ok)
        fail_with("a transfer has failed");
    const std::lock_guard guard(mutex_);
    ended_ += done.size();
    came_.notify_one();
  }

  slot_memory slot_;
  int descriptor_ = -1;
  std::mutex mutex_;
  std::condition_variable came_;
  std::uint64_t ended_ = 0;
  std::uint64_t last_ = 0;
  std::uint32_t file_ = 0;
  std::uint32_t buffer_ = 0;
  /// Last, so that it ends before what its completions touch.
  std::unique_ptr<io::engine> engine_;
};

} // namespace

int main() {
  const auto node = test::slot_node::start();
  if (!node)
    fail_with(to_string(node.error()));
  std::cout << (*node)->port() << std::endl;
  lookups found;
  std::unique_ptr<transfers> pages;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    std::string name;
    words >> verb >> name;
    const auto times = std::strtoull(name.c_str(), nullptr, 10);
    std::string answer = "done";
    if (verb == "begin") {
      // The counts so far go into a dump of their own. Setting the counts to zero instead would make callgrind subtract
      // the cost of calls in progress from them, so that sums end below zero.
      CALLGRIND_DUMP_STATS_AT("before");
    } else if (verb == "end") {
      CALLGRIND_DUMP_STATS_AT(name.c_str());
    } else if (verb == "match") {
      found.run(times);
    } else if (verb == "pages") {
      seal_and_verify(times);
    } else if (verb == "transfers") {
      if (!pages)
        pages = transfers::start();
      if (pages)
        pages->run(times);
      else
        answer = "none";
    } else {
      fail_with("no such command: " + line);
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
