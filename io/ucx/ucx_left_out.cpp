#include "io/ucx/ucx_memory.hpp"

namespace troupe::io {

namespace {

tl::unexpected<error> left_out() {
  return fail(errc::unsupported, "this program was built without UCX, which transfers pages between hosts: install "
                                 "libucx-dev, configure and build again");
}

} // namespace

result<std::shared_ptr<memory_exposer>> make_ucx_exposer(const ucx_options&) {
  return left_out();
}

result<std::shared_ptr<remote_mover>> make_ucx_mover(const ucx_options&) {
  return left_out();
}

} // namespace troupe::io
