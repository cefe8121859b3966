#pragma once

#include "base/write_gate.hpp"

#include <memory>

namespace rocksdb {
class Env;
} // namespace rocksdb

namespace troupe::store {

/// A file system for RocksDB that writes, creates, renames and removes nothing while the gate is closed: each such call
/// fails as on a full disk, from which the store recovers by opening its files anew. So RocksDB's background threads
/// are bound by the gate as well. `under` is the real file system; it outlives the result, and null means the system's.
std::unique_ptr<rocksdb::Env> make_gated_environment(std::shared_ptr<const write_gate> gate, rocksdb::Env* under);

} // namespace troupe::store
