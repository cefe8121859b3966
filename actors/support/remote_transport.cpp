#include "actors/support/remote_transport.hpp"

#include "base/host_identity.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/ucx/ucx_memory.hpp"

#include <cstdlib>
#include <utility>

namespace troupe {

namespace {

class exposer_when_needed final : public io::memory_exposer {
public:
  exposer_when_needed(config::remote_config how, std::string node) : how_(std::move(how)), node_(std::move(node)) {}

  result<std::shared_ptr<io::exposed_memory>> expose(std::uint64_t bytes,
                                                     std::span<const std::uint32_t> from) override {
    if (how_.transport == "ucx") {
      io::ucx_options options{how_.ucx_transports, how_.ucx_interfaces};
      // Listens only on the interface by which the node is reached.
      if (options.interfaces.empty() && std::getenv("UCX_NET_DEVICES") == nullptr)
        options.interfaces = interface_towards(node_);
      const auto made = io::make_ucx_exposer(options);
      return made ? (*made)->expose(bytes, from) : tl::unexpected<error>(made.error());
    }
    const auto address = address_towards(node_);
    if (!address)
      return fail(errc::unreachable, "this host has no IPv4 address with a route to " + node_);
    return io::make_tcp_exposer(*address, how_.encrypt, how_.streams)->expose(bytes, from);
  }

private:
  config::remote_config how_;
  std::string node_;
};

} // namespace

std::shared_ptr<io::memory_exposer> make_memory_exposer(const config::remote_config& how, const std::string& node) {
  return std::make_shared<exposer_when_needed>(how, node);
}

result<std::shared_ptr<io::remote_mover>> make_remote_mover(const config::remote_config& how) {
  return how.transport == "ucx" ? io::make_ucx_mover({how.ucx_transports, how.ucx_interfaces})
                                : io::make_tcp_mover({how.threads, how.encrypt, how.streams, how.stall_time / 4});
}

std::uint32_t streams_of(const config::remote_config& how) noexcept {
  return io::chosen_streams(how.streams);
}

} // namespace troupe
