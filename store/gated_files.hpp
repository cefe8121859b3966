#pragma once

#include "base/write_gate.hpp"

#include <memory>

namespace rocksdb {
class Env;
} // namespace rocksdb

namespace troupe::store {

/// Files as RocksDB sees them, through which nothing is written, made, renamed or removed while the gate is closed:
/// each such call fails as on a disk without room, which the store recovers from by opening its files anew. So the
/// threads in which RocksDB rearranges files by itself write no later than anybody else. `under` sees the files that
/// are really there, outlives what this returns, and may be null for the system's.
std::unique_ptr<rocksdb::Env> make_gated_environment(std::shared_ptr<const write_gate> gate, rocksdb::Env* under);

} // namespace troupe::store
