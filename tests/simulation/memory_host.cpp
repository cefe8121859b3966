#include "tests/simulation/memory_host.hpp"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace troupe::simulation {

struct memory_host::shared_memory final : io::shared_memory {
  explicit shared_memory(std::uint64_t bytes) : memory(bytes) {}
  std::span<std::byte> bytes() noexcept override { return memory; }
  std::vector<std::byte> memory;
};

class memory_host::lender final : public io::page_buffer_source {
public:
  lender(memory_host& host, io::page_store& store) : host_(host), store_(store) {}
  ~lender() override {
    for (const auto name : names_)
      host_.lent_.erase(name);
  }

  result<loan> lend(std::uint64_t bytes, std::int32_t) override {
    const auto memory = std::make_shared<shared_memory>(bytes);
    const auto at = store_.add_buffer(memory->bytes());
    if (!at)
      return tl::unexpected<error>(at.error());
    const auto name = ++host_.last_;
    host_.lent_.emplace(name, memory);
    names_.insert(name);
    loan out{memory, *at, io::shared_memory_name(sizeof name)};
    std::memcpy(out.name.data(), &name, sizeof name);
    return out;
  }

  /// Kept until the process ends, as pages that a client maps are: who still transfers in them is judged by what is
  /// said of it, and what a dying disk writes is read from memory that is there.
  void take_back(loan what) override {
    store_.remove_buffer(what.at_store);
    returned_.push_back(std::move(what.buffers));
  }

private:
  memory_host& host_;
  io::page_store& store_;
  std::set<std::uint64_t> names_;
  std::vector<std::shared_ptr<io::shared_memory>> returned_;
};

class memory_host::seeker final : public io::shared_memory_finder {
public:
  explicit seeker(memory_host& host) : host_(host) {}

  result<std::shared_ptr<io::shared_memory>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) override {
    std::uint64_t number = 0;
    std::memcpy(&number, name.data(), std::min(name.size(), sizeof number));
    const auto found = host_.lent_.find(number);
    const auto memory = found == host_.lent_.end() ? nullptr : found->second.lock();
    if (!memory || memory->memory.size() != bytes)
      return fail(errc::unreachable, "nobody has lent memory of that name");
    return std::shared_ptr<io::shared_memory>(memory);
  }

private:
  memory_host& host_;
};

std::unique_ptr<io::page_buffer_source> memory_host::source(io::page_store& store) {
  return std::make_unique<lender>(*this, store);
}

std::shared_ptr<io::shared_memory_finder> memory_host::finder() {
  return std::make_shared<seeker>(*this);
}

} // namespace troupe::simulation
