#pragma once

#include "store/rocksdb_store.hpp"

#include <rocksdb/options.h>

/// How RocksDB is set up. Belongs to rocksdb_store.cpp; nothing else includes RocksDB.

namespace troupe::store {

rocksdb::Options database_options(const rocksdb_store_options& wanted);

/// For reading everything once, in order.
rocksdb::ReadOptions scan_options();

} // namespace troupe::store
