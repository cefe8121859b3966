#include "actors/node/directory/directory_records.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

namespace troupe {

namespace {

struct handshake_encoder {
  store::write_batch& batch;
  const clock_pair& clocks;

  void operator()(const handshake::engine_noted& x) const {
    batch.put(store::handshake_engine_record{x.engine,
                                             x.incarnation,
                                             {x.sizes.dp, x.sizes.pp, x.sizes.tp},
                                             x.compat,
                                             x.ttl,
                                             static_cast<std::uint8_t>(x.over),
                                             clocks.time_of_day(x.deadline)});
  }

  void operator()(const handshake::rank_noted& x) const {
    batch.put(store::handshake_rank_record{x.engine,
                                           {x.rank.dp, x.rank.pp, x.rank.tp},
                                           x.incarnation,
                                           static_cast<std::uint8_t>(x.form),
                                           std::string(x.payload.view())});
  }

  void operator()(const handshake::engine_erased& x) const { batch.erase_handshakes(x.engine); }
};

} // namespace

void write(store::write_batch& to, const handshake::directory_change& x, const clock_pair& clocks) {
  std::visit(handshake_encoder{to, clocks}, x);
}

handshake::engine_noted read(const store::handshake_engine_record& x, const clock_pair& clocks) {
  const auto over = std::min(x.over, static_cast<std::uint8_t>(handshake::ending::withdrawn));
  return {x.engine,
          x.incarnation,
          {x.sizes[0], x.sizes[1], x.sizes[2]},
          x.compat,
          x.ttl,
          static_cast<handshake::ending>(over),
          clocks.moment(x.deadline)};
}

handshake::rank_noted read(const store::handshake_rank_record& x) {
  return {x.engine,
          {x.rank[0], x.rank[1], x.rank[2]},
          x.incarnation,
          x.form == 1 ? handshake_form::json : handshake_form::bytes,
          x.payload};
}

} // namespace troupe
