#include "actors/support/remote_transport.hpp"

#include "base/host_identity.hpp"
#include "base/log.hpp"
#include "base/tcp_connect.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/ucx/ucx_memory.hpp"

#include <cstdlib>
#include <utility>
#include <vector>

namespace troupe {

namespace {

std::vector<host_address> addresses_of(const config::remote_config& how) {
  // The config was checked when it was read.
  return parse_addresses(how.addresses).value_or(std::vector<host_address>{});
}

/// Those that this host has at present: an interface may have lost its address since.
std::vector<host_address> present_addresses(const config::remote_config& how) {
  auto out = addresses_of(how);
  std::erase_if(out, [](const host_address& x) {
    const bool gone = interface_with(x).empty();
    if (gone)
      log::get("remote")->warn("{} is not an address of this host, and pages do not use it (remote.addresses)",
                               x.text());
    return gone;
  });
  return out;
}

class exposer_when_needed final : public io::memory_exposer {
public:
  exposer_when_needed(config::remote_config how, std::string host, std::uint16_t port, duration limit)
      : how_(std::move(how)), host_(std::move(host)), port_(port), limit_(limit) {}

  result<std::shared_ptr<io::exposed_memory>> expose(std::uint64_t bytes, std::span<const host_address> from) override {
    const auto address = own_address();
    if (!address)
      return tl::unexpected<error>(address.error());
    std::vector<host_address> admitted(from.begin(), from.end());
    // A node that is reached over the loopback interface connects back over it.
    if (address->is_loopback())
      admitted.push_back(address->is_ipv4() ? host_address::ipv4_loopback() : host_address::ipv6_loopback());
    if (how_.transport == "ucx")
      return expose_by_ucx(*address, bytes, admitted);
    return io::make_tcp_exposer(addresses_beside(*address), how_.encrypt, how_.streams)->expose(bytes, admitted);
  }

private:
  result<host_address> own_address() const {
    if (port_ == 0)
      return host_address::ipv4_loopback();
    auto out = address_towards(host_, port_, limit_);
    if (!out)
      return fail(out.error().code, "cannot find the address by which this host reaches " +
                                        endpoint_text(host_, port_) + ": " + out.error().text);
    if (out->is_link_local())
      return fail(errc::unsupported, "pages cannot move over the link-local address " + out->text() +
                                         ": name the node by an address that is valid beyond one link");
    return out;
  }

  /// Those of the config, or the one by which the node is reached. A node of this host needs no other.
  std::vector<host_address> addresses_beside(const host_address& own) const {
    auto out = own.is_loopback() ? std::vector<host_address>{} : present_addresses(how_);
    if (out.empty())
      out.push_back(own);
    return out;
  }

  result<std::shared_ptr<io::exposed_memory>> expose_by_ucx(const host_address& address, std::uint64_t bytes,
                                                            std::span<const host_address> admitted) const {
    if (!address.is_ipv4())
      return fail(errc::unsupported, "UCX moves pages over IPv4 only, and " + endpoint_text(host_, port_) +
                                         " is reached over IPv6: set remote.transport to \"tcp\", or name the node by "
                                         "an IPv4 address");
    io::ucx_options options{how_.ucx_transports, how_.ucx_interfaces};
    // Listens only on the interface by which the node is reached.
    if (options.interfaces.empty() && std::getenv("UCX_NET_DEVICES") == nullptr)
      options.interfaces = interface_with(address);
    const auto made = io::make_ucx_exposer(options);
    return made ? (*made)->expose(bytes, admitted) : tl::unexpected<error>(made.error());
  }

  config::remote_config how_;
  std::string host_;
  std::uint16_t port_;
  duration limit_;
};

io::tcp_mover_options options_of(const config::remote_config& how) {
  io::tcp_mover_options out{how.threads, how.encrypt, how.streams, how.stall_time / 4};
  out.addresses = addresses_of(how);
  return out;
}

} // namespace

std::shared_ptr<io::memory_exposer> make_memory_exposer(const config::remote_config& how, std::string host,
                                                        std::uint16_t port, duration limit) {
  return std::make_shared<exposer_when_needed>(how, std::move(host), port, limit);
}

result<std::shared_ptr<io::remote_mover>> make_remote_mover(const config::remote_config& how) {
  static_cast<void>(present_addresses(how)); // for its warnings: connections look for themselves
  return how.transport == "ucx" ? io::make_ucx_mover({how.ucx_transports, how.ucx_interfaces})
                                : io::make_tcp_mover(options_of(how));
}

std::uint32_t streams_of(const config::remote_config& how) noexcept {
  return io::chosen_streams(how.streams, addresses_of(how).size());
}

} // namespace troupe
