#include "actors/node/reception/client_worker.hpp"

#include "actors/node/reception/client_front.hpp"

#include <utility>

namespace troupe {

client_worker::client_worker(caf::actor_config& config, std::shared_ptr<client_rights> rights, rank_number rank,
                             io_worker_actor worker, caf::actor_addr node, caf::node_id home)
    : client_worker_actor::base(config), rights_(std::move(rights)), rank_(rank), worker_(std::move(worker)),
      home_(std::move(home)) {
  listen_to_nobody_but(*this, std::move(node));
}

client_worker::behavior_type client_worker::make_behavior() {
  return {
      [this](open_segment_atom, std::uint64_t bytes, std::int32_t memory_node) { return open(bytes, memory_node); },
      [this](close_segment_atom verb, std::uint64_t segment) -> caf::result<void> {
        if (!asked_from(*this, home_))
          return to_caf(not_this_client());
        if (auto closed = rights_->close(segment); !closed)
          return to_caf(closed.error());
        return hand_on(*this, worker_, nullptr, caf::make_message(verb, segment));
      },
      [this](read_atom verb, io_batch& x) -> caf::result<io_reply> {
        if (!asked_from(*this, home_))
          return to_caf(not_this_client());
        if (auto allowed = rights_->may_transfer(x); !allowed)
          return to_caf(allowed.error());
        if (auto begun = rights_->begin_request(); !begun)
          return to_caf(begun.error());
        return hand_on(*this, worker_, rights_, caf::make_message(verb, std::move(x)));
      },
      [this](write_atom verb, io_batch& x) -> caf::result<io_reply> {
        if (!asked_from(*this, home_))
          return to_caf(not_this_client());
        if (auto allowed = rights_->may_write(rank_, x); !allowed)
          return to_caf(allowed.error());
        if (auto begun = rights_->begin_request(); !begun)
          return to_caf(begun.error());
        return hand_on(*this, worker_, rights_, caf::make_message(verb, std::move(x)));
      },
  };
}

caf::result<segment_info> client_worker::open(std::uint64_t bytes, std::int32_t memory_node) {
  if (!asked_from(*this, home_))
    return to_caf(not_this_client());
  if (auto begun = rights_->begin_request(); !begun)
    return to_caf(begun.error());
  auto promise = make_response_promise();
  const auto number = opening_.add(promise);
  // The worker knows for whom: memory that comes too late for the client goes with its owner id.
  request(worker_, caf::infinite, open_segment_atom_v, rights_->scope().owner, bytes, memory_node)
      .then(
          [this, number](const segment_info& opened) {
            rights_->end_request();
            rights_->opened(opened.segment);
            opening_.deliver(number, opened);
          },
          [this, number](const caf::error& e) {
            rights_->end_request();
            opening_.deliver(number, to_caf(from_caf(e)));
          });
  return promise;
}

void client_worker::on_exit() {
  opening_.fail_all({errc::unreachable, "the client has left"});
  worker_ = nullptr;
}

} // namespace troupe
