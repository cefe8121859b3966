#include "io/memory/page_alignment.hpp"
#include "io/memory/private_memory.hpp"
#include "io/ucx/ucx_engine.hpp"
#include "io/ucx/ucx_memory.hpp"

#include <utility>

namespace troupe::io {

namespace {

class ucx_exposed_memory final : public exposed_memory {
public:
  explicit ucx_exposed_memory(std::unique_ptr<ucx_engine> engine) : engine_(std::move(engine)) {}

  // The worker stops first: without progress nothing is written over TCP, which is the only protection there, since UCX
  // does not check keys. An RDMA adapter checks the key, which is destroyed next. The worker is not destroyed: UCX 1.13
  // ends the whole process if the network fails while the node connects.
  ~ucx_exposed_memory() override {
    engine_->stop();
    if (mapped_ != nullptr)
      static_cast<void>(engine_->api().ucp_mem_unmap(engine_->context(), mapped_));
    if (!name_.key.empty())
      engine_->abandon();
  }

  result<void> open(std::uint64_t bytes) {
    auto got = private_memory::get(bytes);
    if (!got)
      return tl::unexpected<error>(std::move(got.error()));
    memory_ = std::move(*got);
    const auto& api = engine_->api();
    ucp_mem_map_params_t how{};
    how.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    how.address = memory_.bytes().data();
    how.length = bytes;
    if (const auto status = api.ucp_mem_map(engine_->context(), &how, &mapped_); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "exposing memory"));
    void* key = nullptr;
    std::size_t key_bytes = 0;
    if (const auto status = api.ucp_rkey_pack(engine_->context(), mapped_, &key, &key_bytes); status != UCS_OK)
      return tl::unexpected<error>(api.failed(status, "packing a key"));
    const auto* const first = static_cast<const std::uint8_t*>(key);
    name_ = {
        engine_->address(), {first, first + key_bytes}, reinterpret_cast<std::uint64_t>(memory_.bytes().data()), bytes};
    api.ucp_rkey_buffer_release(key);
    return {};
  }

  std::span<std::byte> bytes() noexcept override { return memory_.bytes(); }
  const remote_memory_name& name() const noexcept override { return name_; }

private:
  private_memory memory_;
  std::unique_ptr<ucx_engine> engine_;
  ucp_mem_h mapped_ = nullptr;
  remote_memory_name name_;
};

class ucx_exposer final : public memory_exposer {
public:
  explicit ucx_exposer(ucx_options options) : options_(std::move(options)) {}

  result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const host_address> from) override {
    if (bytes == 0 || bytes % page_alignment != 0)
      return fail(errc::invalid_argument, "exposed memory must be whole pages");
    admitted_peers admitted;
    for (const auto& x : from)
      if (x.is_ipv4())
        admitted.addresses.push_back(x.ipv4());
    auto engine = ucx_engine::start(options_, std::move(admitted));
    if (!engine)
      return tl::unexpected<error>(std::move(engine.error()));
    const auto out = std::make_shared<ucx_exposed_memory>(std::move(*engine));
    if (auto opened = out->open(bytes); !opened)
      return tl::unexpected<error>(std::move(opened.error()));
    return out;
  }

private:
  ucx_options options_;
};

} // namespace

result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options& options) {
  if (const auto api = ucx_library::load(); !api)
    return tl::unexpected<error>(api.error());
  return std::make_shared<ucx_exposer>(options);
}

} // namespace troupe::io
