#include "cli/version.hpp"

#include "io/claims/claim_record.hpp"
#include "io/page.hpp"
#include "io/slab/slab_trailer.hpp"
#include "messages/node_messages.hpp"
#include "store/records.hpp"

namespace troupe::cli {

std::string_view version() noexcept {
  return TROUPE_VERSION;
}

std::string one_line_version() {
  return "troupe " + std::string(version()) + " (commit " + std::string(commit()) + ")";
}

std::string version_text() {
  constexpr std::string_view left_out = TROUPE_LEFT_OUT;
  return one_line_version() + "\nprotocol of nodes and clients: " + std::to_string(protocol_version) +
         "\nHTTP API: v1\nformats on disk: page " + std::to_string(io::page_version) + ", slab file " +
         std::to_string(io::version_of_fixed) + " (growing: " + std::to_string(io::version_of_growing) +
         ", growing and sparse: " + std::to_string(io::version_of_sparse) + "), index " +
         std::to_string(store::schema_version) + ", claim " + std::to_string(io::claim_version) +
         "\nleft out of the build: " + (left_out.empty() ? "nothing" : std::string(left_out));
}

} // namespace troupe::cli
